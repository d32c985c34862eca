"""History: the latest calls that changed what may be done at an address, so that a fault can name the one to blame."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..sizes import format_size

_CAPACITY = 4096
Entry = tuple[str, int, int]
"""(call, first address, size)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One call of the past; ``ago`` is how many calls of the history came after it."""

    call: str
    base: int
    size: int
    ago: int

    def __str__(self) -> str:
        when = "the latest change" if not self.ago else f"{self.ago} change{'s' * (self.ago > 1)} ago"
        return f"{self.call}({self.base:#x}, {format_size(self.size)}), {when}"


class History:
    """Keeps the last 4096 such calls. ``note`` takes an Entry and is as cheap as a list's append."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=_CAPACITY)
        self.note = self._entries.append

    @property
    def is_full(self) -> bool:
        """Whether older calls may have been forgotten."""
        return len(self._entries) == _CAPACITY

    def latest(self, address: int, *calls: str) -> Change | None:
        """The last call on ``address``, if it is one of ``calls``."""
        for ago, (call, base, size) in enumerate(reversed(list(self._entries))):
            if base <= address < base + size:
                return Change(call, base, size, ago) if call in calls else None
        return None
