"""Chain hash: one 64-bit key a block of tokens, in which every block before it counts. Vectorised over a prompt.

    sum[i] = sum[i - 1] + weight[i] * (1 + sum over slots s of token[i, s] * multiplier[s])    (modulo 2**64)
    key[i] = sum[i] ^ (sum[i] >> 32),   sum[-1] from the salt

Weights and multipliers are odd and secret, a weight for each place in the chain: powers of one number in its stead
would let prompts of 1,024 blocks be made that always have one key (two blocks in the order of Thue and Morse), and
they would slow everybody down. The last step brings the better half of the bits to where a dict looks. Sixty-four bits
are enough because nothing relies on them: a hit compares the tokens, and which block stands before.
"""

from __future__ import annotations

import functools
import operator
import os
from typing import Any

import numpy as np

Tokens = np.ndarray[Any, np.dtype[np.int32]]
"""int32 [n]: token ids."""
Keys = np.ndarray[Any, np.dtype[np.uint64]]
"""uint64 [blocks]."""

_SECRET = int.from_bytes(os.urandom(7), "little")
_WORD = (1 << 64) - 1
_ONE, _SHIFT = np.uint64(1), np.uint64(32)
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def chain_keys(tokens: Tokens, block_size: int, before: int, place: int = 0) -> Keys:
    """The keys of the whole blocks of ``tokens``, after ``place`` blocks the last of which has the key ``before``."""
    count = len(tokens) // block_size
    if count == 1:
        return np.array([_one_key(tokens[:block_size].tolist(), block_size, before, place)], np.uint64)
    blocks = tokens[: count * block_size].reshape(count, block_size).astype(np.uint64)
    sums = blocks @ multipliers(block_size)
    sums += _ONE  # or tokens that are all 0 would not count
    sums *= weights(_power_of_two(place + count))[place : place + count]
    np.add.accumulate(sums, out=sums)
    sums += np.uint64(before ^ (before >> 32))
    keys: Keys = sums >> _SHIFT
    keys ^= sums
    return keys


def _one_key(tokens: list[int], block_size: int, before: int, place: int) -> int:
    """The key of one block, as a decode step asks for it: in a third of the time that NumPy needs."""
    weight = int(weights(_power_of_two(place + 1))[place])
    alone: int = 1 + sum(map(operator.mul, tokens, _multiplier_list(block_size)))
    total = ((before ^ (before >> 32)) + weight * alone) & _WORD
    return total ^ (total >> 32)


@functools.lru_cache(maxsize=4096)
def root_key(salt: int) -> int:
    """The key that stands before the first block, for one tenant's ``salt``."""
    return int(_mix(np.array([hash((_SECRET, salt)) & _WORD], np.uint64))[0])


@functools.lru_cache(maxsize=64)
def multipliers(block_size: int) -> Keys:
    """uint64 [block_size]: one for each slot of a block."""
    return _odd_numbers(0, block_size)


@functools.lru_cache(maxsize=64)
def _multiplier_list(block_size: int) -> list[int]:
    listed: list[int] = multipliers(block_size).tolist()
    return listed


@functools.lru_cache(maxsize=64)
def weights(count: int) -> Keys:
    """uint64 [count]: one for each place in a chain; more of them begin with the same."""
    return _odd_numbers(1, count)


def _odd_numbers(series: int, count: int) -> Keys:
    """Odd numbers that nobody outside knows."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mix(steps + np.uint64(hash((_SECRET, series)) & _WORD)) | np.uint64(1)


def _power_of_two(count: int) -> int:
    return max(64, 1 << (count - 1).bit_length())


def _mix(values: Keys) -> Keys:
    """Spread every bit over the word (the last steps of splitmix64)."""
    mixed = values.copy()
    for shift, multiplier in _STEPS:
        mixed ^= mixed >> shift
        mixed *= multiplier
    mixed ^= mixed >> np.uint64(31)
    return mixed
