"""Chain hash: one 64-bit key a block of tokens, in which every block before it counts. Vectorised over a prompt.

    sum[i] = sum[i - 1] + weight[i] * (1 + sum over words w of word[i, w] * multiplier[w])    (modulo 2**64)
    key[i] = sum[i] ^ (sum[i] >> 32),   sum[-1] from the salt

A word is two tokens side by side as they lie in memory, which costs no copy; or one, where a block has an odd number.
Weights and multipliers are odd and secret, a weight for each place in the chain: powers of one number in its stead
would let prompts of 1,024 blocks be made that always have one key (two blocks in the order of Thue and Morse), and
they would slow everybody down. The last step brings the better half of the bits to where a dict looks. Sixty-four bits
are enough because nothing relies on them: a hit compares the tokens, and which block stands before. (Of blocks that
differ only in second tokens of words, and in two or more, the upper 32 bits alone can differ before the last step.)
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
    words = _words(tokens[: count * block_size], block_size)
    if count == 1:
        return np.array([_one_key(words.tolist(), before, place)], np.uint64)
    each = block_size if block_size % 2 else block_size // 2
    sums = words.reshape(count, each) @ multipliers(each)
    sums += _ONE  # or tokens that are all 0 would not count
    sums *= weights(_power_of_two(place + count))[place : place + count]
    np.add.accumulate(sums, out=sums)
    sums += np.uint64(before ^ (before >> 32))
    keys: Keys = sums >> _SHIFT
    keys ^= sums
    return keys


def _words(tokens: Tokens, block_size: int) -> Keys:
    """The words of whole blocks, uint64 [blocks * words a block]."""
    if block_size % 2:
        return tokens.astype(np.uint64)
    words: Keys = np.ascontiguousarray(tokens).view(np.uint64)
    return words


def _one_key(words: list[int], before: int, place: int) -> int:
    """The key of one block, as a decode step asks for it: in a third of the time that NumPy needs."""
    weight = int(weights(_power_of_two(place + 1))[place])
    alone: int = 1 + sum(map(operator.mul, words, _multiplier_list(len(words))))
    total = ((before ^ (before >> 32)) + weight * alone) & _WORD
    return total ^ (total >> 32)


@functools.lru_cache(maxsize=4096)
def root_key(salt: int) -> int:
    """The key that stands before the first block, for one tenant's ``salt``.

    Of its digits: numbers that differ by a multiple of 2**61 - 1 have the same hash, and so have -1 and -2.
    """
    return int(_mix(np.array([hash((_SECRET, hex(salt))) & _WORD], np.uint64))[0])


@functools.lru_cache(maxsize=64)
def multipliers(words: int) -> Keys:
    """uint64 [words]: one for each word of a block."""
    return _odd_numbers(0, words)


@functools.lru_cache(maxsize=64)
def _multiplier_list(words: int) -> list[int]:
    listed: list[int] = multipliers(words).tolist()
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
