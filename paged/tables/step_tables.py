"""StepTables: what one launch of attention needs of its sequences: tables on the query's side, lengths on the host."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..pool import KVPool
from ..sequence import Sequence
from .batch import Batch
from .batched_table import Numbers
from .block_table import Tables, batch_lengths
from .device_tables import DeviceTables

Array = Any
"""A numpy.ndarray on the host driver, a cupy.ndarray on a GPU."""
Attended = Sequences[Sequence] | Batch | DeviceTables
"""Sequences in the order of the query's rows. Of a list or a batch the tables are copied for each launch; tables on the
device are used where they lie."""


@dataclass(frozen=True)
class StepTables:
    """``tables`` int32 [B, columns] where the query lies; on the host ``lengths`` int32 [B] and ``dropped`` int64 [B].

    All in tokens: those that exist, and those of them whose blocks were given up.
    """

    tables: Array
    lengths: Tables
    dropped: Numbers

    def check_window(self, window: int | None, queries: Tables | int = 1) -> None:
        """Raise ValueError where the last ``queries`` tokens of a sequence would look at tokens that were dropped."""
        if not self.dropped.any():
            return
        first = 0 if window is None else np.maximum(self.lengths - np.asarray(queries) - window + 1, 0)
        if (first < self.dropped).any():
            place = int(np.argmax(self.dropped - first))
            asked = f"a window of {window}" if window else "no window"
            raise ValueError(
                f"sequence {place} has dropped its first {self.dropped[place]} of {self.lengths[place]} tokens and "
                f"attention with {asked} would look at them; give the window that they were dropped for"
            )


def step_tables(pool: KVPool, sequences: Attended, like: Array) -> StepTables:
    """The tables of ``sequences``, on the side of the array ``like``.

    Raises ClosedError for a freed sequence, ValueError for one of another pool, StateError while the pool sleeps or for
    device tables that are older than their batch.
    """
    if isinstance(sequences, DeviceTables):
        sequences.check_current()
        batch = sequences.batch
        _check_pool(pool, batch)
        return StepTables(sequences.blocks[: len(batch)], batch_lengths(batch.lengths), _dropped(pool, batch.rows))
    if isinstance(sequences, Batch):
        _check_pool(pool, sequences)
        sequences.check()
        rows = sequences.rows
    else:
        _check_sequences(pool, sequences)
        rows = np.array([sequence.row for sequence in sequences], np.int64)
    tables = np.asarray(pool.table.tables(rows), like=like)
    return StepTables(tables, batch_lengths(pool.table.lengths[rows]), _dropped(pool, rows))


def _check_sequences(pool: KVPool, sequences: Sequences[Sequence]) -> None:
    if isinstance(sequences, Sequence):
        raise ValueError("sequences must be a list, a Batch or its DeviceTables; for one sequence write [sequence]")
    for sequence in sequences:
        if not isinstance(sequence, Sequence):
            what = f"a {type(sequence).__name__} was given"
            raise ValueError(f"attention on {pool.range.name!r} takes Sequences of it; {what} (of a model, its part)")
        sequence.check_in(pool)


def _check_pool(pool: KVPool, batch: Batch) -> None:
    if batch.pool is not pool:
        raise ValueError(f"a batch of {batch.pool.range.name!r} was given to {pool.range.name!r}, another pool")


def _dropped(pool: KVPool, rows: Numbers) -> Numbers:
    dropped: Numbers = pool.table.dropped[rows] * pool.table.block_size
    return dropped
