"""SingleRooms: Rooms for the common case that a block is a row, as 16 tokens of an 8B model are one chunk of 2 MiB.

A row has room when it is empty, and no row is fuller than another, so that a stack is all there is. Integers only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from .block_counts import BlockCounts
from .block_ids import Ids
from .committed_rows import CommittedRows
from .rows import Rows

_FEW = 32  # blocks that are faster as a list


class SingleRooms(Collection[int]):
    """The committed rows that are empty, as a collection and in the order of their use: the same as ``Rooms`` offers.

    ``counts`` says how many hold each block. A row that leaves from the middle of the stack stays there as ``gone``.
    """

    def __init__(self, rows: Rows, counts: BlockCounts, committed: CommittedRows) -> None:
        self.rows = rows
        self._counts, self._committed = counts, committed
        self.available = 0  # how many blocks can be taken
        self._stack = np.zeros(rows.count, np.int64)
        self._place: memoryview[int] = memoryview(self._stack.data)  # the same, for one at a time
        self._height = 0
        self._gone = np.zeros(rows.count, np.bool_)  # available + what has gone = height

    def __len__(self) -> int:
        return self.available

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and not self._counts.one[row] and row in self._committed

    def __iter__(self) -> Iterator[int]:
        stack = self._stack[: self._height]
        return iter(stack[~self._gone[stack]].tolist())

    @property
    def empty(self) -> Collection[int]:
        """The committed rows in which nothing is live."""
        return self

    def fill(self, row: int) -> int:
        """Live blocks in a row."""
        return int(self._counts.one[row] > 0)

    def room(self, row: int) -> list[int]:
        """The blocks of a row that can be taken."""
        return [row] if row in self else []

    def listed(self) -> list[int]:
        """The blocks that can be taken, ascending; one that stood twice would be here twice."""
        return sorted(self)

    def take(self, blocks: int) -> list[int] | Ids:
        """Take ``blocks`` of the available blocks, the last that came first: a few as a list, many as an array."""
        all_there = self.available == self._height
        self.available -= blocks
        if all_there and blocks <= _FEW:
            self._height -= blocks
            return self._place[self._height : self._height + blocks].tolist()[::-1]
        if all_there:
            return self._pop(blocks)
        parts: list[Ids] = []
        while blocks:
            parts.append(self._strike(self._pop(blocks)))
            blocks -= len(parts[-1])
        return np.concatenate(parts) if parts else self._pop(0)

    def take_one(self) -> int:
        """As ``take`` of one."""
        if self.available < self._height:
            return int(self.take(1)[0])
        self.available -= 1
        self._height -= 1
        return self._place[self._height]

    def put(self, dead: Ids) -> list[int]:
        """Put blocks that came free back; return the rows that came empty."""
        self._push(dead)
        emptied: list[int] = dead.tolist()
        return emptied

    def put_few(self, dead: list[int]) -> list[int]:
        """As ``put``, for a few blocks in a list."""
        if self.available < self._height:
            return self.put(np.array(dead))
        for height, block in enumerate(reversed(dead), self._height):
            self._place[height] = block
        self._height += len(dead)
        self.available += len(dead)
        return list(dead)

    def put_one(self, block: int) -> list[int]:
        """As ``put`` of one."""
        if self.available < self._height:
            return self.put(np.array([block]))
        self._place[self._height] = block
        self.available += 1
        self._height += 1
        return [block]

    def remove(self, block: int) -> None:
        """Take one available block by its id."""
        self.available -= 1
        if self._place[self._height - 1] == block:
            self._height -= 1
        else:
            self._gone[block] = True

    def open(self, rows: list[int], committed: CommittedRows) -> None:  # noqa: ARG002  the same as Rooms
        """Rows, ascending, have got memory. The lowest is the first to be used."""
        self._push(np.array(rows, np.int64))

    def shut(self, row: int, committed: CommittedRows) -> None:  # noqa: ARG002  the same as Rooms
        """An empty row is about to lose its memory."""
        self.remove(row)

    # -- steps --------------------------------------------------------------------------------------------------

    def _pop(self, rows: int) -> Ids:
        """The uppermost rows of the stack, some of which may have gone."""
        start = max(0, self._height - rows)
        found = self._stack[start : self._height][::-1].copy()
        self._height = start
        return found

    def _strike(self, rows: Ids) -> Ids:
        """Those of rows off the stack that have not gone."""
        gone = self._gone[rows]
        self._gone[rows] = False
        return rows[~gone]

    def _push(self, rows: Ids) -> None:
        """Put rows on the stack, the first uppermost; one that had gone is on it still."""
        start, fresh = self._height, rows
        if self.available < start:
            gone = self._gone[rows]
            self._gone[rows] = False
            fresh = rows[~gone]
        self.available += len(rows)
        self._height = start + len(fresh)
        self._stack[start : self._height] = fresh[::-1]
