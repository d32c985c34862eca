"""RecordedTables: the block tables of a replay's policy, each under the number of its request.

Bare lists of blocks, with which a replay runs fastest, are no sequences of the pool; so it is told here what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..policies.tables import BareTables, Tables
from .kinds import Kind
from .pool_recorder import PoolRecorder


class RecordedTables(Tables):
    """``inner`` with everything told to ``recorder``."""

    def __init__(self, inner: Tables, recorder: PoolRecorder) -> None:
        self.inner, self.recorder = inner, recorder
        self._bare = isinstance(inner, BareTables)
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.inner)

    def recall(self, request: int) -> int:
        """As ``inner``."""
        self.recorder.taps.label = request
        return self.inner.recall(request)

    def blocks(self, request: int) -> int:
        """As ``inner``."""
        return self.inner.blocks(request)

    def held(self) -> Mapping[int, int]:
        """As ``inner``."""
        return self.inner.held()

    def extend(self, request: int, tokens: int) -> int:
        """As ``inner``; what a bare list was given is told here."""
        self.recorder.taps.label = request
        if not self._bare:
            return self.inner.extend(request, tokens)
        taps, note = self.recorder.taps, self.recorder.note
        number = self._numbers.get(request)
        had = 0 if number is None else self.inner.blocks(request)
        began = taps.clock()
        held = self.inner.extend(request, tokens)
        if number is None:
            number = self._numbers[request] = taps.new_number()
            note(Kind.START, number, request)
        note(Kind.PUT, number, tokens, had, taps.taken, began)
        return held

    def free(self, request: int) -> None:
        """As ``inner``."""
        number = self._numbers.pop(request, None)
        began = self.recorder.taps.clock()
        self.inner.free(request)
        if number is not None:
            self.recorder.note(Kind.END, number, -1, start=began)
