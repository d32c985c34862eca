"""Taps on the block tables of a replay's policy: each is recorded under the number of its request.

Bare lists of blocks, with which a replay runs fastest, are no sequences of the pool; so it is told here what they hold.
"""

from __future__ import annotations

from typing import Any

from ..policies.tables import BareTables, Tables
from .kinds import Kind
from .pool_recorder import PoolRecorder
from .taps import Method


def record_tables(tables: Tables, recorder: PoolRecorder) -> None:
    """Tell ``recorder`` what ``tables`` hold from now on, until it is closed."""
    taps = recorder.taps
    if isinstance(tables, BareTables):
        taps.leave_allocations()  # they are told of here
        bare = _BareTaps(tables, recorder)
        taps.tap(tables, "extend", bare.extend)
        taps.tap(tables, "free", bare.free)
        return

    def labelled(inner: Method) -> Method:
        def named(request: int, *rest: Any) -> Any:
            taps.label = request
            return inner(request, *rest)

        return named

    for name in ("recall", "extend"):
        taps.tap(tables, name, labelled)


class _BareTaps:
    """What bare lists are given and give back; ``known`` has the number of each request and the blocks told of it."""

    def __init__(self, tables: BareTables, recorder: PoolRecorder) -> None:
        self.tables, self.note, self.taps = tables, recorder.note, recorder.taps
        self.known: dict[int, list[int]] = {}

    def extend(self, inner: Method) -> Method:
        """Blocks that are new in a list go into its table."""
        clock, note, known, lists = self.taps.clock, self.note, self.known, self.tables.lists

        def extend(request: int, tokens: int) -> int:
            began = clock()
            held: int = inner(request, tokens)
            told = known.get(request) or self._started(request)
            number, had = told
            told[1] = held
            note(Kind.PUT, number, tokens, had, lists[request][had:], began)
            return held

        return extend

    def free(self, inner: Method) -> Method:
        """Its table ends."""
        clock, note, known = self.taps.clock, self.note, self.known

        def free(request: int) -> None:
            began = clock()
            inner(request)
            if request in known:
                note(Kind.END, known.pop(request)[0], -1, start=began)

        return free

    def _started(self, request: int) -> list[int]:
        number = self.taps.new_number()
        self.note(Kind.START, number, request)
        told = self.known[request] = [number, 0]
        return told
