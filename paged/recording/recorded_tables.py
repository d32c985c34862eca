"""The block tables of a replay's policy, recorded under the numbers of its requests.

Bare lists of blocks, with which a replay runs fastest, are no sequences of the pool; so it is told here what they hold.
"""

from __future__ import annotations

from typing import Any

from ..policies.paged_pool import PagedPool
from ..policies.tables import BareTables
from .kinds import Kind
from .pool_recorder import PoolRecorder
from .taps import Method


def record_tables(policy: PagedPool, recorder: PoolRecorder) -> None:
    """Tell ``recorder`` what the tables of ``policy`` hold from now on, until it is closed."""
    taps = recorder.taps
    if isinstance(policy.tables, BareTables):
        taps.leave_allocations()  # they are told of here
        taps.replace(policy, "tables", _RecordedTables(policy.tables, recorder))
        return

    def labelled(inner: Method) -> Method:
        def named(request: int, *rest: Any) -> Any:
            taps.label = request
            return inner(request, *rest)

        return named

    for name in ("recall", "extend"):
        taps.tap(policy.tables, name, labelled)


class _RecordedTables(BareTables):
    """The lists of ``tables``, and each change told. It is told here, where it is made, for that costs least."""

    def __init__(self, tables: BareTables, recorder: PoolRecorder) -> None:
        super().__init__(recorder.pool)
        self.lists = tables.lists
        self._taps, self._clock, self._note = recorder.taps, recorder.taps.clock, recorder.note
        self._numbers: dict[int, int] = {}  # of the requests that are told of
        self._put, self._end = Kind.PUT, Kind.END  # looked up here: Python 3.11 makes a function call of it

    def extend(self, request: int, tokens: int) -> int:
        """Blocks that are new in a list go into its table."""
        began = self._clock()
        table = self.lists.setdefault(request, [])
        held = len(table)
        new = self._pool.allocate(-(-tokens // self._size) - held)
        table += new
        number = self._numbers.get(request)
        if number is None:
            number = self._started(request)
            held, new = 0, table
        self._note(self._put, number, tokens, held, new, began)
        return len(table)

    def free(self, request: int) -> None:
        """Its table ends."""
        began = self._clock()
        super().free(request)
        if request in self._numbers:
            self._note(self._end, self._numbers.pop(request), -1, start=began)

    def _started(self, request: int) -> int:
        number = self._numbers[request] = self._taps.new_number()
        self._note(Kind.START, number, request)
        return number
