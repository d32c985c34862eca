"""The virtual range in cells of neighbouring chunks, counted by what they are good for."""

from __future__ import annotations

import numpy as np

from .picture import Numbers, Picture
from .row_kinds import RowKind, chunk_kinds


def range_cells(picture: Picture, per_cell: int, planes: int | None = None) -> tuple[Numbers, Numbers]:
    """Chunks of each RowKind in cells of at most ``per_cell`` chunks of one plane, [kinds, cells], and their edges.

    Only the first ``planes`` planes, if they are given.
    """
    kinds, rows = chunk_kinds(picture)[:planes], picture.rows.count
    a_plane = -(-rows // per_cell)
    cells = np.arange(len(kinds))[:, None] * a_plane + np.arange(rows) // per_cell
    counts = np.zeros((len(RowKind), len(kinds) * a_plane), np.int64)
    np.add.at(counts, (kinds, cells), 1)
    return counts, np.concatenate(([0], np.cumsum(counts.sum(0))))
