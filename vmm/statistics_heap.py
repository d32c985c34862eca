"""StatisticsHeap: what goes through a heap, counted."""

from __future__ import annotations

from dataclasses import dataclass

from .allocator import Allocator
from .block import Block
from .heap_wrapper import HeapWrapper
from .sizes import format_size


@dataclass(frozen=True, slots=True)
class HeapStatistics:
    """Bytes and numbers of blocks: in use now (``current``, ``count``), at most at one time, and of all ever made.

    Bytes are rounded as the heap rounds them; ``requested`` are those that the blocks in use were asked for.
    ``committed`` is physical memory, ``trimmable`` the part of it that lies in chunks without a block.
    """

    current: int
    peak: int
    total: int
    count: int
    peak_count: int
    total_count: int
    requested: int
    committed: int
    trimmable: int

    @property
    def fragmentation(self) -> float:
        """The share of the memory that ``trim`` could not give back which lies in no block: 0 is none."""
        stuck = self.committed - self.trimmable
        return max(0.0, 1 - self.current / stuck) if stuck else 0.0

    def __str__(self) -> str:
        return (
            f"{self.count} blocks, {format_size(self.current)} (at most {self.peak_count}, {format_size(self.peak)}; "
            f"in all {self.total_count}, {format_size(self.total)}) in {format_size(self.committed)}, "
            f"{self.fragmentation:.1%} fragmented"
        )


class StatisticsHeap(HeapWrapper):
    """Counts the blocks of a heap that were allocated through here; use it in the heap's place."""

    def __init__(self, heap: Allocator) -> None:
        super().__init__(heap)
        self._current = self._peak = self._total = self._requested = 0
        self._count = self._peak_count = self._total_count = 0

    @property
    def statistics(self) -> HeapStatistics:
        """The numbers as they are now."""
        return HeapStatistics(
            current=self._current,
            peak=self._peak,
            total=self._total,
            count=self._count,
            peak_count=self._peak_count,
            total_count=self._total_count,
            requested=self._requested,
            committed=self.committed,
            trimmable=self.trimmable,
        )

    def reset_peak(self) -> None:
        """Let the peaks be what is in use now."""
        self._peak, self._peak_count = self._current, self._count

    def took(self, block: Block) -> None:
        """Count a block."""
        self._current += block.size
        self._requested += block.requested
        self._count += 1
        self._total += block.size
        self._total_count += 1
        self._peak = max(self._peak, self._current)
        self._peak_count = max(self._peak_count, self._count)

    def gave(self, block: Block) -> None:
        """Count a block no more."""
        self._current -= block.size
        self._requested -= block.requested
        self._count -= 1

    def gave_all(self) -> None:
        """Nothing is in use; what was is still told."""
        self._current = self._requested = self._count = 0
