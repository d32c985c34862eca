"""What must always be true of a pool. The checks recompute everything from the counts and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .blocks.block_invariants import check_block_pool, must
from .prefix.cache_invariants import check_prefix

if TYPE_CHECKING:
    from .pool_state import PoolState


def check_pool(pool: PoolState) -> None:
    """The ids, the rows and the driver's layer agree; tables hold live blocks; the tokens are counted right."""
    check_block_pool(pool.block_pool)
    if pool.range.closed:
        must(not (pool.sequences or pool.tokens or pool.committed), "a closed pool has something left")
        return
    chunks = sorted(pool.memory.chunks(pool.block_pool.committed))
    must(pool.range.held_chunks() == chunks, "committed chunks are not those of the committed rows")
    must(not pool.prealloc or pool.block_pool.committed.count == pool.block_pool.max_rows, "a row was given back")
    _check_tables(pool)


def _check_tables(pool: PoolState) -> None:
    """Each open row has a sequence; what stands in tables is held so often; each token of a block counts once."""
    table, counts = pool.table, pool.block_pool.counts.numbers
    must(sorted(table.open_rows()) == sorted(one.row for one in pool.sequences), "a row has no sequence")
    must((table.dropped * table.block_size <= table.lengths).all(), "a row has dropped more tokens than it had")
    named, tokens = table.fills()
    blocks, first, times = np.unique(named, return_index=True, return_counts=True)
    if pool.prefix:
        check_prefix(pool.prefix, set(blocks.tolist()))
        counts = counts - (pool.prefix.cache.nodes >= 0)
    short = blocks[counts[blocks] < times]
    must(not len(short), f"block {short[:1]} is in more tables than it is counted times")
    filled = int(tokens[first].sum())
    must(pool.tokens == filled, f"{pool.tokens} tokens counted, {filled} in tables")
