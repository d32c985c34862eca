"""Rows: which rows a block lies in and which blocks a row holds. Integers only.

A plane is cut into chunks of physical memory; row i is chunk i of every plane and the unit of commit. Blocks lie one
after the other in a plane, ``block_stride`` bytes each, so a block may lie inside one row, straddle two, or span many.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rows:
    """``blocks`` blocks of ``block_stride`` bytes over rows of ``chunk`` bytes (both a plane).

    Raises ValueError for a number that is not positive.

        >>> rows = Rows(blocks=6, block_stride=3, chunk=4)  # bytes, far smaller than real ones
        >>> rows.count, [list(rows.of(block)) for block in range(6)]
        (5, [[0], [0, 1], [1, 2], [2], [3], [3, 4]])
        >>> list(rows.touching(1))
        [1, 2]
    """

    blocks: int
    block_stride: int
    chunk: int

    def __post_init__(self) -> None:
        for name in ("blocks", "block_stride", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def count(self) -> int:
        """Rows that all blocks together touch."""
        return -(-self.blocks * self.block_stride // self.chunk)

    @property
    def straddles(self) -> bool:
        """Whether some block lies in more than one row."""
        return self.chunk % self.block_stride != 0

    def first(self, block: int) -> int:
        """The row in which a block starts."""
        return block * self.block_stride // self.chunk

    def last(self, block: int) -> int:
        """The row in which a block ends."""
        return ((block + 1) * self.block_stride - 1) // self.chunk

    def of(self, block: int) -> range:
        """The rows that a block lies in; it keeps each of them committed while it is live."""
        return range(self.first(block), self.last(block) + 1)

    def touching(self, row: int) -> range:
        """The blocks that lie in ``row``, whole or in part."""
        start = row * self.chunk // self.block_stride
        return range(start, min(self.blocks, -(-(row + 1) * self.chunk // self.block_stride)))

    def ending_by(self, row: int) -> int:
        """How many blocks end before ``row`` starts: the most that rows 0 to ``row`` - 1 can hold."""
        return min(self.blocks, row * self.chunk // self.block_stride)

    def needed(self, blocks: int) -> int:
        """How many rows, from row 0 on, the first ``blocks`` blocks lie in."""
        return -(-blocks * self.block_stride // self.chunk)
