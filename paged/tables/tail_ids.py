"""TailIds: the token ids that a batch has appended and that its sequences have not been told yet. Integers only.

Telling each sequence of one token a step would be a loop over all of them. Ids wait here in columns instead, at most a
block of them a sequence, and each is told when its block is full, or when something else is asked of it.
"""

from __future__ import annotations

import numpy as np

from ..prefix.chain_hash import Tokens
from .batched_table import Numbers

_NONE = -1


class TailIds:
    """Of each row of a BatchedTable: the ids of its tokens ``starts[row]`` to the last, in one block."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self.starts = np.full(0, _NONE, np.int64)
        self._ids = np.zeros((0, block_size), np.int32)

    def put(self, rows: Numbers, lengths: Numbers, ids: Tokens) -> None:
        """Rows of ``lengths`` tokens get one more each. Those at the start of a block must have been taken before."""
        self._make_room(int(rows.max(initial=-1)) + 1)
        starts = self.starts[rows]
        self.starts[rows] = np.where(starts == _NONE, lengths, starts)
        self._ids[rows, lengths % self._size] = ids

    def waits(self, row: int) -> bool:
        """Whether there are ids of this row."""
        return row < len(self.starts) and self.starts[row] != _NONE

    def waiting(self, rows: Numbers) -> Numbers:
        """Those of ``rows`` that have ids here."""
        self._make_room(int(rows.max(initial=-1)) + 1)
        found: Numbers = rows[self.starts[rows] != _NONE]
        return found

    def take(self, row: int, length: int) -> tuple[int, Tokens]:
        """The place of the first waiting token of a row of ``length`` tokens, and the ids from there on."""
        start = int(self.starts[row])
        self.starts[row] = _NONE
        first = start % self._size
        return start, self._ids[row, first : first + length - start].copy()

    def _make_room(self, rows: int) -> None:
        have = len(self.starts)
        if rows > have:
            more = max(rows, 2 * have) - have
            self.starts = np.concatenate((self.starts, np.full(more, _NONE, np.int64)))
            self._ids = np.concatenate((self._ids, np.zeros((more, self._size), np.int32)))
