"""What a pool can spare for another on the same supply: rows that lie empty, then rows of idle blocks of its cache.

Nothing that a sequence holds is ever spared. Of the rows in which every live block is idle, those go first whose
blocks were all used longest ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vmm.finishing import Finishing
from vmm.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .pool import KVPool


@uninterrupted  # the turn that is borrowed would never come back
def spare_chunks(pool: KVPool, *, cached: bool) -> int:
    """What ``KVPool.spare`` says."""
    with pool.busy.borrowed() as mine:
        return len(_spare_rows(pool, cached=cached)) * pool.layout.planes if mine else 0


@uninterrupted
def give_up_chunks(pool: KVPool, chunks: int, *, cached: bool) -> int:
    """What ``KVPool.give_up`` does."""
    with pool.busy.borrowed() as mine:
        rows = _spare_rows(pool, cached=cached)[: -(-chunks // pool.layout.planes)] if mine else []
        with Finishing() as rest:
            if rows:
                rest.run(pool.memory.decommit, rows, None)
                _forget(pool, rows)  # what is cached there is gone only when its memory is
                pool.block_pool.decommit(rows)
        return len(rows) * pool.layout.planes


def _spare_rows(pool: KVPool, *, cached: bool) -> list[int]:
    """The rows that may go, in the order in which they should."""
    if pool.prealloc or pool.range.closed or pool.range.asleep:
        return []
    used = pool.memory.used()
    rows = sorted(pool.block_pool.empty, reverse=True)
    if cached and pool.prefix and pool.blocks_idle:
        rows += _idle_rows(pool, pool.prefix.cache.idle_blocks.listed())
    return [row for row in rows if row not in used] if used else rows


def _idle_rows(pool: KVPool, blocks: NDArray[np.int64]) -> list[int]:
    """Rows in which every live block is one of these, which are in the order of their last use; the oldest first."""
    layout = pool.block_pool.rows
    first = blocks * layout.block_stride // layout.chunk
    counts = ((blocks + 1) * layout.block_stride - 1) // layout.chunk - first + 1  # rows of each block
    before = np.cumsum(counts) - counts
    rows = np.repeat(first - before, counts) + np.arange(counts.sum())
    held = np.bincount(rows, minlength=layout.count)
    newest = np.zeros(layout.count, np.int64)
    newest[rows] = np.repeat(np.arange(len(blocks)), counts)  # of the same row the last stays
    candidates = np.flatnonzero(held)
    ordered = candidates[np.argsort(newest[candidates])]
    fill = pool.block_pool.fill
    return [row for row, idle in zip(ordered.tolist(), held[ordered].tolist(), strict=True) if fill(row) == idle]


def _forget(pool: KVPool, rows: Sequence[int]) -> None:
    """Drop the blocks in ``rows`` from the prefix cache: all that live there are idle."""
    books = pool.block_pool
    going = list(dict.fromkeys(block for row in rows for block in books.rows.touching(row) if books.count(block)))
    if going and pool.prefix:
        pool.prefix.cache.use(going)
        pool.prefix.cache.forget(going)
        books.free(going)
