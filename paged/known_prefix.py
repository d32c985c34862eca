"""What a pool's prefix cache knows of a prompt: nothing, once the bytes were lost."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING

from .blocks.block_ids import Ids as Blocks
from .prefix.chain_hash import Tokens
from .prefix.known_tokens import KnownTokens, as_ids
from .whole_number import whole_number

if TYPE_CHECKING:
    from .pool import KVPool


def hold_prefix(pool: KVPool, prompt: Ids[int] | Tokens, salt: int) -> tuple[Blocks, KnownTokens]:
    """Hold the blocks of a prompt's known prefix for a new sequence.

    Raises ValueError for ids that are none, and for a pool without a prefix cache.
    """
    ids, salt = as_ids(prompt), whole_number("salt", salt)
    if ids is None or pool.prefix is None:
        what = "has no prefix cache; make it with prefix_cache=True"
        if ids is None:
            what = f"takes token ids, a list or an int32 array, not {prompt!r}"
        raise ValueError(f"a prompt was given and {pool.range.name!r} {what}")
    forget_lost(pool)
    blocks, known, idle = pool.prefix.hit_array(ids, salt)
    pool.tokens += idle * pool.layout.block_size
    return blocks, known


def forget_lost(pool: KVPool) -> None:
    """After a sleep without a backup nothing is known any more."""
    losses = pool.range.losses
    if pool.prefix and pool.prefix_losses != losses:
        pool.prefix.clear()
        pool.prefix_losses = losses
