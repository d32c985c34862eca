"""What a pool's prefix cache knows of a prompt: nothing, once the bytes were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm import RangeError

from .allocation import can_take
from .blocks.block_ids import Ids as Blocks
from .prefix.cached_blocks import CachedBlocks
from .prefix.chain_hash import Tokens
from .prefix.known_tokens import KnownTokens, TokenIds, as_ids
from .whole_number import whole_number

if TYPE_CHECKING:
    from .pool import KVPool


def hold_prefix(pool: KVPool, prompt: TokenIds, salt: int) -> tuple[Blocks, KnownTokens]:
    """Hold the blocks of a prompt's known prefix for a new sequence.

    Raises ValueError for ids that are none, and for a pool without a prefix cache.
    """
    cache, ids, salt = _asked(pool, prompt, salt)
    forget_lost(pool)
    blocks, known, idle = cache.hit(ids, salt)
    pool.tokens += idle * pool.layout.block_size
    return blocks, known


def can_hold(pool: KVPool, prompt: TokenIds, salt: int, spare: int) -> bool:
    """What ``KVPool.can_begin`` says of a pool that is awake."""
    if spare < 0:
        raise RangeError(f"spare must be 0 blocks or more, not {spare}")
    cache, ids, salt = _asked(pool, prompt, salt)
    needed = -(-len(ids) // pool.layout.block_size) + spare
    if can_take(pool, needed):
        return True
    # Idle blocks of the prefix are counted as grantable; those that others hold are neither taken nor evicted.
    return pool.prefix_losses == pool.range.losses and can_take(pool, needed - cache.cache.in_use(ids, salt))


def _asked(pool: KVPool, prompt: TokenIds, salt: int) -> tuple[CachedBlocks, Tokens, int]:
    """The cache, and a prompt and its salt as it takes them."""
    ids = as_ids(prompt)
    if ids is None or pool.prefix is None:
        what = "has no prefix cache; make it with prefix_cache=True"
        if ids is None:
            what = f"takes token ids, a list or an int32 array, not {prompt!r}"
        raise ValueError(f"a prompt was given and {pool.range.name!r} {what}")
    return pool.prefix, ids, whole_number("salt", salt)


def forget_lost(pool: KVPool) -> None:
    """After a sleep without a backup nothing is known any more."""
    losses = pool.range.losses
    if pool.prefix and pool.prefix_losses != losses:
        pool.prefix.clear()
        pool.prefix_losses = losses
