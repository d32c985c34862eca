"""What must always be true of a pool. The checks recompute everything from the counts and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blocks.block_invariants import check_block_pool
from .blocks.block_invariants import must as must
from .prefix.cache_invariants import check_prefix

if TYPE_CHECKING:
    from .pool import KVPool


def check_pool(pool: KVPool) -> None:
    """The ids, the rows and the driver's layer agree; tables hold live blocks; the tokens are counted right."""
    check_block_pool(pool.block_pool)
    if pool.range.closed:
        must(not (pool.sequences or pool.tokens or pool.committed), "a closed pool has something left")
        return
    chunks = sorted(pool.memory.chunks(pool.block_pool.committed))
    must(pool.range.held_chunks() == chunks, "committed chunks are not those of the committed rows")
    must(not pool.prealloc or pool.block_pool.committed.count == pool.block_pool.max_rows, "a row was given back")
    size = pool.layout.block_size
    holders: dict[int, int] = {}
    filled: dict[int, int] = {}
    must(sorted(pool.table.open_rows()) == sorted(one.row for one in pool.sequences), "a row has no sequence")
    for sequence in pool.sequences:
        must(sequence.dropped <= sequence.length, f"{sequence} has dropped {sequence.dropped} tokens")
        for first, block in zip(range(sequence.dropped, sequence.length, size), sequence.held, strict=True):
            holders[block] = holders.get(block, 0) + 1
            filled[block] = min(size, sequence.length - first)
    if pool.prefix:
        check_prefix(pool.prefix, holders)
    for block, number in holders.items():
        must(pool.count(block) >= number, f"block {block} is in {number} tables, counted {pool.count(block)} times")
    must(pool.tokens == sum(filled.values()), f"{pool.tokens} tokens counted, {sum(filled.values())} in tables")
