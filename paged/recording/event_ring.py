"""EventRing: the latest events in bounded memory, and what the earlier ones led to.

Events are numbers in two flat arrays, for the collector of Python's garbage has nothing to look at there. The ring has
two halves: when one is full the older is folded into ``base``, the state from which the events that are kept go on. So
a recording of any length can be replayed from its first kept event, and a fold costs each event once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .kinds import WIDTH
from .state import State

_IDS_AN_EVENT = 8


class EventRing:
    """Keeps at least the last ``capacity`` / 2 events and at most ``capacity``; ids are bounded to 8 an event."""

    def __init__(self, capacity: int) -> None:
        if capacity < 2:
            raise ValueError(f"capacity must be at least 2 events, not {capacity}")
        self.capacity = capacity
        self.base = State()
        self.dropped = 0
        self.rows, self.ids = array("q"), array("i")
        self._older: tuple[array[int], array[int]] | None = None
        self._most_rows = capacity // 2 * WIDTH
        self._most_ids = capacity // 2 * _IDS_AN_EVENT

    def __len__(self) -> int:
        return (len(self.rows) + (len(self._older[0]) if self._older else 0)) // WIDTH

    def add(self, row: Sequence[int], ids: Sequence[int]) -> None:
        """Keep one event: its ``Columns`` and its ids."""
        self.rows.extend(row)
        self.ids.extend(ids)
        if len(self.rows) >= self._most_rows or len(self.ids) >= self._most_ids:
            self._turn()

    def events(self) -> tuple[array[int], array[int]]:
        """Everything that is kept, the oldest first; copies."""
        older_rows, older_ids = self._older or (array("q"), array("i"))
        return older_rows + self.rows, older_ids + self.ids

    def _turn(self) -> None:
        """The younger half becomes the older one, which is folded into the base."""
        if self._older:
            self.base.apply_all(*self._older)
            self.dropped += len(self._older[0]) // WIDTH
        self._older = self.rows, self.ids
        self.rows, self.ids = array("q"), array("i")
