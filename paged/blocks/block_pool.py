"""BlockPool: block ids, reference counts, and the chunk-aware choice of the next block. Integers only.

A block can be given out when every row that it lies in is committed. The pool takes blocks from the fullest row that
has room, so that live blocks keep few rows alive, and asks for the lowest new rows when the committed ones are full.
It commits nothing itself: ``choose`` says which rows it needs, ``take`` changes the books once they are there, and
``free`` says which rows came empty.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vmm import OutOfMemoryError, RangeError, StateError

from ..shortage.block_books import block_shortage, row_shortage
from .block_counts import BlockCounts
from .block_ids import Ids, id_array, known
from .block_invariants import check_block_pool
from .committed_rows import CommittedRows
from .even_rooms import EvenRooms
from .rooms import Rooms
from .rows import Rows
from .single_rooms import SingleRooms

_FEW = 32  # blocks that are freed one by one faster than by NumPy


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``choose`` found: ``blocks`` more blocks can be taken once ``rows`` are committed."""

    blocks: int
    rows: tuple[int, ...]


class BlockPool:
    """The ids 0 to ``rows.blocks`` - 1; at most ``max_rows`` rows may be committed at a time (None: all).

    ``used`` counts the blocks that somebody holds, ``shared`` the holds beyond the first of each block. The argument
    ``rows`` of a method bounds how many new rows may be asked for, besides ``max_rows``. Blocks are given as lists or
    as arrays of integers, and come as lists, or as arrays where a method says so: ids that stay in arrays cost half.

        >>> import paged
        >>> pool = paged.BlockPool(paged.Rows(blocks=8, block_stride=1, chunk=4))
        >>> pool.choose(3)  # row 0 must get memory
        Choice(blocks=3, rows=(0,))
        >>> blocks = pool.take(pool.choose(3))
        >>> blocks
        [0, 1, 2]
        >>> pool.fork([0])  # block 0 has two holders
        >>> pool.free(blocks), pool.free([0])  # the rows that came empty
        ([], [0])
    """

    def __init__(self, rows: Rows, max_rows: int | None = None) -> None:
        self.rows = rows
        self.max_rows = rows.count if max_rows is None else min(max_rows, rows.count)
        self.committed = CommittedRows(rows)
        self.used = 0
        self.shared = 0
        self._lowered = False  # whether a limit was set that may not be reached yet
        self.counts = BlockCounts(rows.blocks)
        self._one = self.counts.one
        self._rooms = self._make_rooms()

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Free blocks that need no new row; none while more rows are committed than a lowered limit allows."""
        return self._rooms.available if not self._lowered or not self.over else 0

    @property
    def over(self) -> int:
        """How many committed rows there are beyond ``max_rows``, which was lowered meanwhile."""
        return max(0, self.committed.count - self.max_rows) if self._lowered else 0

    @property
    def empty(self) -> Collection[int]:
        """The committed rows in which no block is held."""
        return self._rooms.empty

    def count(self, block: int) -> int:
        """How many hold ``block``; 0 is free. Raises RangeError for an unknown id."""
        if not 0 <= block < self.rows.blocks:
            known((block,), self.rows.blocks)
        return self._one[block]

    def sparse_rows(self) -> list[int]:
        """The committed rows that hold a block and have room for more, the emptiest first."""
        rooms = self._rooms
        return sorted((row for row in self.committed if rooms.fill(row) and rooms.room(row)), key=rooms.fill)

    def available_in(self, row: int) -> list[int]:
        """The blocks that start in ``row`` and can be taken without a new row."""
        return self._rooms.room(row)

    def fill(self, row: int) -> int:
        """How many live blocks touch a row."""
        return self._rooms.fill(row)

    @property
    def places(self) -> int:
        """Free blocks of committed rows, given out or not under a lowered limit."""
        return self._rooms.available

    def largest_grantable(self, rows: int | None = None) -> int:
        """The most blocks that ``choose`` would grant now."""
        unavailable = self.rows.blocks - self.used - self.available
        if not self.rows.straddles:
            return self.available + min(unavailable, self._limit(rows) * (self.rows.chunk // self.rows.block_stride))
        return self.available + self.committed.plan(unavailable, self._limit(rows))[1]

    def can_allocate(self, blocks: int, rows: int | None = None) -> bool:
        """Whether ``blocks`` more blocks can be had; "not now" is a normal answer."""
        _check_count(blocks)
        need = blocks - self.available
        return need <= 0 or self.committed.plan(need, self._limit(rows))[1] >= need

    def choose(self, blocks: int, rows: int | None = None) -> Choice:
        """Look for ``blocks`` more blocks and say which rows must be committed for them. Nothing changes.

        Raises OutOfMemoryError, with both numbers, when they are not to be had.
        """
        found = self.find(blocks, rows)
        if found is None:
            raise OutOfMemoryError(
                f"{blocks} block{'s' * (blocks != 1)} asked, {self.largest_grantable(rows)} can be had: "
                f"{self.used} are in use, {self.committed.count} of {self.max_rows} rows committed; "
                "free blocks or raise the budget",
                block_shortage(self, blocks, rows),
            )
        return found

    def find(self, blocks: int, rows: int | None = None) -> Choice | None:
        """As ``choose``; None when they are not to be had."""
        _check_count(blocks)
        need = blocks - self.available
        if need <= 0:
            return Choice(blocks, ())
        chosen, gained = self.committed.plan(need, self._limit(rows))
        return None if gained < need else Choice(blocks, tuple(chosen))

    def check_limit(self, new_rows: int, rows: int | None = None) -> None:
        """Raise OutOfMemoryError if ``new_rows`` more rows may not be committed."""
        if new_rows > self._limit(rows):
            raise OutOfMemoryError(
                f"{new_rows} more rows asked, {self._limit(rows)} can be had: {self.committed.count} of "
                f"{self.max_rows} are committed; free blocks or raise the budget",
                row_shortage(self, new_rows, self._limit(rows), rows),
            )

    # -- changes ------------------------------------------------------------------------------------------------

    def limit(self, max_rows: int) -> None:
        """Bound the committed rows anew. Where more are, nothing more is given out until they have gone."""
        self.max_rows = min(max_rows, self.rows.count)
        self._lowered = self.committed.count > self.max_rows

    def take(self, choice: Choice) -> list[int]:
        """Take the blocks of a choice, its rows being committed now: their ids, each with a count of 1."""
        self._complete(choice)
        return _listed(self._pop(choice.blocks))

    def take_array(self, choice: Choice) -> Ids:
        """As ``take``: int64 [blocks]."""
        self._complete(choice)
        return self._pop_array(choice.blocks)

    def allocate(self, blocks: int, rows: int | None = None) -> list[int]:
        """``take`` what ``choose`` finds: for use without physical memory behind the ids."""
        rooms, blocks = self._rooms, operator.index(blocks)
        if blocks == 1 and rooms.available and not self._lowered:
            block = rooms.take_one()
            self._one[block] = 1
            self.used += 1
            return [block]
        if 0 <= blocks <= self.available:
            return _listed(self._pop(blocks))
        return self.take(self.choose(blocks, rows))

    def allocate_array(self, blocks: int, rows: int | None = None) -> Ids:
        """As ``allocate``: int64 [blocks]."""
        blocks = operator.index(blocks)
        if 0 <= blocks <= self.available:
            return self._pop_array(blocks)
        return self.take_array(self.choose(blocks, rows))

    def fork(self, blocks: Iterable[int] | Ids) -> None:
        """Count one more holder of each block. Raises StateError, naming it, for one that is free."""
        ids = id_array(blocks, self.rows.blocks)
        self.counts.add(ids)
        self.shared += len(ids)

    def share(self, ids: Ids) -> None:
        """As ``fork``, unchecked: for the cache, whose blocks are all held and stand once."""
        if len(ids) == 1:
            self._one[ids[0]] += 1
        else:
            self.counts.numbers[ids] += 1
        self.shared += len(ids)

    def free(self, blocks: Sequence[int] | Ids) -> list[int]:
        """Count one holder of each block less, and return the rows that came empty.

        Raises StateError for a block that nobody holds (freed twice), RangeError for an unknown id; both name it, and
        nothing has changed then.
        """
        if type(blocks) is not list and isinstance(blocks, np.ndarray) and len(blocks) <= _FEW:
            blocks = blocks.tolist()
        if type(blocks) is list and len(blocks) <= _FEW:
            if len(blocks) == 1 and self._is_held_once(block := blocks[0]):
                self._one[block] = 0
                self.used -= 1
                return self._rooms.put_one(block)
            if self.counts.drop_few(blocks):
                self.used -= len(blocks)
                return self._rooms.put_few(blocks) if blocks else []
        ids = id_array(blocks, self.rows.blocks)
        dead = self.counts.drop(ids)
        self.used -= len(dead)
        self.shared -= len(ids) - len(dead)
        return self._rooms.put(dead) if len(dead) else []

    def hold(self, blocks: Iterable[int] | Ids) -> None:
        """Count one more holder of each block, free or not: what undoes ``free``, and what takes blocks by their ids.

        Raises StateError for a free block whose rows are not all committed; nothing has changed then.
        """
        listed = _listed(id_array(blocks, self.rows.blocks))
        counts = self._one
        bare = next((block for block in listed if not counts[block] and not self.committed.holds(block)), None)
        if bare is not None:
            raise StateError(f"block {bare} has no memory yet; commit rows {list(self.rows.of(bare))} first")
        for block in listed:
            if counts[block]:
                self.shared += 1
            else:
                self._rooms.remove(block)
                self.used += 1
            counts[block] += 1

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Give all holds on each block of ``sources`` to the available block of ``targets`` beside it.

        Raises StateError for a source that nobody holds or a target that is not available; nothing has changed then.
        """
        counts, rooms = self._one, self._rooms
        for source, target in zip(sources, targets, strict=True):
            if not self.count(source) or self.count(target) or not self.committed.holds(target):
                raise StateError(
                    f"block {source} cannot move to {target}: one is held by nobody, or the other is taken"
                )
        if len({*sources, *targets}) != 2 * len(sources):
            raise StateError("a block is moved twice, or two to the same place")
        for source, target in zip(sources, targets, strict=True):
            rooms.remove(target)
            counts[target], counts[source] = counts[source], 0
        rooms.put(id_array(sources, self.rows.blocks))

    def commit(self, rows: Iterable[int]) -> None:
        """Note that ``rows`` have physical memory now: blocks that lie wholly in committed rows come available."""
        listed = sorted(rows)
        self.committed.add(listed)
        self._rooms.open(listed, self.committed)

    def decommit(self, rows: Iterable[int]) -> None:
        """Note that ``rows`` lose their physical memory. Raises StateError for one in which a block is live."""
        leaving = sorted(rows)
        live = next((row for row in leaving if row not in self.empty), None)
        if live is not None:
            raise StateError(f"row {live} holds {self._rooms.fill(live)} live blocks or is not committed")
        for row in leaving:
            self._rooms.shut(row, self.committed)
            self.committed.remove((row,))
        self._lowered = self._lowered and self.committed.count > self.max_rows

    def check(self) -> None:
        """Prove the invariants; an AssertionError here is a bug of ours."""
        check_block_pool(self)

    # -- steps --------------------------------------------------------------------------------------------------

    def _limit(self, rows: int | None) -> int:
        """New rows that may be committed."""
        left = self.max_rows - self.committed.count
        return max(0, left if rows is None else min(left, rows))

    def _make_rooms(self) -> SingleRooms | EvenRooms | Rooms:
        if self.rows.block_stride == self.rows.chunk:
            return SingleRooms(self.rows, self.counts, self.committed)
        return Rooms(self.rows) if self.rows.straddles else EvenRooms(self.rows)

    def _complete(self, choice: Choice) -> None:
        """The rows of a choice are committed now; are its blocks there?"""
        if choice.rows:
            self.commit(choice.rows)
        if choice.blocks > self.available:
            raise StateError(f"{choice.blocks} blocks were chosen, {self.available} are left; choose again")

    def _is_held_once(self, block: object) -> bool:
        return type(block) is int and 0 <= block < len(self._one) and self._one[block] == 1

    def _pop(self, blocks: int) -> list[int] | Ids:
        """Take ``blocks`` of the available ones: a list or an array, as their rooms have them."""
        if blocks > _FEW:
            taken = self._rooms.take(blocks)
            self.counts.numbers[_array(taken)] = 1
        else:
            taken, one = _listed(self._rooms.take(blocks)), self._one
            for block in taken:
                one[block] = 1
        self.used += blocks
        return taken

    def _pop_array(self, blocks: int) -> Ids:
        """As ``_pop``, as an array."""
        if blocks == 1:  # the last block of a prompt that is known
            block = self._rooms.take_one()
            self._one[block] = 1
            self.used += 1
            return np.array((block,), np.int64)
        taken = _array(self._rooms.take(blocks))
        self.counts.numbers[taken] = 1
        self.used += blocks
        return taken


def _listed(ids: list[int] | Ids) -> list[int]:
    """Ids as Python's ints."""
    return ids if isinstance(ids, list) else ids.tolist()


def _array(ids: list[int] | Ids) -> Ids:
    return np.array(ids, np.int64) if isinstance(ids, list) else ids


def _check_count(blocks: int) -> None:
    if blocks < 0:
        raise RangeError(f"cannot allocate {blocks} blocks; ask for 0 or more")
