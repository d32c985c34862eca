"""Free spans of an address space, as integers: best fit, and neighbours merge as they come back."""

from __future__ import annotations

import bisect
from collections.abc import Iterator


class FreeSpans:
    """The free parts of ``[0, size)``. Knows no driver; offsets and lengths are whatever unit the caller counts in."""

    def __init__(self, size: int) -> None:
        self._length_at: dict[int, int] = {}  # start -> length
        self._start_before: dict[int, int] = {}  # stop -> start
        self._by_length: list[tuple[int, int]] = []  # (length, start), ascending: best fit is one bisection
        self.free = 0
        self._insert(0, size)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(start, length) in the order of addresses."""
        return iter(sorted(self._length_at.items()))

    @property
    def largest(self) -> int:
        """The largest length that ``take`` can give; 0 when nothing is free."""
        return self._by_length[-1][0] if self._by_length else 0

    def take(self, length: int) -> int | None:
        """Cut ``length`` from the smallest span that has it, the lowest among equals; None when no span has it."""
        index = bisect.bisect_left(self._by_length, (length, 0))
        if index == len(self._by_length):
            return None
        found, start = self._by_length[index]
        self._remove(start)
        if found > length:
            self._insert(start + length, found - length)
        return start

    def give(self, start: int, length: int) -> None:
        """Free a span that ``take`` gave, merging it with free neighbours on both sides."""
        before = self._start_before.get(start)
        after = self._length_at.get(start + length)
        if after is not None:
            self._remove(start + length)
            length += after
        if before is not None:
            self._remove(before)
            start, length = before, length + start - before
        self._insert(start, length)

    def _insert(self, start: int, length: int) -> None:
        self._length_at[start] = length
        self._start_before[start + length] = start
        bisect.insort(self._by_length, (length, start))
        self.free += length

    def _remove(self, start: int) -> None:
        length = self._length_at.pop(start)
        del self._start_before[start + length]
        del self._by_length[bisect.bisect_left(self._by_length, (length, start))]
        self.free -= length
