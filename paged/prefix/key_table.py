"""KeyTable: from the key of a block's tokens and all before them to the blocks that have it. Integers only.

A hash table whose buckets are lists that run through the blocks themselves: the first block of each bucket, and of each
block the next one. So a whole prompt comes and goes in a few steps of NumPy, and no Python object is made for a block.
Keys with several blocks (equal prompts computed at once, or keys that happen to be equal) need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..blocks.block_ids import Ids
from .chain_hash import Keys

_NONE = -1


class KeyTable:
    """``keys`` uint64 [blocks]: the key of each block that is in the table."""

    def __init__(self, blocks: int) -> None:
        buckets = 1 << (blocks - 1).bit_length()  # at least one a block, so that few have more than two
        self.keys = np.zeros(blocks, np.uint64)
        self._firsts: np.ndarray[Any, np.dtype[np.int32]] = np.full(buckets, _NONE, np.int32)
        self._nexts = np.full(blocks, _NONE, np.int64)
        self._mask, self._last = np.uint64(buckets - 1), buckets - 1
        self._key: memoryview[int] = memoryview(self.keys.data)  # the same, for one at a time
        self._first: memoryview[int] = memoryview(self._firsts.data)
        self._next: memoryview[int] = memoryview(self._nexts.data)

    # -- questions ----------------------------------------------------------------------------------------------

    def all_of(self, key: int) -> Iterator[int]:
        """Every block of one key."""
        block = self._first[key & self._last]
        while block != _NONE:
            if self._key[block] == key:
                yield block
            block = self._next[block]

    def has(self, key: int) -> bool:
        """Whether some block has this key."""
        block = self._first[key & self._last]
        while block != _NONE and self._key[block] != key:
            block = self._next[block]
        return block != _NONE

    def first_of(self, keys: Keys) -> Ids:
        """A block of each key, int64, up to the first key that has none."""
        found: Ids = self._firsts[self._buckets(keys)].astype(np.int64)
        others = np.flatnonzero((found >= 0) & (self.keys[found] != keys))
        while len(others):  # the next in the bucket
            found[others] = nexts = self._nexts[found[others]]
            others = others[(nexts >= 0) & (self.keys[nexts] != keys[others])]
        without = np.flatnonzero(found < 0)
        return found[: without[0]] if len(without) else found

    def listed(self) -> list[int]:
        """Every block that stands in the bucket of its key, as often as it does."""
        buckets = np.flatnonzero(self._firsts != _NONE)
        blocks, found = self._firsts[buckets].astype(np.int64), list[int]()
        while len(blocks) and len(found) <= len(self.keys):
            found += blocks[self._buckets(self.keys[blocks]) == buckets].tolist()
            blocks = self._nexts[blocks]
            buckets, blocks = buckets[blocks != _NONE], blocks[blocks != _NONE]
        return found

    # -- changes ------------------------------------------------------------------------------------------------

    def add(self, key: int, block: int) -> None:
        """Take in one block that is not in."""
        bucket = key & self._last
        self._key[block] = key
        self._next[block] = self._first[bucket]
        self._first[bucket] = block

    def add_all(self, keys: Keys, blocks: Ids) -> None:
        """Take in blocks that are not in."""
        buckets = self._buckets(keys)
        self.keys[blocks] = keys
        self._nexts[blocks] = self._firsts[buckets]
        self._firsts[buckets] = blocks
        first = self._firsts[buckets] == blocks
        if np.count_nonzero(first) < len(blocks):  # of two in the same bucket only one is the first
            for block in blocks[~first].tolist():
                self.add(self._key[block], block)

    def remove(self, blocks: Ids) -> None:
        """Strike blocks out; their ``keys`` can still be read."""
        buckets = self._buckets(self.keys[blocks])
        first = self._firsts[buckets] == blocks
        self._firsts[buckets[first]] = self._nexts[blocks[first]]
        if np.count_nonzero(first) < len(blocks):
            for block in blocks[~first].tolist():
                self._remove_inside(block)

    def rename(self, sources: Ids, targets: Ids) -> None:
        """Blocks have moved."""
        self.remove(sources)
        self.add_all(self.keys[sources], targets)

    def clear(self) -> None:
        """Nothing has a key."""
        self._firsts[:] = _NONE

    # -- steps --------------------------------------------------------------------------------------------------

    def _buckets(self, keys: Keys) -> Ids:
        """The bucket of each key."""
        buckets: Ids = (keys & self._mask).view(np.int64)
        return buckets

    def _remove_inside(self, block: int) -> None:
        """Strike out a block, wherever it is in its bucket."""
        bucket, following = self._key[block] & self._last, self._next[block]
        before = self._first[bucket]
        if before == block:
            self._first[bucket] = following
            return
        while self._next[before] != block:
            before = self._next[before]
        self._next[before] = following
