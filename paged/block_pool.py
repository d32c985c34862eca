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
from typing import SupportsIndex

from vmm import OutOfMemoryError, RangeError, StateError

from .committed_rows import CommittedRows
from .invariants import check_block_pool
from .rooms import Rooms
from .rows import Rows
from .single_rooms import SingleRooms


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``choose`` found: ``blocks`` more blocks can be taken once ``rows`` are committed."""

    blocks: int
    rows: tuple[int, ...]


class BlockPool:
    """The ids 0 to ``rows.blocks`` - 1; at most ``max_rows`` rows may be committed at a time (None: all).

    ``used`` counts the blocks that somebody holds, ``shared`` the holds beyond the first of each block. The argument
    ``rows`` of a method bounds how many new rows may be asked for, besides ``max_rows``.
    """

    def __init__(self, rows: Rows, max_rows: int | None = None) -> None:
        self.rows = rows
        self.max_rows = rows.count if max_rows is None else min(max_rows, rows.count)
        self.committed = CommittedRows(rows)
        self.used = 0
        self.shared = 0
        self._lowered = False  # whether a limit was set that may not be reached yet
        self._counts = [0] * rows.blocks
        single = rows.block_stride == rows.chunk
        self._rooms = SingleRooms(rows, self._counts, self.committed) if single else Rooms(rows)

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Free blocks that need no new row; none while more rows are committed than a lowered limit allows."""
        return 0 if self.over else self._rooms.available

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
            self._check_known((block,))
        return self._counts[block]

    def sparse_rows(self) -> list[int]:
        """The committed rows that hold a block and have room for more, the emptiest first."""
        rooms = self._rooms
        return sorted((row for row in self.committed if rooms.fill(row) and rooms.room(row)), key=rooms.fill)

    def available_in(self, row: int) -> list[int]:
        """The blocks that start in ``row`` and can be taken without a new row."""
        return self._rooms.room(row)

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
        _check_count(blocks)
        need = blocks - self.available
        if need <= 0:
            return Choice(blocks, ())
        chosen, gained = self.committed.plan(need, self._limit(rows))
        if gained < need:
            raise OutOfMemoryError(
                f"{blocks} blocks asked, {self.largest_grantable(rows)} can be had: {self.used} are in use, "
                f"{self.committed.count} of {self.max_rows} rows committed; free blocks or raise the budget"
            )
        return Choice(blocks, tuple(chosen))

    def check_limit(self, new_rows: int, rows: int | None = None) -> None:
        """Raise OutOfMemoryError if ``new_rows`` more rows may not be committed."""
        if new_rows > self._limit(rows):
            raise OutOfMemoryError(
                f"{new_rows} more rows asked, {self._limit(rows)} can be had: {self.committed.count} of "
                f"{self.max_rows} are committed; free blocks or raise the budget"
            )

    # -- changes ------------------------------------------------------------------------------------------------

    def limit(self, max_rows: int) -> None:
        """Bound the committed rows anew. Where more are, nothing more is given out until they have gone."""
        self.max_rows = min(max_rows, self.rows.count)
        self._lowered = self.committed.count > self.max_rows

    def take(self, choice: Choice) -> list[int]:
        """Take the blocks of a choice, its rows being committed now: their ids, each with a count of 1."""
        if choice.rows:
            self.commit(choice.rows)
        if choice.blocks > self.available:
            raise StateError(f"{choice.blocks} blocks were chosen, {self.available} are left; choose again")
        return self._pop(choice.blocks)

    def allocate(self, blocks: int, rows: int | None = None) -> list[int]:
        """``take`` what ``choose`` finds: for use without physical memory behind the ids."""
        rooms, blocks = self._rooms, operator.index(blocks)
        if blocks == 1 and rooms.available and not self._lowered:
            block = rooms.take_one()
            self._counts[block] = 1
            self.used += 1
            return [block]
        if 0 <= blocks <= self.available:
            return self._pop(blocks)
        return self.take(self.choose(blocks, rows))

    def fork(self, blocks: Iterable[int]) -> None:
        """Count one more holder of each block. Raises StateError, naming it, for one that is free."""
        listed = list(blocks)
        self._check_known(listed)
        counts = self._counts
        if not all(map(counts.__getitem__, listed)):
            dead = next(block for block in listed if not counts[block])
            raise StateError(f"block {dead} is free and cannot be shared; allocate it first")
        for block in listed:
            counts[block] += 1
        self.shared += len(listed)

    def free(self, blocks: Sequence[int]) -> list[int]:
        """Count one holder of each block less, and return the rows that came empty.

        Raises StateError for a block that nobody holds (freed twice), RangeError for an unknown id; both name it, and
        nothing has changed then.
        """
        listed = blocks if type(blocks) is list else block_ids(blocks)
        if len(listed) == 1 and self._is_held_once(listed[0]):
            self._counts[listed[0]] = 0
            self.used -= 1
            return self._rooms.put_one(listed[0])
        return self._rooms.put(self._drop(listed))

    def hold(self, blocks: Iterable[int]) -> None:
        """Count one more holder of each block, free or not: what undoes ``free``, and what takes blocks by their ids.

        Raises StateError for a free block whose rows are not all committed; nothing has changed then.
        """
        listed = list(blocks)
        self._check_known(listed)
        bare = next((block for block in listed if not self._counts[block] and not self.committed.holds(block)), None)
        if bare is not None:
            raise StateError(f"block {bare} has no memory yet; commit rows {list(self.rows.of(bare))} first")
        for block in listed:
            if self._counts[block]:
                self.shared += 1
            else:
                self._rooms.remove(block)
                self.used += 1
            self._counts[block] += 1

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Give all holds on each block of ``sources`` to the available block of ``targets`` beside it.

        Raises StateError for a source that nobody holds or a target that is not available; nothing has changed then.
        """
        counts, rooms = self._counts, self._rooms
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
        rooms.put(list(sources))

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

    def _check_known(self, blocks: Sequence[int]) -> None:
        if blocks and not 0 <= min(blocks) <= max(blocks) < self.rows.blocks:
            wrong = next(block for block in blocks if not 0 <= block < self.rows.blocks)
            raise RangeError(f"block {wrong} is unknown; this pool has blocks 0 to {self.rows.blocks - 1}")

    def _pop(self, blocks: int) -> list[int]:
        """Take ``blocks`` of the available ones."""
        taken = self._rooms.take(blocks)
        self.used += blocks
        counts = self._counts
        for block in taken:
            counts[block] = 1
        return taken

    def _is_held_once(self, block: object) -> bool:
        return type(block) is int and 0 <= block < len(self._counts) and self._counts[block] == 1

    def _drop(self, blocks: list[int]) -> list[int]:
        """Lower the counts, all or none, and return the blocks that came free."""
        return blocks if self._drop_unshared(blocks) else self._drop_any(blocks)

    def _drop_unshared(self, blocks: list[int]) -> bool:
        """As ``_drop``, in half the time, if each block is held once and named once; else nothing changes."""
        counts, rest = self._counts, iter(blocks)
        try:
            if not blocks or min(blocks) < 0:
                return False
        except TypeError:  # not even numbers
            return False
        try:
            for block in rest:
                if counts[block] != 1:
                    break
                counts[block] = 0
            else:
                self.used -= len(blocks)
                return True
        except (IndexError, TypeError):
            pass  # the other way says which
        for block in blocks[: len(blocks) - len(list(rest)) - 1]:
            counts[block] = 1
        return False

    def _drop_any(self, blocks: list[int]) -> list[int]:
        counts, done = self._counts, 0
        dead: list[int] = []
        try:
            for done, block in enumerate(blocks):  # noqa: B007  the undo needs it
                left = counts[block] - 1
                if not left and block >= 0:
                    dead.append(block)
                elif left < 0 or block < 0:
                    raise IndexError
                counts[block] = left
        except (IndexError, TypeError):
            for again in blocks[:done]:
                counts[again] += 1
            if odd := [block for block in blocks if not isinstance(block, SupportsIndex)]:
                raise RangeError(f"{odd[0]!r} is no block id; give whole numbers") from None
            self._check_known(blocks)
            text = f"block {blocks[done]} is freed more often than it is held; nothing was freed"
            raise StateError(text) from None
        self.used -= len(dead)
        self.shared -= len(blocks) - len(dead)
        return dead


def block_ids(blocks: Iterable[SupportsIndex]) -> list[int]:
    """Block ids as Python's ints: NumPy's small ones overflow. Raises RangeError, naming it, for what is no number."""
    listed = list(blocks)
    try:
        return list(map(operator.index, listed))
    except TypeError:
        odd = next(block for block in listed if not isinstance(block, SupportsIndex))
        raise RangeError(f"{odd!r} is no block id; give whole numbers") from None


def _check_count(blocks: int) -> None:
    if blocks < 0:
        raise RangeError(f"cannot allocate {blocks} blocks; ask for 0 or more")
