"""Free spans of an address space, as integers: best fit, and neighbours merge as they come back."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

_SHIFT = 64
_START = (1 << _SHIFT) - 1


class FreeSpans:
    """Spans that are free. Knows no driver; starts and lengths are whatever unit the caller counts in.

    Each span has a stamp, a number that the caller chose as it gave the span; where spans merge, the greater one stays.
    ``take`` and ``give`` search by bisection, and move at most 8 bytes a free span in one list; 10,000 spans cost no
    more than a hundred. An exception in the middle of a call (an interrupt) leaves the books wrong: ``reset`` them.
    """

    def __init__(self, size: int = 0, *, boundary: int = 1) -> None:
        self._at: dict[int, tuple[int, int]] = {}  # start -> length, stamp
        self._start_before: dict[int, int] = {}  # stop -> start
        self._by_length: list[int] = []  # length * 2**64 + start, ascending: best fit is one bisection
        self.free = 0
        self._boundary = boundary
        if size:
            self.give(0, size)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(start, length) in the order of addresses."""
        return iter(sorted((start, length) for start, (length, _stamp) in self._at.items()))

    def __len__(self) -> int:
        return len(self._by_length)

    @property
    def largest(self) -> int:
        """The largest length that ``take`` can give; 0 when nothing is free."""
        return self._by_length[-1] >> _SHIFT if self._by_length else 0

    def length_before(self, stop: int) -> int:
        """The length of the free span that ends at ``stop``; 0 where none does."""
        return stop - self._start_before.get(stop, stop)

    def length_from(self, start: int) -> int:
        """The length of the free span that begins at ``start``; 0 where none does."""
        return self._at.get(start, (0, 0))[0]

    def at_least(self, length: int) -> Iterator[tuple[int, int, int]]:
        """(start, length, stamp) of the spans of at least ``length``, the smallest first. Change nothing meanwhile."""
        for index in range(bisect_left(self._by_length, length << _SHIFT), len(self._by_length)):
            start = self._by_length[index] & _START
            yield start, *self._at[start]

    def stamp_of(self, start: int) -> int:
        """The stamp of the free span that begins at ``start``."""
        return self._at[start][1]

    def take(self, length: int) -> int | None:
        """Cut ``length`` from the smallest span that has it, the lowest among equals; None when no span has it.

        It begins at a multiple of ``boundary`` where the span has room for that and no more than a quarter of
        ``length`` stays free before it: a margin that somebody left there is kept. Else at the span's start.
        """
        ordered = self._by_length
        index = bisect_left(ordered, length << _SHIFT)
        if index == len(ordered):
            return None
        start = ordered.pop(index) & _START
        found, stamp = self._at.pop(start)
        lead = -start % self._boundary
        if lead and lead <= found - length and 4 * lead <= length:
            self._at[start] = lead, stamp
            self._start_before[start + lead] = start
            insort(ordered, lead << _SHIFT | start)
            start += lead
            found -= lead
        stop = start + length
        self.free -= length
        if found > length:
            found -= length
            self._at[stop] = found, stamp
            self._start_before[stop + found] = stop
            insort(ordered, found << _SHIFT | stop)
        else:
            del self._start_before[stop]
        return start

    def give(self, start: int, length: int, stamp: int = 0) -> tuple[int, int]:
        """Free a span, merging it with free neighbours on both sides; the (start, length) that it is part of now."""
        ordered, stop = self._by_length, start + length
        self.free += length
        after = self._at.pop(stop, None)
        if after is not None:
            size, other = after
            del ordered[bisect_left(ordered, size << _SHIFT | stop)]
            stop += size
            stamp = max(stamp, other)
        before = self._start_before.pop(start, None)
        if before is not None:
            size, other = self._at[before]
            del ordered[bisect_left(ordered, size << _SHIFT | before)]
            start = before
            stamp = max(stamp, other)
        length = stop - start
        self._at[start] = length, stamp
        self._start_before[stop] = start
        insort(ordered, length << _SHIFT | start)
        return start, length

    def cut(self, span: int, start: int, length: int) -> None:
        """Take ``length`` at ``start`` out of the free span that begins at ``span`` and has them."""
        found, stamp = self._at.pop(span)
        stop, end = start + length, span + found
        assert span <= start and stop <= end, f"{start} to {stop} is not in the free span {span} to {end}"
        del self._start_before[end]
        del self._by_length[bisect_left(self._by_length, found << _SHIFT | span)]
        self.free -= found
        for first, last in ((span, start), (stop, end)):
            if first < last:
                self.give(first, last - first, stamp)

    def reset(self, spans: list[tuple[int, int]], stamp: int = 0) -> None:
        """Let exactly these (start, length) be free."""
        for books in (self._at, self._start_before, self._by_length):
            books.clear()
        self.free = 0
        for start, length in spans:
            self.give(start, length, stamp)
