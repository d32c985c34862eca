"""CachedBlocks: a BlockPool whose blocks outlive their sequences while there is room, for prompts that begin alike.

Joins the ids of the pool to the nodes of the PrefixCache. Integers only. The cache holds one count of each of its
blocks, so that free + referenced + cached-and-idle is always all there is, a shared block counted once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vmm import StateError

from ..blocks.block_ids import Ids, id_array
from ..blocks.block_pool import BlockPool
from .cache_events import Listener
from .chain_hash import Tokens
from .eviction import Eviction, Order
from .known_tokens import KnownTokens
from .prefix_cache import PrefixCache
from .table_hints import wants_table


class CachedBlocks:
    """``cache`` finds blocks by their tokens; ``pool`` counts who holds them.

    ``order`` says which idle blocks go first (see ``eviction``); at most ``max_idle`` stay (None: all). ``events`` is
    told what is stored, hit and removed. Raises ValueError for an order that is none.
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        *,
        order: Order = "lru",
        max_idle: int | None = None,
        events: Listener | None = None,
    ) -> None:
        self.pool = pool
        self.max_idle = max_idle
        self.cache = PrefixCache(pool.rows.blocks, block_size, events=events)
        self._eviction = Eviction(pool, self.cache, order)

    def holders(self, block: int) -> int:
        """How many hold a block besides the cache."""
        return self.pool.count(block) - (block in self.cache)

    def holders_of(self, blocks: Sequence[int] | Ids) -> Ids:
        """As ``holders`` of each of many blocks, int64 [blocks]."""
        ids = id_array(blocks, self.pool.rows.blocks)
        return self.pool.counts.numbers[ids].astype(np.int64) - (self.cache.nodes[ids] >= 0)

    def hit(self, ids: Tokens, salt: int) -> tuple[Ids, KnownTokens, int]:
        """Hold the blocks of the longest known prefix of a prompt.

        Returns them, what is known of the prompt, and how many of them nobody held.
        """
        blocks, keys = self.cache.match(ids, salt)
        count = len(blocks)
        known = KnownTokens(ids, salt, keys, count)
        if not count:
            return blocks, known, 0
        self.pool.share(blocks)
        return blocks, known, self.cache.use_distinct(blocks)

    def publish(self, known: KnownTokens, table: Sequence[int] | Ids, length: int) -> None:
        """Let others find the whole blocks of a sequence of ``length`` tokens, whose bytes are queued to be written."""
        cache, full = self.cache, min(length, known.count) // self.cache.block_size
        if full <= known.stored:
            return
        if len(known.keys) < full:
            self._lengthen_keys(known, full)
        while known.stored < full and int(table[known.stored]) in cache:  # a fork has them in already
            known.stored += 1
        stored = known.stored
        if stored == full:
            return
        blocks = np.array(table[max(stored - 1, 0) : full], np.int64)
        cache.store(known.ids, known.keys, known.salt, blocks, stored)
        self.pool.share(blocks[1:] if stored else blocks)
        if wants_table(stored, full):
            cache.chains.note_table(np.array(table[:full], np.int64) if stored else blocks, known.salt)
        known.stored = full

    def check_held(self, blocks: Sequence[int] | Ids) -> None:
        """Raise StateError, naming it, for a block that is given up more often than anybody but the cache holds it."""
        ids = id_array(blocks, self.pool.rows.blocks)
        mine = self.cache.nodes[ids] >= 0
        times = np.ones(len(ids), np.int64)
        if not self.pool.counts.are_distinct(ids):
            _, which, number = np.unique(ids, return_inverse=True, return_counts=True)
            times = number[which]
        wrong = mine & (self.pool.counts.numbers[ids] - 1 < times)
        if np.count_nonzero(wrong):
            raise StateError(f"block {ids[wrong][0]} is freed more often than it is held; nothing was freed")

    def let_go(self, blocks: Sequence[int] | Ids) -> None:
        """Forget all that is idle, and those of ``blocks`` that would be once freed: their memory is wanted."""
        self.evict(self.cache.idle_count)
        ids, times = np.unique(np.asarray(blocks, np.int64), return_counts=True)
        going = ids[(self.cache.nodes[ids] >= 0) & (self.pool.counts.numbers[ids] - 1 == times)]
        self.cache.forget(going)
        self.pool.free(going)

    def rest(self, freed: Sequence[int] | Ids) -> None:
        """Blocks were freed, in the order of a table: those that only the cache holds now are idle."""
        ids = np.asarray(freed, np.int64)
        ids = ids[(self.cache.nodes[ids] >= 0) & (self.pool.counts.numbers[ids] == 1)]
        if len(ids) and not self.pool.counts.are_distinct(ids):
            ids = ids[np.sort(np.unique(ids, return_index=True)[1])]
        self.cache.rest(ids)
        if self.max_idle is not None and self.cache.idle_count > self.max_idle:
            self.evict(self.cache.idle_count - self.max_idle)

    def evict(self, blocks: int) -> None:
        """Drop exactly so many idle blocks, in the order of eviction; they are free, in rows that stay committed.

        Raises StateError, with both numbers, if there are not so many; nothing has changed then.
        """
        self.pool.free(self._eviction.evict(blocks))

    def clear(self) -> None:
        """Forget everything, because the bytes are gone."""
        self.pool.free(self.cache.clear())

    def _lengthen_keys(self, known: KnownTokens, full: int) -> None:
        """Have the keys of the first ``full`` blocks."""
        have, size = len(known.keys), self.cache.block_size
        before = int(known.keys[-1]) if have else None
        more = self.cache.keys(known.ids[have * size : full * size], known.salt, before, have)
        known.keys = np.concatenate((known.keys, more))
