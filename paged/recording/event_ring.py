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
_ROW = struct.Struct(f"{WIDTH}q")
ROW_BYTES = _ROW.size
pack_row = _ROW.pack_into
"""``pack_row(buffer, at, *columns)`` writes one event."""
_PACKED = 4096  # numbers that are packed in one go, as arguments of one call
_BATCH = 2048  # events whose ids wait in a list, which is faster to extend than an array


class EventRing:
    """Keeps at least the last ``capacity`` / 2 events and at most ``capacity``; ids are bounded to 16 an event.

    ``add`` keeps one. Who has many does the same without the call: ``pack_row`` writes the columns into ``waiting`` at
    ``filled``, which goes on by ``ROW_BYTES``; ``extend_ids`` takes the ids; and ``settle`` is called where ``filled``
    is ``batch``.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 2:
            raise ValueError(f"capacity must be at least 2 events, not {capacity}")
        self.capacity = capacity
        self.base = State()
        self.dropped = 0
        self.batch = min(_BATCH, capacity // 2) * ROW_BYTES
        self.waiting = bytearray(self.batch)
        self.filled = 0  # bytes of it
        self._waiting_ids: list[int] = []
        self.extend_ids = self._waiting_ids.extend
        self._rows, self._ids = array("q"), array("i")
        self._older: tuple[array[int], array[int]] | None = None
        self._most_rows = capacity // 2 * WIDTH
        self._most_ids = capacity // 2 * _IDS_AN_EVENT

    def __len__(self) -> int:
        numbers = len(self._rows) + (len(self._older[0]) if self._older else 0)
        return numbers // WIDTH + self.filled // ROW_BYTES

    def add(self, row: Sequence[int], ids: Sequence[int]) -> None:
        """Keep one event: its ``Columns`` and its ids."""
        if self.filled == self.batch:
            self.settle()
        pack_row(self.waiting, self.filled, *row)
        self.filled += ROW_BYTES
        self.extend_ids(ids)

    def settle(self) -> None:
        """Pack what waits; where a half is full then, it becomes the older one, and that is folded into the base."""
        self._rows.frombytes(memoryview(self.waiting)[: self.filled])
        _pack(self._ids, self._waiting_ids)
        self.filled = 0
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
