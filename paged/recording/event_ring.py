"""EventRing: the latest events in bounded memory, and what the earlier ones led to.

Events are numbers in two flat arrays, for the collector of Python's garbage has nothing to look at there. The ring has
two halves: when one is full the older is folded into ``base``, the state from which the events that are kept go on. So
a recording of any length can be replayed from its first kept event, and a fold costs each event once.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from .kinds import WIDTH
from .state import State

_IDS_AN_EVENT = 16
pack_row = struct.Struct(f"{WIDTH}q").pack
"""The bytes of the columns of one event."""
_PACKED = 4096  # numbers that are packed in one go, as arguments of one call
_BATCH = 2048  # events whose ids wait in a list, which is faster to extend than an array


class EventRing:
    """Keeps at least the last ``capacity`` / 2 events and at most ``capacity``; ids are bounded to 16 an event.

    ``add`` keeps one. Who has many gives ``add_row`` what ``pack_row`` makes of their columns, extends by
    ``extend_ids``, and calls ``settle`` whenever ``waiting`` has ``batch`` numbers.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 2:
            raise ValueError(f"capacity must be at least 2 events, not {capacity}")
        self.capacity = capacity
        self.base = State()
        self.dropped = 0
        self.waiting = array("q")
        self.batch = min(_BATCH, capacity // 2) * WIDTH
        self._waiting_ids: list[int] = []
        self.add_row, self.extend_ids = self.waiting.frombytes, self._waiting_ids.extend
        self._rows, self._ids = array("q"), array("i")
        self._older: tuple[array[int], array[int]] | None = None
        self._most_rows = capacity // 2 * WIDTH
        self._most_ids = capacity // 2 * _IDS_AN_EVENT

    def __len__(self) -> int:
        numbers = len(self.waiting) + len(self._rows) + (len(self._older[0]) if self._older else 0)
        return numbers // WIDTH

    def add(self, row: Sequence[int], ids: Sequence[int]) -> None:
        """Keep one event: its ``Columns`` and its ids."""
        self.add_row(pack_row(*row))
        self.extend_ids(ids)
        if len(self.waiting) >= self.batch:
            self.settle()

    def settle(self) -> None:
        """Pack what waits; where a half is full then, it becomes the older one, and that is folded into the base."""
        self._rows.extend(self.waiting)
        _pack(self._ids, self._waiting_ids)
        del self.waiting[:]
        self._waiting_ids.clear()
        if len(self._rows) >= self._most_rows or len(self._ids) >= self._most_ids:
            self._turn()

    def events(self) -> tuple[array[int], array[int]]:
        """Everything that is kept, the oldest first; copies."""
        self.settle()
        older_rows, older_ids = self._older or (array("q"), array("i"))
        return older_rows + self._rows, older_ids + self._ids

    def _turn(self) -> None:
        if self._older:
            self.base.apply_all(*self._older)
            self.dropped += len(self._older[0]) // WIDTH
        self._older = self._rows, self._ids
        self._rows, self._ids = array("q"), array("i")


def _pack(packed: array[int], numbers: list[int]) -> None:
    """Extend an array by many numbers. The struct module takes less than half the time of the array's own way."""
    for start in range(0, len(numbers), _PACKED):
        part = numbers[start : start + _PACKED]
        packed.frombytes(struct.pack(f"{len(part)}{packed.typecode}", *part))
