"""Free spans of a file without an end: first fit, so that spans taken in order lie in order."""

from __future__ import annotations

import bisect


class FreeSpans:
    """Which parts of an endless file are free. A hole that is too small costs addresses of the file, not memory."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._end = 0

    def take(self, size: int) -> int:
        """The first free span of ``size`` bytes, or the end of the file."""
        for index, start in enumerate(self._starts):
            found = self._sizes[start]
            if found >= size:
                del self._sizes[start]
                if found == size:
                    del self._starts[index]
                else:
                    self._starts[index] = start + size
                    self._sizes[start + size] = found - size
                return start
        start = self._end
        self._end += size
        return start

    def give(self, start: int, size: int) -> None:
        """Make a span free again and join it with free neighbours."""
        index = bisect.bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == start + size:
            size += self._sizes.pop(self._starts.pop(index))
        before = self._starts[index - 1] if index else -1
        if index and before + self._sizes[before] == start:
            self._sizes[before] += size
            start, size = before, self._sizes[before]
        else:
            self._starts.insert(index, start)
            self._sizes[start] = size
        if start + size == self._end:
            self._end = start
            self._sizes.pop(self._starts.pop())
