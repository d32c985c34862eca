"""CachedBlocks: a BlockPool whose blocks outlive their sequences while there is room, for prompts that begin alike.

Joins the ids of the pool to the nodes of the PrefixCache. Integers only. The cache holds one count of each of its
blocks, so that free + referenced + cached-and-idle is always all there is, a shared block counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vmm import StateError

from .block_pool import BlockPool
from .chain_hash import Tokens
from .known_tokens import KnownTokens
from .prefix_cache import PrefixCache


class CachedBlocks:
    """``cache`` finds blocks by their tokens; ``pool`` counts who holds them."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.pool = pool
        self.cache = PrefixCache(pool.rows.blocks, block_size)

    def holders(self, block: int) -> int:
        """How many hold a block besides the cache."""
        return self.pool.count(block) - (block in self.cache)

    def hit(self, ids: Tokens, salt: int) -> tuple[list[int], KnownTokens, int]:
        """Hold the blocks of the longest known prefix of a prompt.

        Returns them, what is known of the prompt, and how many of them nobody held.
        """
        blocks, keys = self.cache.match(ids, salt)
        known = KnownTokens(ids, salt)
        known.keys, known.stored = keys, len(blocks)
        self.pool.fork(blocks)
        return blocks, known, self.cache.use(blocks)

    def publish(self, known: KnownTokens, table: Sequence[int], length: int) -> None:
        """Let others find the whole blocks of a sequence of ``length`` tokens, whose bytes are queued to be written."""
        full = min(length, known.count) // self.cache.block_size
        if full <= known.stored:
            return
        start = len(known.keys) * self.cache.block_size
        before = known.keys[-1] if known.keys else None
        known.keys += self.cache.keys(known.ids[start : full * self.cache.block_size], known.salt, before)
        while known.stored < full and table[known.stored] in self.cache:  # a fork has them in already
            known.stored += 1
        self.pool.fork(table[known.stored : full])
        self.cache.store(known.ids, known.keys[:full], known.salt, table[:full], known.stored)
        known.stored = full

    def check_held(self, blocks: Sequence[int]) -> None:
        """Raise StateError, naming it, for a block that is given up more often than anybody but the cache holds it."""
        for block, times in Counter(blocks).items():
            if 0 <= block < self.pool.rows.blocks and block in self.cache and self.holders(block) < times:
                raise StateError(f"block {block} is freed more often than it is held; nothing was freed")

    def let_go(self, blocks: Sequence[int]) -> None:
        """Forget those of ``blocks`` that would be idle once they are freed: their memory is wanted."""
        times = Counter(blocks)
        going = [block for block in times if block in self.cache and self.holders(block) == times[block]]
        self.cache.forget(going)
        self.pool.free(going)

    def rest(self, freed: Iterable[int]) -> None:
        """Blocks were freed, in the order of a table: those that only the cache holds now are idle."""
        count, cache = self.pool.count, self.cache
        self.cache.rest([block for block in freed if block in cache and count(block) == 1])

    def evict(self, blocks: int) -> None:
        """Drop so many idle blocks, the least recently used first; they are free, in rows that stay committed."""
        self.pool.free(self.cache.evict(blocks))

    def clear(self) -> None:
        """Forget everything, because the bytes are gone."""
        self.pool.free(self.cache.clear())
