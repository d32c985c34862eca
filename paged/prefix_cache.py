"""PrefixCache: which block holds which tokens after which prefix, and which block goes first. Integers only.

A block is known by its node: its tokens and the node before it. Blocks with the same node hold the same bytes (two
prompts computed at once). Keys (``chain_hash``) only find candidates; a hit compares the tokens and the node before, so
a collision of keys costs time and nothing else. Nodes of different salts have different roots: tenants share nothing.

The cache holds a count of its own on each of its blocks. A block that nobody else holds is idle, and may be evicted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from .chain_hash import Keys, Tokens, chain_keys, root_key

_NONE = -1
Hash = Callable[[Tokens, int, int], Keys]


@dataclass(slots=True)
class Counters:
    """Since the cache was made: ``asked`` and ``hit`` in tokens of prompts, ``stored`` and ``evicted`` in blocks."""

    asked: int = 0
    hit: int = 0
    stored: int = 0
    evicted: int = 0


class PrefixCache:
    """Room for ``blocks`` block ids of ``block_size`` tokens. ``hash`` may be another function of chain keys."""

    def __init__(self, blocks: int, block_size: int, *, hash: Hash = chain_keys) -> None:  # noqa: A002  what it is
        self.block_size = block_size
        self.counters = Counters()
        self._hash = hash
        self._first: dict[int, int] = {}  # key -> a block; others of the same key follow by _next
        self._next = [_NONE] * blocks
        self._key = [0] * blocks
        self._node = [_NONE] * blocks  # _NONE: the block is not in the cache
        self._parent = [_NONE] * blocks
        self._tokens = np.zeros((blocks, block_size), np.int32)
        self._nodes = 0  # how many there were
        self._roots: dict[int, int] = {}
        self._idle: dict[int, None] = {}  # the least recently used first
        self._busy = 0  # blocks of the cache that somebody else holds too

    def __len__(self) -> int:
        """Blocks in the cache."""
        return len(self._idle) + self._busy

    def __contains__(self, block: int) -> bool:
        return self._node[block] != _NONE

    @property
    def idle(self) -> Sequence[int]:
        """The blocks that may be evicted, the least recently used first."""
        return list(self._idle)

    @property
    def idle_count(self) -> int:
        """How many blocks may be evicted."""
        return len(self._idle)

    def keys(self, tokens: Tokens, salt: int, before: int | None = None) -> list[int]:
        """The keys of the whole blocks of ``tokens``, after the key ``before`` or from the root of ``salt``."""
        found: list[int] = self._hash(tokens, self.block_size, root_key(salt) if before is None else before).tolist()
        return found

    def match(self, tokens: Tokens, salt: int) -> tuple[list[int], list[int]]:
        """The blocks that hold the longest known prefix of ``tokens``, and the keys of all its whole blocks.

        At least one token is left over, for a prompt needs one to be computed. Nothing changes but the counters.
        """
        most = max(0, len(tokens) - 1) // self.block_size
        self.counters.asked += len(tokens)
        every = self.keys(tokens, salt)
        parent = self._roots.get(salt)
        if parent is None:
            return [], every
        keys = every[:most]
        found = self._follow(keys, parent)
        rows = tokens[: len(found) * self.block_size].reshape(-1, self.block_size)
        same = self._tokens[found] == rows
        if not same.all():  # a key collided: compare one by one from there
            del found[int(np.argmin(same.all(axis=1))) :]
            self._follow_exactly(found, keys, tokens, parent)
        self.counters.hit += len(found) * self.block_size
        return found, every

    def store(self, tokens: Tokens, keys: Sequence[int], salt: int, blocks: Sequence[int], known: int) -> None:
        """Take in ``blocks[known:]``, whose bytes are those of ``tokens`` after all before; the first ``known`` are in.

        ``keys`` has one a block. The caller holds every block, and counts the cache as one more holder of the new.
        """
        new = blocks[known:]
        rows = tokens[known * self.block_size : len(blocks) * self.block_size].reshape(-1, self.block_size)
        self._tokens[new] = rows
        parent = self._node[blocks[known - 1]] if known else self._root(salt)
        fresh = keys[known:]
        if not self._insert_new(new, fresh, parent):
            for block, key, row in zip(new, fresh, rows, strict=True):
                parent = self._insert(block, key, parent, row)
        self._busy += len(new)
        self.counters.stored += len(new)

    def use(self, blocks: Sequence[int]) -> int:
        """Blocks of the cache got a holder; how many of them were idle."""
        idle, before = self._idle, len(self._idle)
        for block in blocks:
            idle.pop(block, None)
        self._busy += before - len(idle)
        return before - len(idle)

    def rest(self, blocks: Sequence[int]) -> None:
        """Blocks of the cache lost their last other holder, in the order of a table: the deepest will go first."""
        for block in reversed(blocks):
            self._idle[block] = None
        self._busy -= len(blocks)

    def evict(self, count: int) -> list[int]:
        """Drop ``count`` idle blocks, the least recently used first, and return them for the caller to free.

        Whoever used a block used those before it, and a table rests from its end, so that no block outlives the one
        before it.
        """
        leaving = list(itertools.islice(self._idle, count))
        for block in leaving:
            del self._idle[block]
            self._remove(block)
        self.counters.evicted += len(leaving)
        return leaving

    def forget(self, blocks: Sequence[int]) -> None:
        """Drop blocks of the cache that others hold too; the caller counts one holder less."""
        for block in blocks:
            self._remove(block)
        self._busy -= len(blocks)
        self.counters.evicted += len(blocks)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """The bytes of blocks moved: ``targets`` are what ``sources`` were, in the order of use too."""
        renamed = dict(zip(sources, targets, strict=True))
        for source, target in renamed.items():
            if source in self:
                self._tokens[target] = self._tokens[source]
                self._key[target], self._parent[target] = self._key[source], self._parent[source]
                node = self._node[source]
                self._remove(source)
                self._node[target] = node
                self._next[target] = self._first.get(self._key[target], _NONE)
                self._first[self._key[target]] = target
        self._idle = {renamed.get(block, block): None for block in self._idle}

    def clear(self) -> list[int]:
        """Drop everything, because the bytes are gone, and return the blocks that the cache held."""
        held = [block for block, node in enumerate(self._node) if node != _NONE]
        for block in held:
            self._node[block] = self._next[block] = _NONE
        self._first.clear()
        self._roots.clear()
        self._idle.clear()
        self._busy = 0
        return held

    # -- steps --------------------------------------------------------------------------------------------------

    def _chain(self, key: int) -> list[int]:
        """The blocks of one key."""
        found, block = [], self._first.get(key, _NONE)
        while block != _NONE:
            found.append(block)
            block = self._next[block]
        return found

    def _root(self, salt: int) -> int:
        if salt not in self._roots:
            self._roots[salt] = self._nodes
            self._nodes += 1
        return self._roots[salt]

    def _follow(self, keys: Sequence[int], parent: int) -> list[int]:
        """The chain of blocks with these keys, each after the node before; their tokens are still to be compared."""
        found = [block for block in map(self._first.get, keys) if block is not None]
        if len(found) == len(keys) > 1:
            pick = itemgetter(*found)
            nodes = pick(self._node)
            if pick(self._parent) == (parent, *nodes[:-1]):
                return found  # as nearly always where all keys are known: found without a loop
        return self._follow_slowly(keys, parent)

    def _follow_slowly(self, keys: Sequence[int], parent: int) -> list[int]:
        first, parents, nodes = self._first, self._parent, self._node
        found: list[int] = []
        for key in keys:
            block = first.get(key, _NONE)
            while block != _NONE and parents[block] != parent:
                block = self._next[block]
            if block == _NONE:
                break
            found.append(block)
            parent = nodes[block]
        return found

    def _follow_exactly(self, found: list[int], keys: Sequence[int], tokens: Tokens, parent: int) -> None:
        """Lengthen ``found`` block by block, comparing tokens."""
        parent = self._node[found[-1]] if found else parent
        for place in range(len(found), len(keys)):
            row = tokens[place * self.block_size : (place + 1) * self.block_size]
            block = self._find(keys[place], parent, row)
            if block == _NONE:
                return
            found.append(block)
            parent = self._node[block]

    def _find(self, key: int, parent: int, row: Tokens) -> int:
        """A block of these tokens after that node, or _NONE."""
        block = self._first.get(key, _NONE)
        while block != _NONE and not (self._parent[block] == parent and bool((self._tokens[block] == row).all())):
            block = self._next[block]
        return block

    def _insert_new(self, blocks: Sequence[int], keys: Sequence[int], parent: int) -> bool:
        """Take in blocks whose keys nobody has, as nearly always: each gets a node of its own. Else nothing changes."""
        first, before = self._first, len(self._first)
        if not first.keys().isdisjoint(keys):
            return False
        first.update(zip(keys, blocks, strict=True))
        if len(first) != before + len(blocks):  # two of them are the same
            for key in keys:
                first.pop(key, None)
            return False
        nodes, parents, key_of, node = self._node, self._parent, self._key, self._nodes
        for block, key in zip(blocks, keys, strict=True):
            key_of[block], parents[block] = key, parent
            nodes[block] = parent = node
            node += 1
        self._nodes = node
        return True

    def _insert(self, block: int, key: int, parent: int, row: Tokens) -> int:
        """Take one block in, and return its node: that of an equal block if there is one."""
        equal = self._find(key, parent, row)
        self._next[block] = self._first.get(key, _NONE)
        self._first[key] = block
        self._key[block], self._parent[block] = key, parent
        self._node[block] = node = self._nodes if equal == _NONE else self._node[equal]
        self._nodes += equal == _NONE
        return node

    def _remove(self, block: int) -> None:
        """Strike a block out of the chain of its key."""
        key, after = self._key[block], self._next[block]
        at = self._first[key]
        if at == block and after == _NONE:
            del self._first[key]
        elif at == block:
            self._first[key] = after
        else:
            while self._next[at] != block:
                at = self._next[at]
            self._next[at] = after
        self._node[block] = self._next[block] = _NONE
