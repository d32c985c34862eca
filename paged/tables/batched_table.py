"""BatchedTable: the block tables of all sequences of a pool as one array, a row each. Integers only.

A ``Sequence`` is a view of one row, so that a step of many sequences is a few operations on columns of numbers. Who
keeps a copy of the array elsewhere, as kernels need it, watches for the entries that change.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence as Ids
from typing import Any

import numpy as np

from .block_table import Tables

Numbers = np.ndarray[Any, np.dtype[np.int64]]
"""int64 [n]."""

_ROWS, _COLUMNS = 8, 8  # to begin with; both double
_MOST_CHANGES = 4096
_MANY = 1 << 18  # entries; fewer are not worth the copy that gives them up
DROPPED = -1
"""In a table as people see it, a block that was given up; no kernel looks there, and in the array it is 0."""


class Changes:
    """Which entries of a table have changed since the last ``take``: their rows and columns, or simply too many."""

    def __init__(self) -> None:
        self._entries: list[tuple[Numbers, Numbers]] = []
        self._too_many = False

    def note(self, rows: Numbers, columns: Numbers) -> None:
        """Entries have changed."""
        if len(self._entries) < _MOST_CHANGES:
            self._entries.append((rows, columns))
        else:  # nobody has looked for long, and need not find them one by one
            self._entries.clear()
            self._too_many = True

    @property
    def none(self) -> bool:
        """Whether nothing has changed."""
        return not self._entries and not self._too_many

    def take(self) -> tuple[Numbers, Numbers] | None:
        """Rows and columns of what has changed, some perhaps twice; None if that may be anything."""
        entries, too_many = self._entries, self._too_many
        self._entries, self._too_many = [], False
        if too_many:
            return None
        none = np.zeros(0, np.int64)
        rows, columns = zip(*entries, strict=True) if entries else ((none,), (none,))
        return np.concatenate(rows), np.concatenate(columns)


class BatchedTable:
    """Rows of block ids, ``blocks`` int32 [rows, columns], with a length in tokens each, ``lengths`` int64 [rows].

    Row r has its blocks in columns ``dropped[r]`` to ``used(r)`` - 1; what stands elsewhere means nothing. ``turns[r]``
    goes up when a row is opened or closed and is odd while it is open, so that nobody takes a later sequence for an
    earlier one; ``epochs[r]`` is for the pool: how often its bytes had been lost when the row was opened.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.blocks: Tables = np.zeros((_ROWS, _COLUMNS), np.int32)
        self.columns = _COLUMNS  # of ``blocks``
        self.lengths, self.dropped, self.turns, self.epochs = np.zeros((4, _ROWS), np.int64)
        self._look()
        self._closed = list(range(_ROWS))  # a heap: the lowest row is used first
        self._narrows = False  # whether a row has ended that was as wide as all are
        self._watchers: list[Changes] = []

    # -- rows ---------------------------------------------------------------------------------------------------

    def open(self, epoch: int) -> int:
        """A row for a new sequence: the lowest that is not in use."""
        if self._narrows:
            self._narrow()
        if not self._closed:
            self._add_rows()
        row = heapq.heappop(self._closed)
        self._turn[row] += 1
        self._epoch[row] = epoch
        return row

    def close(self, row: int) -> None:
        """The sequence of a row has ended."""
        self.turns[row] += 1
        self._narrows = self._narrows or (self.blocks.size > _MANY and 2 * self.used(row) > self.columns)
        self.lengths[row] = self.dropped[row] = 0
        heapq.heappush(self._closed, row)

    def open_rows(self) -> list[int]:
        """The rows that are in use."""
        rows: list[int] = np.flatnonzero(self.turns % 2).tolist()
        return rows

    def length(self, row: int) -> int:
        """Tokens of one row."""
        return self._length[row]

    def lengthen(self, row: int, tokens: int) -> None:
        """A row gets ``tokens`` more tokens."""
        self._length[row] += tokens

    def turn(self, row: int) -> int:
        """``turns`` of one row."""
        return self._turn[row]

    def used(self, row: int) -> int:
        """Columns that a row uses, dropped ones included: one for each ``block_size`` tokens, and one for the rest."""
        return -(-self._length[row] // self.block_size)

    def table(self, row: int) -> list[int]:
        """The block ids of one row; ``DROPPED`` where a block was dropped."""
        return [DROPPED] * int(self.dropped[row]) + self.held(row)

    def held(self, row: int) -> list[int]:
        """The block ids that a row has and did not drop."""
        ids: list[int] = self.blocks[row, self.dropped[row] : self.used(row)].tolist()
        return ids

    def tables(self, rows: Numbers) -> Tables:
        """The tables of ``rows`` as an array of their own, int32 [B, columns], the columns that the longest needs.

        Behind the blocks of a row stand numbers without a meaning.
        """
        columns = -(-int(self.lengths[rows].max(initial=0)) // self.block_size) or 1
        tables: Tables = self.blocks[rows, :columns]
        return tables

    # -- entries ------------------------------------------------------------------------------------------------

    def make_room(self, columns: int) -> None:
        """Have at least so many columns, so that ``put`` cannot fail."""
        have = self.columns
        if columns > have:
            wider = np.zeros((len(self.blocks), max(columns, 2 * have)), np.int32)
            wider[:, :have] = self.blocks
            self.blocks, self.columns = wider, wider.shape[1]

    def put(self, row: int, column: int, blocks: Ids[int] | Numbers | Tables) -> None:
        """Write the entries of one row from ``column`` on."""
        stop = column + len(blocks)
        if stop > self.columns:
            self.make_room(stop)
        self.blocks[row, column:stop] = blocks
        if self._watchers:
            self._note(np.full(len(blocks), row), np.arange(column, column + len(blocks)))

    def put_each(self, rows: Numbers, columns: Numbers, blocks: Ids[int] | Numbers) -> None:
        """Write one entry in each of ``rows``."""
        self.make_room(int(columns.max(initial=-1)) + 1)
        self.blocks[rows, columns] = blocks
        if self._watchers:
            self._note(rows, columns)

    def drop(self, row: int, blocks: int) -> None:
        """Give up the entries of the first so many blocks of a row; the columns of the others stay."""
        self.put(row, int(self.dropped[row]), [0] * (blocks - int(self.dropped[row])))
        self.dropped[row] = blocks

    def holders(self) -> dict[int, int]:
        """How many entries name each block."""
        found, times = np.unique(self.blocks[self._holds()], return_counts=True)
        return dict(zip(found.tolist(), times.tolist(), strict=True))

    def fills(self) -> tuple[Numbers, Numbers]:
        """The block that each entry names, and how many tokens of it the entry's row has; in the order of rows."""
        rows, columns = np.nonzero(self._holds())
        tokens = np.minimum(self.block_size, self.lengths[rows] - columns * self.block_size)
        return self.blocks[rows, columns].astype(np.int64), tokens

    def places(self, block: int) -> list[tuple[int, int]]:
        """Row and column of every entry that names ``block``."""
        rows, columns = np.nonzero(self._holds() & (self.blocks == block))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def rename(self, sources: Ids[int], targets: Ids[int]) -> None:
        """Blocks have moved: every entry that named one of ``sources`` names the one of ``targets`` beside it."""
        order = np.argsort(sources)
        known = np.asarray(sources)[order]
        rows, columns = np.nonzero(self._holds() & np.isin(self.blocks, known))
        if len(rows):
            places = order[np.searchsorted(known, self.blocks[rows, columns])]
            self.put_each(rows, columns, np.asarray(targets)[places])

    def watch(self) -> Changes:
        """What is told of every entry that changes from now on, until ``unwatch``."""
        changes = Changes()
        self._watchers.append(changes)
        return changes

    def unwatch(self, changes: Changes) -> None:
        """Nobody looks at these any more."""
        self._watchers.remove(changes)

    # -- steps --------------------------------------------------------------------------------------------------

    def _holds(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which entries name a block, bool [rows, columns]."""
        columns = np.arange(self.blocks.shape[1])
        used = -(-self.lengths // self.block_size)
        return (columns >= self.dropped[:, None]) & (columns < used[:, None])

    def _note(self, rows: Numbers, columns: Numbers) -> None:
        for watcher in self._watchers:
            watcher.note(rows, columns)

    def _look(self) -> None:
        """See single numbers by views, which are read in a third of the time that NumPy takes."""
        self._length: memoryview[int] = self.lengths.data
        self._turn: memoryview[int] = self.turns.data
        self._epoch: memoryview[int] = self.epochs.data

    def _narrow(self) -> None:
        """Give up columns that nobody comes near any more: one long sequence makes every row long."""
        self._narrows = False
        columns = max(_COLUMNS, 2 * -(-int(np.maximum.reduce(self.lengths)) // self.block_size))
        if 2 * columns <= self.columns:
            self.blocks, self.columns = self.blocks[:, :columns].copy(), columns

    def _add_rows(self) -> None:
        have = len(self.blocks)
        self.blocks = np.concatenate((self.blocks, np.zeros_like(self.blocks)))
        self.lengths, self.dropped, self.turns, self.epochs = (
            np.concatenate((numbers, np.zeros_like(numbers)))
            for numbers in (self.lengths, self.dropped, self.turns, self.epochs)
        )
        self._look()
        self._closed = list(range(have, 2 * have))
