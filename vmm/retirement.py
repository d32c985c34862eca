"""Retirement: memory that was given up while work may still use it. It is unmapped when that work is done.

A decommit never waits: it leaves its mappings here with a fence, and goes on. ``collect`` looks which fences are open
and unmaps what is behind them; only a lack of memory, a close, or the caller's own wish waits. One per device.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .address_range import Mapping
    from .fence import Fence


class Owner(Protocol):
    """Whose mappings retire: it can unmap them and return their memory, all or none."""

    def unmap(self, mappings: list[Mapping]) -> None: ...


class Leaving:
    """Mappings of ``owner``, by chunk, that go when ``fence`` opens."""

    __slots__ = ("fence", "mappings", "owner")

    def __init__(self, owner: Owner, mappings: dict[int, Mapping], fence: Fence) -> None:
        self.owner, self.mappings, self.fence = owner, mappings, fence


@dataclass(frozen=True, slots=True)
class Kept:
    """A mapping that was taken back before it went, and where it was."""

    chunk: int
    mapping: Mapping
    entry: Leaving


class Retirement:
    """What leaves a device, the oldest first. May be used by several threads; holds no range alive but by its maps."""

    def __init__(self) -> None:
        self._entries: deque[Leaving] = deque()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, owner: Owner, mappings: dict[int, Mapping], fence: Fence) -> None:
        """Let mappings go when ``fence`` opens; the fence is closed then."""
        with self._lock:
            self._entries.append(Leaving(owner, mappings, fence))

    def collect(self, owner: Owner | None = None, *, wait: bool = False) -> int:
        """Unmap what no work uses any more, of ``owner`` or of all; with ``wait``, wait until that is everything.

        Returns the bytes given back. Raises DriverError when an unmap is refused: what was to go then stays here.
        """
        freed = 0
        with self._lock:
            entries = list(self._entries) if owner is None else self._of(owner)
        for entry in entries:
            if wait:
                entry.fence.wait()
            with self._lock:
                if wait or entry.fence.done:
                    freed += self._finish(entry)
        return freed

    def collect_oldest(self) -> int:
        """Wait for the oldest that holds memory and unmap it; the bytes given back, 0 when nothing is left to wait for.

        Raises DriverError for a fault in the work, and when the unmap is refused.
        """
        while self._entries:
            with contextlib.suppress(IndexError):  # another thread was faster
                entry = self._entries[0]
                entry.fence.wait()
                with self._lock:
                    freed = self._finish(entry)
                if freed:
                    return freed
        return 0

    def take_back(self, owner: Owner, chunks: Iterable[int]) -> list[Kept]:
        """Those ``chunks`` of ``owner`` that retire; they stay mapped, and are the caller's until it puts them back."""
        wanted = set(chunks)
        with self._lock:
            return [
                Kept(chunk, entry.mappings.pop(chunk), entry)
                for entry in self._of(owner)
                for chunk in sorted(wanted & entry.mappings.keys())
            ]

    def put_back(self, kept: Iterable[Kept]) -> None:
        """Undo ``take_back``: they go when the same work is done."""
        with self._lock:
            for one in kept:
                one.entry.mappings[one.chunk] = one.mapping
                if one.entry not in self._entries:  # its fence opened meanwhile
                    self._entries.append(one.entry)

    def forget(self, owner: Owner) -> None:
        """Drop what ``owner``, which has waited, unmaps itself."""
        with self._lock:
            for entry in self._of(owner):
                self._entries.remove(entry)
                entry.fence.close()

    def _of(self, owner: Owner) -> list[Leaving]:
        return [entry for entry in self._entries if entry.owner is owner]

    def _finish(self, entry: Leaving) -> int:
        """Unmap what lies behind an open fence, unless another thread did."""
        if entry not in self._entries:
            return 0
        mappings = [entry.mappings[chunk] for chunk in sorted(entry.mappings)]
        entry.owner.unmap(mappings)
        self._entries.remove(entry)
        entry.fence.close()
        return sum(mapping.size for mapping in mappings)
