"""What the kernels that move blocks and change tables mean, in NumPy, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""[planes, blocks, bytes of a block]."""


def copy_blocks(source: Bytes, destination: Bytes, pairs: NDArray[np.int64]) -> None:
    """Each pair (source block, destination block) as if all were copied at once; one with a negative id is skipped."""
    kept = pairs[(pairs >= 0).all(axis=1)]
    destination[:, kept[:, 1]] = source[:, kept[:, 0]].copy()


def fill_blocks(memory: Bytes, ids: NDArray[np.int64], pattern: int) -> None:
    """The 4 bytes of ``pattern``, repeated, into each block; a negative id is skipped."""
    memory.view(np.uint32)[:, ids[ids >= 0]] = pattern


def patch_table(table: NDArray[Any], patches: NDArray[np.int64]) -> None:
    """table[row, column] = value for each patch that lies in the table [rows, columns]."""
    for row, column, value in patches:
        if 0 <= row < table.shape[0] and 0 <= column < table.shape[1]:
            table[row, column] = value


def tlb_probe(chain: NDArray[np.int64], start: int, steps: int) -> int:
    """The offset in bytes after ``steps`` steps through ``chain``, int64 words that hold the next offset."""
    at = start
    for _ in range(steps):
        at = int(chain[at // 8])
    return at
