"""CommittedRows: which rows have physical memory, and which to commit next so that more blocks can live.

Integers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

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

    @property
    def marks(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """uint8 [rows]: 1 for a committed row."""
        return np.frombuffer(self._marks, np.uint8)

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
        return self._marks.find(0, self.rows.first(block), self.rows.last(block) + 1) < 0

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The runs of rows without memory, ascending, as (start, stop)."""
        start = self._marks.find(0, self._from)
        while start >= 0:
            stop = self._marks.find(1, start)
            stop = len(self._marks) if stop < 0 else stop
            yield start, stop
            start = self._marks.find(0, stop)

    def plan(self, need: int, limit: int) -> tuple[list[int], int]:
        """At most ``limit`` new rows, ascending, that let ``need`` more blocks live; and how many they let live.

        Each free block without memory is looked at once, from the lowest up, and is granted if the rows that it still
        misses are no more than are left. A block refused so stays out of reach, because every row chosen later takes
        from what is left at least what it takes from the block's need. With fewer than ``need`` the answer is what can
        be had. Nothing changes.
        """
        rows, chosen = self.rows, _Chosen(limit)
        block = 0  # the lowest that was not looked at
        for start, stop in self.gaps():
            if chosen.blocks >= need or (not chosen.left and start > chosen.last):
                break
            block = max(block, start * rows.chunk // rows.block_stride)
            inside = rows.ending_by(stop)  # the blocks before this one end in or before the gap
            self._grant_inside(block, inside, start, need, chosen)
            block = max(block, inside)
            if chosen.blocks < need and block < rows.blocks and rows.first(block) < stop:
                missing = [row for row in rows.of(block) if not self._marks[row] and row > chosen.last]
                if len(missing) <= chosen.left:
                    chosen.grant(1, missing)
                block += 1
        return chosen.rows, chosen.blocks

    def _grant_inside(self, block: int, stop: int, start: int, need: int, chosen: _Chosen) -> None:
        """Grant blocks from ``block`` to ``stop`` - 1, whose missing rows are all those from row ``start`` on.

        The first that does not fit ends it: those above it lie wholly in missing rows and need no fewer.
        """
        rows, begin = self.rows, max(start, chosen.last + 1)
        count = min(need - chosen.blocks, stop - block)
        if count > 0 and rows.last(block + count - 1) + 1 - begin > chosen.left:
            count = rows.ending_by(begin + chosen.left) - block
        if count > 0:
            chosen.grant(count, range(begin, rows.last(block + count - 1) + 1))


class _Chosen:
    """The rows that a plan has chosen so far, ascending, and the blocks that they let live."""

    __slots__ = ("blocks", "last", "left", "rows")

    def __init__(self, limit: int) -> None:
        self.rows: list[int] = []
        self.blocks, self.left, self.last = 0, limit, -1

    def grant(self, blocks: int, rows: Sequence[int]) -> None:
        """Let ``blocks`` more blocks live by choosing ``rows``, which lie above all chosen before."""
        self.rows.extend(rows)
        self.blocks += blocks
        self.left -= len(rows)
        self.last = self.rows[-1] if self.rows else -1
