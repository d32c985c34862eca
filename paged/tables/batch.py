"""Batch: sequences that decode together. One more token for each of them is one call, whatever their number."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from vmm import ClosedError, StateError, Stream
from vmm.uninterrupted import uninterrupted

from ..block_copies import copy_blocks
from ..prefix.chain_hash import Tokens
from ..prefix.known_tokens import as_ids
from ..sequence import Sequence
from .batched_table import Numbers
from .block_table import Slots, Tables

if TYPE_CHECKING:
    from ..pool import KVPool


class Batch:
    """Sequences of ``pool`` in the order of a query's rows. They stay the caller's, who takes out what has ended.

    ``rows`` int64 [B]: the row of the pool's ``table`` of each. ``moved`` holds the places whose sequence is another
    than when somebody last cleared it, as who copies the tables of a batch does.
    """

    def __init__(self, pool: KVPool, sequences: Iterable[Sequence] = ()) -> None:
        self.pool = pool
        self.rows: Numbers = np.zeros(0, np.int64)
        self.moved: set[int] = set()
        self.watched = False  # whether somebody copies its tables
        self._turns: Numbers = np.zeros(0, np.int64)
        self._sequences: list[Sequence] = []
        self._places: dict[Sequence, int] = {}
        self._new: set[Sequence] = set()  # whose tokens may not have been published yet
        for sequence in sequences:
            self.add(sequence)

    def __repr__(self) -> str:
        return f"Batch({len(self)} sequences, {int(self.pool.table.lengths[self.rows].sum())} tokens)"

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._places

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> Numbers:
        """Tokens of each sequence, int64 [B]; a copy."""
        lengths: Numbers = self.pool.table.lengths[self.rows]
        return lengths

    def tables(self) -> Tables:
        """The block tables, int32 [B, columns], the columns that the longest needs; a copy.

        Behind the blocks of a sequence stand numbers without a meaning.
        """
        return self.pool.table.tables(self.rows)

    def can_append(self) -> bool:
        """Whether one more token for each sequence can be had now."""
        self.check()
        columns, offsets = np.divmod(self.lengths, self.pool.table.block_size)
        full = int(np.count_nonzero(offsets == 0))
        return self.pool.can_allocate(full + len(self._shared_tails(columns, offsets)))

    def check(self) -> None:
        """Raise ClosedError for a sequence that was freed, StateError while the pool sleeps or where bytes are lost."""
        self.pool.check_usable()
        table, losses = self.pool.table, self.pool.range.losses
        if (table.turns[self.rows] != self._turns).any():
            place = int(np.argmax(table.turns[self.rows] != self._turns))
            raise ClosedError(f"sequence {place} of the batch was freed; remove it from the batch first")
        if losses and (table.epochs[self.rows] != losses).any():
            for sequence in self._sequences:
                sequence.check_in(self.pool)

    # -- changes ------------------------------------------------------------------------------------------------

    @uninterrupted
    def add(self, sequence: Sequence) -> int:
        """Put a sequence at the end and return its place.

        Raises ClosedError for one that was freed, ValueError for one of another pool, StateError for one that is in it.
        """
        if not isinstance(sequence, Sequence):
            what = f"a {type(sequence).__name__} was given"
            raise ValueError(
                f"a batch of {self.pool.range.name!r} takes Sequences of it; {what} (of a model, its part)"
            )
        sequence.check_in(self.pool)
        if sequence in self._places:
            raise StateError(f"{sequence} is in the batch already, at place {self._places[sequence]}")
        place = self._places[sequence] = len(self._sequences)
        self._sequences.append(sequence)
        self.rows = np.append(self.rows, sequence.row)
        self._turns = np.append(self._turns, self.pool.table.turns[sequence.row])
        self._new.add(sequence)
        self.moved.add(place)
        return place

    @uninterrupted
    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, freed or not; the last takes its place. Raises StateError for one that is not in it."""
        if sequence not in self._places:
            raise StateError(f"{sequence} is not in the batch")
        place, last = self._places.pop(sequence), self._sequences.pop()
        if last is not sequence:
            self._sequences[place], self._places[last] = last, place
            self.moved.add(place)
        for numbers in (self.rows, self._turns):
            numbers[place] = numbers[-1]
        self.rows, self._turns = self.rows[:-1], self._turns[:-1]
        self._new.discard(sequence)
        self.moved.discard(len(self._sequences))

    @uninterrupted
    def append(self, ids: Tokens | None = None, *, stream: Stream = 0) -> Slots:
        """Make room for one more token of each sequence and return the slots, int64 [B].

        ``ids`` [B] are the tokens, where they are known and a prefix cache is to find them later: as
        ``Sequence.append``, once a block is full. Shared tails are copied on ``stream`` in one step. Raises as
        ``check``, ValueError for another number of ids, OutOfMemoryError when the pool has not enough blocks; nothing
        has changed then.
        """
        self.check()
        known = self._checked(ids)
        table, rows, lengths = self.pool.table, self.rows, self.lengths
        columns, offsets = np.divmod(lengths, table.block_size)
        full = np.flatnonzero(offsets == 0)
        self._publish(full, known)
        table.make_room(int(columns.max(initial=-1)) + 1)
        copied = self._shared_tails(columns, offsets)
        new = self.pool.allocate(len(full) + len(copied))
        if copied:
            self._copy_tails(copied, new[len(full) :], columns, offsets, new, stream)
        else:
            self.pool.tokens += len(rows)  # first: whoever is told of the table asks how many there are
        table.put_each(rows[full], columns[full], new[: len(full)])
        if known is not None and self.pool.tail_ids:
            self.pool.tail_ids.put(rows, lengths, known)
        table.lengths[rows] += 1
        slots: Slots = table.blocks[rows, columns].astype(np.int64) * table.block_size + offsets
        return slots

    # -- steps --------------------------------------------------------------------------------------------------

    def _checked(self, ids: Tokens | None) -> Tokens | None:
        known = None if ids is None else as_ids(ids)
        if ids is not None and (known is None or len(known) != len(self)):
            raise ValueError(f"ids must be one token id for each of the {len(self)} sequences")
        return known

    def _publish(self, full: Numbers, ids: Tokens | None) -> None:
        """Let prompts find the blocks that have come full, and tell sequences what ids they have where these end."""
        tails = self.pool.tail_ids
        if not tails:
            return
        going = [self._sequences[place] for place in full.tolist()]
        if ids is None:
            waiting = set(tails.waiting(self.rows).tolist())
            going += [sequence for sequence in self._sequences if sequence.row in waiting] if waiting else []
        for sequence in self._new.union(going):
            sequence._publish()
        self._new.clear()

    def _shared_tails(self, columns: Numbers, offsets: Numbers) -> list[int]:
        """The places of sequences whose partly filled last block must be copied before they write to it.

        Where all who hold it are in the batch, the last of them keeps it.
        """
        if not self.pool.block_pool.shared:
            return []
        places = np.flatnonzero(offsets)
        tails = self.pool.table.blocks[self.rows[places], columns[places]].tolist()
        left = {block: self.pool.count(block) for block in set(tails)}
        found = []
        for place, block in zip(places.tolist(), tails, strict=True):
            if left[block] > 1:
                left[block] -= 1
                found.append(place)
        return found

    def _copy_tails(
        self, places: list[int], copies: list[int], columns: Numbers, offsets: Numbers, new: list[int], stream: Stream
    ) -> None:
        """Exchange shared last blocks for copies of them, and count the tokens of the step.

        Where the copy is refused, all ``new`` blocks go back.
        """
        table, rows = self.pool.table, self.rows[places]
        shared: list[int] = table.blocks[rows, columns[places]].tolist()
        with contextlib.ExitStack() as undo:
            undo.callback(self.pool.free, new)
            copy_blocks(self.pool, shared, copies, stream)
            undo.pop_all()
        self.pool.tokens += int(offsets[places].sum()) + len(self.rows)
        table.put_each(rows, columns[places], copies)
        self.pool.free(shared)
