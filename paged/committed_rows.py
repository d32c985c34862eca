"""CommittedRows: which rows have physical memory, and which to commit next so that more blocks can live.

Integers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .rows import Rows


class CommittedRows:
    """A mark a row. The marks are a bytearray, so that runs of equal marks are found at memory speed."""

    __slots__ = ("_from", "_marks", "count", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.count = 0
        self._marks = bytearray(rows.count)
        self._from = 0  # every row below this one is committed

    def __contains__(self, row: int) -> bool:
        return bool(self._marks[row])

    def __iter__(self) -> Iterator[int]:
        """The committed rows, ascending."""
        return (row for row, mark in enumerate(self._marks) if mark)

    def add(self, rows: Iterable[int]) -> None:
        """Mark rows as committed."""
        for row in rows:
            assert not self._marks[row], f"row {row} is committed already"
            self._marks[row] = 1
            self.count += 1
        lowest = self._marks.find(0, self._from)
        self._from = len(self._marks) if lowest < 0 else lowest

    def remove(self, rows: Iterable[int]) -> None:
        """Take the mark away."""
        for row in rows:
            assert self._marks[row], f"row {row} is not committed"
            self._marks[row] = 0
            self.count -= 1
            self._from = min(self._from, row)

    def holds(self, block: int) -> bool:
        """Whether every row that a block lies in is committed."""
        return self._all(self.rows.first(block), self.rows.last(block) + 1)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The runs of rows without memory, ascending, as (start, stop)."""
        start = self._marks.find(0, self._from)
        while start >= 0:
            stop = self._marks.find(1, start)
            stop = len(self._marks) if stop < 0 else stop
            yield start, stop
            start = self._marks.find(0, stop)

    def plan(self, need: int, limit: int) -> tuple[list[int], int]:
        """The lowest rows, at most ``limit``, that let ``need`` more blocks live, and how many they let live.

        With fewer than ``need`` the answer is the most that going from the lowest gap up can give. Nothing changes.
        """
        chosen: list[int] = []
        gained = 0
        for start, stop in self.gaps():
            if gained >= need or len(chosen) >= limit:
                break
            gained += self._fill(start, stop, need - gained, limit, chosen)
        return chosen, gained

    def _fill(self, start: int, stop: int, need: int, limit: int, chosen: list[int]) -> int:
        """Choose rows of one gap from its low end up, then its top block; return the blocks that can then live."""
        rows = self.rows
        first = self._lowest_block(start, chosen)
        begin = max(start, rows.first(first)) if first < rows.blocks else stop
        end = self._end_block(stop)
        left = limit - len(chosen)
        count = min(need, end - first)
        if count > 0 and min(stop, rows.last(first + count - 1) + 1) - begin > left:
            count = rows.ending_by(begin + left) - first
        count = max(count, 0)
        if count:
            chosen.extend(range(begin, min(stop, rows.last(first + count - 1) + 1)))
        if count < min(need, end - first):
            count += self._fill_top(start, stop, end - 1, limit, chosen)
        return count

    def _lowest_block(self, start: int, chosen: list[int]) -> int:
        """The lowest block that ends in or after row ``start`` and whose rows below ``start`` are there or chosen."""
        block = start * self.rows.chunk // self.rows.block_stride
        below = range(self.rows.first(block), start)
        return block if all(self._marks[row] or row in chosen[-len(below) :] for row in below) else block + 1

    def _end_block(self, stop: int) -> int:
        """The block after the highest one that filling a gap up to ``stop`` lets live."""
        end = self.rows.ending_by(stop)
        if end < self.rows.blocks and self.rows.first(end) < stop and self._all(stop, self.rows.last(end) + 1):
            return end + 1  # it reaches into committed rows above the gap
        return end

    def _fill_top(self, start: int, stop: int, block: int, limit: int, chosen: list[int]) -> int:
        """Choose the rows of the top block of a gap if they are few enough; 1 if so."""
        rows = range(self.rows.first(block), stop)
        if rows.start < start or len(rows) > limit - len(chosen) or self.rows.last(block) < stop:
            return 0
        chosen.extend(rows)
        return 1

    def _all(self, start: int, stop: int) -> bool:
        """Whether every row from ``start`` to ``stop`` is committed."""
        return self._marks.find(0, start, stop) < 0
