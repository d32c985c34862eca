"""KeyTable: from the key of a block's tokens and all before them to the blocks that have it. Integers only.

Nearly every key has one block. Those of several (equal prompts computed at once, or two keys that happen to be equal)
have the rest in a dict of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blocks.block_ids import Ids
from .chain_hash import Keys


class KeyTable:
    """``keys`` uint64 [blocks]: the key of each block that is in the table."""

    def __init__(self, blocks: int) -> None:
        self.keys = np.zeros(blocks, np.uint64)
        self._key: memoryview[int] = memoryview(self.keys.data)  # the same, for one at a time
        self._first: dict[int, int] = {}
        self._others: dict[int, list[int]] = {}

    def has(self, key: int) -> bool:
        """Whether some block has this key."""
        return key in self._first

    def first(self, key: int) -> int | None:
        """A block of this key."""
        return self._first.get(key)

    def first_of(self, keys: list[int]) -> Ids:
        """A block of each key, int64, up to the first key that has none."""
        blocks = list(map(self._first.get, keys))
        try:
            return np.array(blocks, np.int64)
        except TypeError:  # one is None
            return np.array(blocks[: blocks.index(None)], np.int64)

    def all_of(self, key: int) -> list[int]:
        """Every block of one key."""
        first = self._first.get(key)
        return [] if first is None else [first, *self._others.get(key, ())]

    def listed(self) -> list[int]:
        """Every block, as often as it stands."""
        return [*self._first.values(), *(block for blocks in self._others.values() for block in blocks)]

    def add_new(self, keys: Keys, blocks: Ids) -> bool:
        """Take in blocks whose keys nobody has, as nearly always, in one step.

        Where somebody has, the answer is False, and ``add`` is to be called for each block.
        """
        fresh, new = keys.tolist(), blocks.tolist()
        if list(map(self._first.setdefault, fresh, new)) != new:
            return False
        self.keys[blocks] = keys
        return True

    def add(self, key: int, block: int) -> None:
        """Take in one block, if it is not in yet."""
        self._key[block] = key
        if self._first.setdefault(key, block) != block:
            self._others.setdefault(key, []).append(block)

    def remove(self, blocks: Ids) -> list[int]:
        """Strike blocks out, and return their keys."""
        keys: list[int] = self.keys[blocks].tolist()
        first, others = self._first, self._others
        for place, key in enumerate(keys):
            if key in others:
                self._replace(key, int(blocks[place]), None)
            else:
                del first[key]
        return keys

    def rename(self, sources: Ids, targets: Ids) -> None:
        """Blocks have moved."""
        self.keys[targets] = self.keys[sources]
        moved = zip(self.keys[targets].tolist(), sources.tolist(), targets.tolist(), strict=True)
        for key, source, target in moved:
            self._replace(key, source, target)

    def clear(self) -> None:
        """Nothing has a key."""
        self._first.clear()
        self._others.clear()

    def _replace(self, key: int, block: int, by: int | None) -> None:
        """Put another block in the place of one, or the last of its key, or none."""
        others: Sequence[int] = self._others.get(key, ())
        if self._first[key] != block:
            rest = [
                by if other == block and by is not None else other
                for other in others
                if other != block or by is not None
            ]
            self._put_others(key, rest)
        elif by is not None:
            self._first[key] = by
        elif others:
            self._first[key] = others[-1]
            self._put_others(key, list(others[:-1]))
        else:
            del self._first[key]

    def _put_others(self, key: int, blocks: list[int]) -> None:
        if blocks:
            self._others[key] = blocks
        else:
            self._others.pop(key, None)
