"""What must always be true of a pool. The checks recompute everything from the counts and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .block_invariants import check_block_pool
from .block_invariants import must as must

if TYPE_CHECKING:
    from .cached_blocks import CachedBlocks
    from .pool import KVPool


def check_prefix(prefix: CachedBlocks, holders: dict[int, int]) -> None:
    """The cache holds each of its blocks once; idle is what nobody else holds; every chain of keys is whole."""
    cache, counts = prefix.cache, prefix.pool
    held = {block for block in range(counts.rows.blocks) if block in cache}
    must(len(cache) == len(held), f"{len(cache)} blocks counted in the cache, {len(held)} are")
    idle = {block for block in held if counts.count(block) == 1}
    must(set(cache.idle) == idle, "the idle blocks are not those that only the cache holds")
    must(not idle & holders.keys(), "an idle block stands in a table")
    chained = [block for key in cache._first for block in cache._chain(key)]
    must(sorted(chained) == sorted(held), "a block of the cache cannot be found by its key")


def check_pool(pool: KVPool) -> None:
    """The ids, the rows and the driver's layer agree; tables hold live blocks; the tokens are counted right."""
    check_block_pool(pool.block_pool)
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
