"""Eviction: in which order the idle blocks of a prefix cache go. Integers only.

* "lru": the least recently used first. Keeps what is likely to be asked again; rows come free by chance.
* "row": the blocks that free a row of memory soonest. Rows without a held block come first, those with the fewest idle
  blocks first among them, and of equal rows the one that was not used for longest.
* "blend": as "row", but rows with a block of that quarter of the idle ones that was used last go after all others.

In each order the deepest blocks of a chain go first, for a block is of no use without those before it: in "row" and
"blend" a block goes at the latest with the first of those before it. These two look at every idle block, and so choose
for a sixteenth of them at a time; blocks that are used meanwhile are passed over.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from vmm import StateError

from ..blocks.block_ids import Ids
from ..blocks.block_pool import BlockPool
from .prefix_cache import PrefixCache

Order = Literal["lru", "row", "blend"]


class Eviction:
    """Chooses among the idle blocks of ``cache``, whose ids are those of ``pool``, and drops them."""

    def __init__(self, pool: BlockPool, cache: PrefixCache, order: Order) -> None:
        if order not in get_args(Order):
            raise ValueError(f"order must be one of {', '.join(get_args(Order))}, not {order!r}")
        self.order = order
        self._pool, self._cache = pool, cache
        self._chosen = np.zeros((2, 0), np.int64)  # blocks, and the turns in which they came to rest

    def evict(self, count: int) -> Ids:
        """Drop exactly ``count`` idle blocks and return them. Raises StateError if there are not so many."""
        if self.order == "lru":
            return self._cache.evict(count)
        if not 0 <= count <= self._cache.idle_count:
            raise StateError(f"{count} blocks are to be evicted, {self._cache.idle_count} are idle")
        leaving = self._next(count)
        self._cache.evict_these(leaving)
        return leaving

    def _next(self, count: int) -> Ids:
        """The next ``count`` victims, of those that were chosen before or anew."""
        turns = self._cache.idle_blocks.turns
        for look in (2 * count + 16, self._chosen.shape[1]):  # mostly the first few are idle still
            ahead = self._chosen[:, :look]
            good = np.flatnonzero(turns[ahead[0]] == ahead[1])[:count]
            if len(good) == count:
                break
        else:
            idle = self._cache.idle_blocks.listed()
            blocks = self._by_row(idle)[: max(count, len(idle) // 16)]
            self._chosen = ahead = np.stack((blocks, turns[blocks]))
            good = np.arange(count)
        self._chosen = self._chosen[:, good[-1] + 1 if count else 0 :]
        leaving: Ids = ahead[0, good]
        return leaving

    def _by_row(self, idle: Ids) -> Ids:
        """Idle blocks, given with the least recently used first, in the order "row"."""
        if not len(idle):
            return idle
        above = self._before(idle)
        ranks, depths = self._row_ranks(idle), np.zeros(len(idle), np.int64)
        depths[above != np.arange(len(idle))] = 1
        while True:  # twice as far up each time: the least rank of all before, and how many they are
            further = above[above]
            ranks = np.minimum(ranks, ranks[above])
            depths = depths + depths[above]
            if np.array_equal(further, above):
                break
            above = further
        return idle[np.lexsort((np.arange(len(idle)), -depths, ranks))]

    def _before(self, idle: Ids) -> Ids:
        """For each idle block the place of the idle block before it in its chain, or its own."""
        nodes, parents = self._cache.nodes[idle], self._cache.parents[idle]
        order = np.argsort(nodes)
        places = order[np.minimum(np.searchsorted(nodes, parents, sorter=order), len(idle) - 1)]
        found: Ids = np.where(nodes[places] == parents, places, np.arange(len(idle)))
        return found

    def _row_ranks(self, idle: Ids) -> Ids:
        """For each idle block how soon one of its rows comes free; the first is 0."""
        rows, counts = self._pool.rows, self._pool.counts.numbers
        stride, chunk = rows.block_stride, rows.chunk
        others = counts > 0
        others[idle] = False
        kept = _per_row(np.flatnonzero(others), stride, chunk, rows.count) > 0
        number = _per_row(idle, stride, chunk, rows.count)
        age = np.zeros(rows.count, np.int64)
        first, last = idle * stride // chunk, ((idle + 1) * stride - 1) // chunk
        np.maximum.at(age, first, np.arange(len(idle)))  # when the last of its blocks was used
        np.maximum.at(age, last, np.arange(len(idle)))
        late = age >= len(idle) - len(idle) // 4 if self.order == "blend" else np.zeros(rows.count, np.bool_)
        rank = np.empty(rows.count, np.int64)
        rank[np.lexsort((age, number, late, number == 0, kept))] = np.arange(rows.count)
        best: Ids = rank[first]
        for further in range(1, int((last - first).max()) + 1):
            best = np.minimum(best, rank[np.minimum(first + further, last)])
        return best


def _per_row(blocks: Ids, stride: int, chunk: int, rows: int) -> Ids:
    """How many of ``blocks`` lie in each row, whole or in part."""
    starts = np.bincount(blocks * stride // chunk, minlength=rows + 1)
    stops = np.bincount(((blocks + 1) * stride - 1) // chunk + 1, minlength=rows + 1)
    inside: Ids = np.cumsum(starts - stops)[:rows]
    return inside
