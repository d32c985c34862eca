"""TableBands: the block tables of many sequences as bands of neighbours; every entry is counted once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .picture import Numbers, Picture


@dataclass(frozen=True, slots=True, eq=False)
class TableBands:
    """Band i has the sequences at the places ``i * per_band`` on, in the order of their names.

    ``first`` and ``last`` int64 [bands] are names; ``sequences``, ``tokens``, ``blocks``, ``shared`` and ``dropped``
    count by band (entries of block tables). ``entries`` and ``shared_entries`` [bands, bins] count the entries in each
    run of ``columns_per_bin`` logical blocks.
    """

    per_band: int
    columns_per_bin: int
    first: Numbers
    last: Numbers
    sequences: Numbers
    tokens: Numbers
    blocks: Numbers
    shared: Numbers
    dropped: Numbers
    entries: Numbers
    shared_entries: Numbers

    def __len__(self) -> int:
        return len(self.first)


def table_bands(picture: Picture, most: int, columns: int) -> TableBands:
    """All sequences in at most ``most`` bands, and their columns in at most ``columns`` bins."""
    tables = picture.tables
    per_band = max(1, -(-len(tables) // most))
    starts = np.arange(0, len(tables), per_band)
    stops = np.minimum(starts + per_band, len(tables))
    longest = int((tables.counts + tables.dropped).max(initial=0))
    per_bin = max(1, -(-longest // columns))
    band, column = tables.owners // per_band, tables.columns // per_bin
    shared = picture.counts[tables.blocks] > 1
    entries = np.zeros((len(starts), max(1, -(-longest // per_bin))), np.int64)
    shared_entries = np.zeros_like(entries)
    np.add.at(entries, (band, column), 1)
    np.add.at(shared_entries, (band[shared], column[shared]), 1)
    return TableBands(
        per_band=per_band,
        columns_per_bin=per_bin,
        first=tables.names[starts],
        last=tables.names[stops - 1],
        sequences=stops - starts,
        tokens=_sums(tables.lengths, starts),
        blocks=entries.sum(1),
        shared=shared_entries.sum(1),
        dropped=_sums(tables.dropped, starts),
        entries=entries,
        shared_entries=shared_entries,
    )


def _sums(numbers: Numbers, starts: Numbers) -> Numbers:
    found: Numbers = np.add.reduceat(numbers, starts) if len(starts) else np.zeros(0, np.int64)
    return found
