"""Arena: the memory of a heap whose use is ordered by one stream. Integers only.

What was freed in a stream's order may be had again by that stream at once: its next work runs after the old. Anybody
else must wait. So a heap has one arena for each stream, and a chunk belongs to one arena at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from .spans import FreeSpans


class Arena(FreeSpans):
    """The free bytes in ``chunks`` of ``chunk_size`` bytes. ``stream`` is a handle; None where no stream is known.

    ``key`` is the same for the arenas of one stream. ``clock`` counts what was freed; what was freed at or before
    ``settled`` is used by no work any more.
    """

    def __init__(self, key: object, stream: int | None, chunk_size: int, *, boundary: int = 1) -> None:
        super().__init__(boundary=boundary)
        self.key, self.stream, self.chunk_size = key, stream, chunk_size
        self.chunks: set[int] = set()
        self.clock = self.settled = 0

    def whole(self, start: int, length: int) -> tuple[int, int]:
        """The chunks (first, stop) that lie wholly in a span; first >= stop where none does."""
        return -(-start // self.chunk_size), (start + length) // self.chunk_size

    def empty_runs(self, most: int = sys.maxsize, *, settled: bool = False) -> list[EmptyRun]:
        """Up to ``most`` chunks that hold no block, those of the smallest spans first.

        With ``settled``, only those that no work uses any more.
        """
        found: list[EmptyRun] = []
        if most <= 0 or self.largest < self.chunk_size:
            return found
        for start, length, stamp in self.at_least(self.chunk_size):
            first, stop = self.whole(start, length)
            if first < stop and (stamp <= self.settled or not settled):
                first = max(first, stop - most)
                most -= stop - first
                found.append(EmptyRun(self, start, first, stop, stamp))
                if most <= 0:
                    break
        return found

    def runs_in(self, start: int, length: int) -> list[EmptyRun]:
        """The chunks that lie wholly in one free span."""
        first, stop = self.whole(start, length)
        return [EmptyRun(self, start, first, stop, self.stamp_of(start))] if first < stop else []

    def add(self, first: int, stop: int, stamp: int = 0, *, taken: int = 0) -> None:
        """Have the chunks from ``first`` to ``stop`` too, all free but the first ``taken`` bytes."""
        self.chunks.update(range(first, stop))
        start, end = first * self.chunk_size + taken, stop * self.chunk_size
        if start < end:
            self.give(start, end - start, stamp)

    def give_around(self, start: int, stop: int, first: int, last: int) -> None:
        """Free what was taken from ``start`` to ``stop`` but for ``first`` to ``last``."""
        for begin, end in ((start, first), (last, stop)):
            if begin < end:
                self.give(begin, end - begin, self.clock)

    def rebuild(self, taken: Iterable[tuple[int, int]]) -> None:
        """Let everything in the chunks be free but ``taken``, (start, length) in any order; nothing is settled."""
        spans: list[tuple[int, int]] = []
        held = sorted(taken)
        index = 0
        for first, stop in runs_of(self.chunks):
            at = first * self.chunk_size
            end = stop * self.chunk_size
            while index < len(held) and held[index][0] < end:
                start, length = held[index]
                if at < start:
                    spans.append((at, start - at))
                at = start + length
                index += 1
            if at < end:
                spans.append((at, end - at))
        self.reset(spans, self.clock)


class EmptyRun:
    """Chunks ``first`` to ``stop`` of an arena that hold no block, in its free span that begins at ``span``."""

    __slots__ = ("arena", "first", "span", "stamp", "stop")

    def __init__(self, arena: Arena, span: int, first: int, stop: int, stamp: int) -> None:
        self.arena, self.span, self.first, self.stop, self.stamp = arena, span, first, stop, stamp

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def settled(self) -> bool:
        """Whether no work uses them any more."""
        return self.stamp <= self.arena.settled

    def leave(self) -> None:
        """Take them out of the arena."""
        size = self.arena.chunk_size
        self.arena.cut(self.span, self.first * size, len(self) * size)
        self.arena.chunks.difference_update(range(self.first, self.stop))

    def come_back(self) -> None:
        """Undo ``leave``."""
        self.arena.add(self.first, self.stop, self.stamp)


def runs_of(chunks: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as (first, stop) of adjacent ones, ascending."""
    found: list[tuple[int, int]] = []
    for chunk in sorted(chunks):
        if found and found[-1][1] == chunk:
            found[-1] = (found[-1][0], chunk + 1)
        else:
            found.append((chunk, chunk + 1))
    return found
