"""What must always be true of the blocks of a prefix cache: recomputed from the counts of its pool, and compared."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from ..blocks.block_invariants import must

if TYPE_CHECKING:
    from .cached_blocks import CachedBlocks


def check_prefix(prefix: CachedBlocks, holders: Collection[int]) -> None:
    """The cache holds each of its blocks once; idle is what nobody else holds; every block is found by its key.

    ``holders`` are the blocks that stand in tables.
    """
    cache, counts = prefix.cache, prefix.pool.counts.numbers
    mine = cache.nodes >= 0
    held, idle = np.flatnonzero(mine).tolist(), np.flatnonzero(mine & (counts == 1)).tolist()
    must(not (mine & (counts == 0)).any(), "a block of the cache is free")
    must(len(cache) == len(held), f"{len(cache)} blocks counted in the cache, {len(held)} are")
    must(sorted(cache.idle) == idle, "the idle blocks are not those that only the cache holds")
    must(cache.idle_count == len(idle), f"{cache.idle_count} idle blocks counted, {len(idle)} are")
    must(set(idle).isdisjoint(holders), "an idle block stands in a table")
    must(sorted(cache.listed()) == held, "a block of the cache cannot be found by its key")
    firsts = cache.parents[mine & (cache.parents < -1)]
    must(
        len(set(firsts.tolist())) == len(cache.chains.roots),
        "a salt without blocks is remembered, or one with blocks is not",
    )
    must(prefix.max_idle is None or len(idle) <= prefix.max_idle, "more blocks are idle than may be")
