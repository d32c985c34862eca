"""Chain hash: one 64-bit key a block of tokens, in which every block before it counts. Vectorised over a prompt.

    b[i] = mix(sum over slots s of token[i, s] * multiplier[s])
    key[i] = key[i - 1] * M + b[i],  key[-1] from the salt          (all modulo 2**64)

Since M is odd it has an inverse, so that the chain is a cumulative sum: key[i] = M**(i+1) * (key[-1] + sum of b[j] *
M**-(j+1) for j <= i). Sixty-four bits are enough because nothing relies on them: a hit compares the tokens, and which
block stands before.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

Tokens = np.ndarray[Any, np.dtype[np.int32]]
"""int32 [n]: token ids."""
Keys = np.ndarray[Any, np.dtype[np.uint64]]

_M = 0x9E3779B97F4A7C15  # odd; the golden ratio in 64 bits
_SECRET = int.from_bytes(os.urandom(7), "little")
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def chain_keys(tokens: Tokens, block_size: int, before: int) -> Keys:
    """The keys of the whole blocks of ``tokens``, the first of them after the key ``before``; uint64 [blocks]."""
    count = len(tokens) // block_size
    blocks = tokens[: count * block_size].reshape(count, block_size).astype(np.uint64)
    sums = _mix(blocks @ _multipliers(block_size))
    powers, inverses = _powers(max(64, 1 << (count - 1).bit_length()))
    chain = np.cumsum(sums * inverses[:count], dtype=np.uint64) + np.uint64(before)
    keys: Keys = chain * powers[:count]
    return keys


@functools.lru_cache(maxsize=4096)
def root_key(salt: int) -> int:
    """The key that stands before the first block, for one tenant's ``salt``."""
    return int(_mix(np.array([hash((_SECRET, salt)) & 0xFFFF_FFFF_FFFF_FFFF], np.uint64))[0])


def _mix(values: Keys) -> Keys:
    """Spread every bit over the word, so that sums of small tokens do not stay small (splitmix64's last steps)."""
    mixed = values.copy()
    for shift, multiplier in _STEPS:
        mixed ^= mixed >> shift
        mixed *= multiplier
    mixed ^= mixed >> np.uint64(31)
    return mixed


@functools.lru_cache(maxsize=64)
def _multipliers(block_size: int) -> Keys:
    """Odd, and known to nobody outside: prompts that are made to have one key would slow everybody down."""
    return _mix(np.arange(1, block_size + 1, dtype=np.uint64) * np.uint64(_M) + np.uint64(_SECRET)) | np.uint64(1)


@functools.lru_cache(maxsize=32)
def _powers(count: int) -> tuple[Keys, Keys]:
    """M**1 to M**count, and their inverses."""
    inverse = pow(_M, -1, 1 << 64)
    return (
        np.cumprod(np.full(count, _M, np.uint64), dtype=np.uint64),
        np.cumprod(np.full(count, inverse, np.uint64), dtype=np.uint64),
    )
