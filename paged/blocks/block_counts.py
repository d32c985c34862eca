"""BlockCounts: how many hold each block. Bulk changes are steps of NumPy; each is all or nothing. Integers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmm import StateError

from .block_ids import Ids


class BlockCounts:
    """A count for each of ``blocks`` blocks: ``numbers`` int32 [blocks], and ``one``, the same for one at a time.

    Python reads and writes a number through a memoryview in half the time that it takes through an array.
    """

    __slots__ = ("_place", "_places", "numbers", "one")

    def __init__(self, blocks: int) -> None:
        self.numbers: np.ndarray[Any, np.dtype[np.int32]] = np.zeros(blocks, np.int32)
        self.one: memoryview[int] = memoryview(self.numbers.data)
        self._place = np.zeros(blocks, np.int64)  # scratch of are_distinct
        self._places = np.arange(blocks)

    def are_distinct(self, ids: Ids) -> bool:
        """Whether no block stands twice: each is written its place, which then must still be there."""
        if len(ids) > len(self._places):
            return False
        places = self._places[: len(ids)]
        self._place[ids] = places
        return int(np.count_nonzero(self._place[ids] == places)) == len(ids)

    def add(self, ids: Ids) -> None:
        """One more holder each. Raises StateError, naming it, for a block that is free."""
        held = self.numbers[ids]
        if np.count_nonzero(held) < len(ids):
            raise StateError(f"block {ids[held == 0][0]} is free and cannot be shared; allocate it first")
        if self.are_distinct(ids):
            self.numbers[ids] = held + 1
        else:
            np.add.at(self.numbers, ids, 1)

    def drop(self, ids: Ids) -> Ids:
        """One holder less each; return the blocks that came free.

        Raises StateError, naming it, for a block that is given up more often than it is held.
        """
        if not self.are_distinct(ids):
            return self._drop_repeated(ids)
        left = self.numbers[ids] - 1
        if not np.count_nonzero(left):
            self.numbers[ids] = 0
            return ids
        if left.min() < 0:
            raise _freed_too_often(int(ids[left < 0][0]))
        self.numbers[ids] = left
        free: Ids = ids[left == 0]
        return free

    def drop_few(self, blocks: list[int]) -> bool:
        """As ``drop``, without NumPy, if each block is an int, held once, and stands once; else nothing changes."""
        one, count = self.one, len(self.one)
        for done, block in enumerate(blocks):
            if type(block) is not int or not 0 <= block < count or one[block] != 1:
                for again in blocks[:done]:
                    one[again] = 1
                return False
            one[block] = 0
        return True

    def _drop_repeated(self, ids: Ids) -> Ids:
        blocks, places, times = np.unique(ids, return_index=True, return_counts=True)
        left = self.numbers[blocks] - times
        if left.min() < 0:
            first = places[left < 0].min()  # the first in the caller's order
            raise _freed_too_often(int(ids[first]))
        self.numbers[blocks] = left
        free: Ids = blocks[left == 0]
        return free


def _freed_too_often(block: int) -> StateError:
    return StateError(f"block {block} is freed more often than it is held; nothing was freed")
