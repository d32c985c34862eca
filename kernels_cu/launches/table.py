"""Launch of patch_table: change entries of a table on the device, in the order of a stream."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, dtype_of, view
from ..checked_launch import launch_checked
from ..errors import LaunchError
from ..target import Target

THREADS = 128
_ENTRIES = ("int32", "int64")


def patch_table(target: Target, table: Array, patches: Array, *, stream: int = 0) -> None:
    """Write single entries of a block table, slot mapping or array of lengths: table[row, column] = value.

    ``table`` int32 or int64, [rows, columns] whose rows may lie apart, or [columns]; ``patches`` int64 [n, 3] of row
    (0 in a table of one axis), column and value. A patch outside the table is skipped, so a batch may be padded with
    -1; of two for one entry, either stays. Kernels queued on the stream before see the table as it was. n = 0 launches
    nothing. Raises LaunchError for arrays that do not fit, target.fault(...) for memory that is not there.
    """
    dtype = dtype_of("table", table, _ENTRIES)
    if table.ndim not in (1, 2):
        raise LaunchError(f"table must have one or two axes, not {table.ndim}")
    entries = view("table", table, target.arch, dtype, (None,) * table.ndim, writable=True)
    rows = view("patches", patches, target.arch, "int64", (None, 3))
    extents = (1, *entries.shape)[-2:]
    row_stride = entries.row_stride if len(entries.shape) == 2 else 0
    arguments = (
        np.uint64(entries.address),
        np.int64(row_stride),
        *(np.int64(extent) for extent in extents),
        np.uint64(rows.address),
        np.int64(rows.shape[0]),
    )
    grid = (-(-rows.shape[0] // THREADS), 1, 1)
    constants = {"ENTRY": dtype}
    launch_checked(
        target, "patch_table", constants, grid, (THREADS, 1, 1), arguments, stream=stream, keepalive=(table, patches)
    )
