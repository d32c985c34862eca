"""ChainNodes: which tokens each block of a prefix cache holds, and which node stands before it. Integers only.

A node is a block's tokens and the node before it; blocks with the same node hold the same bytes. Keys only find
candidates: every answer has compared the tokens and the nodes before.
"""

from __future__ import annotations

import numpy as np

from vmm import StateError

from ..blocks.block_ids import Ids
from .chain_hash import Keys, Tokens
from .key_table import KeyTable
from .salt_roots import SaltRoots
from .table_hints import TableHints

_NONE = -1
_NO_BLOCKS: Ids = np.zeros(0, np.int64)


class ChainNodes:
    """Room for ``blocks`` block ids of ``block_size`` tokens.

    ``nodes`` int64 [blocks] is -1 for a block that is not there; so is ``parents``, the node before, which is below -1
    for the first block of a prompt: the root of its salt.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.roots = SaltRoots()
        self.keys = KeyTable(blocks)
        self.nodes = np.full(blocks, _NONE, np.int64)
        self.parents = np.full(blocks, _NONE, np.int64)
        self._node: memoryview[int] = memoryview(self.nodes.data)  # the same, for one at a time
        self._parent: memoryview[int] = memoryview(self.parents.data)
        self._hints = TableHints()
        self._tokens = np.zeros((blocks, block_size), np.int32)
        whole_row = np.dtype((np.void, 4 * block_size))
        self._rows = self._tokens.view(whole_row).reshape(blocks)  # the same, one item a block
        self._last_node = 0

    def __contains__(self, block: int) -> bool:
        return self._node[block] != _NONE

    def tokens(self, block: int) -> list[int]:
        """The tokens of a block."""
        listed: list[int] = self._tokens[block].tolist()
        return listed

    # -- what is known ------------------------------------------------------------------------------------------

    def begin(self, tokens: Tokens, root: int) -> Ids:
        """The first blocks of a prompt that are those of the last table that began alike; found without any key."""
        table = self._hints.guess(root, tokens[: self.block_size].tobytes())
        if table is None:
            return _NO_BLOCKS
        return self._alike(table[: len(tokens) // self.block_size], tokens, root)

    def go_on(self, tokens: Tokens, keys: Keys, found: Ids, root: int, most: int) -> Ids:
        """The blocks after those ``found``, up to ``most`` in all, by the ``keys`` of the places that follow."""
        place = len(found)
        if place >= most or not self.keys.has(int(keys[0])):
            return _NO_BLOCKS
        before = self._node[found[-1]] if place else root
        return self._follow(tokens[place * self.block_size :], keys[: most - place], before)

    def keys_of(self, blocks: Ids) -> Keys:
        """The keys of blocks that are there."""
        return self.keys.keys.take(blocks)

    # -- changes ------------------------------------------------------------------------------------------------

    def node_before(self, blocks: Ids, known: int, salt: int) -> int:
        """The node before new blocks that follow ``blocks[0]``, or that begin a prompt where ``known`` is 0.

        Raises StateError if that block is not there.
        """
        before = self._node[blocks[0]] if known else self.roots.enter(salt)
        if before == _NONE:
            raise StateError(f"block {blocks[0]} is not in the cache, and none can be known after it")
        return before

    def insert(self, tokens: Tokens, keys: Keys, blocks: Ids, before: int) -> range:
        """Take in blocks with their ``tokens`` and ``keys``, each after the one before it, the first after ``before``.

        Returns the places of those that have no equal: behind the first of them nobody has been yet.
        """
        count, size = len(blocks), self.block_size
        if count == 1:  # as a decode step asks, in a third of the time
            self._tokens[blocks[0]] = tokens
        else:
            self._rows[blocks] = np.ascontiguousarray(tokens).view(self._rows.dtype)
        for place in range(count):
            key, block = int(keys[place]), int(blocks[place])
            known = self.keys.has(key)
            equal = self._find(key, before, tokens[place * size : (place + 1) * size].tobytes()) if known else _NONE
            if equal == _NONE:
                self._append_chain(keys[place:], blocks[place:], before)
                return range(place, count)
            self.keys.add(key, block)
            self._parent[block], self._node[block] = before, self._node[equal]
            before = self._node[block]
        return range(0)

    def note_table(self, table: Ids, salt: int) -> None:
        """Blocks of a table were taken in: prompts that go the same way find it faster."""
        root = self.roots.get(salt)
        if root is not None:
            self._hints.note(root, self._tokens[table[0]].tobytes(), table)

    def strike(self, blocks: Ids, *, tell: bool) -> list[int]:
        """Strike blocks out; with ``tell``, return the keys of those that have no equal left, each once."""
        nodes, parents = self.nodes[blocks], self.parents[blocks]
        self.keys.remove(blocks)
        first = parents < _NONE
        if np.count_nonzero(first):
            for root, row in zip(parents[first].tolist(), self._tokens[blocks[first]], strict=True):
                self._hints.forget(root, row.tobytes())
            self.roots.leave(parents[first].tolist())
        self.nodes[blocks] = self.parents[blocks] = _NONE
        if not tell:
            return []
        known = zip(self.keys_of(blocks).tolist(), nodes.tolist(), strict=True)
        return list(dict.fromkeys(key for key, node in known if not self._has(key, node)))

    def rename(self, old: Ids, new: Ids) -> None:
        """Blocks have moved."""
        for numbers in (self._rows, self.parents, self.nodes):
            numbers[new] = numbers[old]
        self.nodes[old] = self.parents[old] = _NONE
        self.keys.rename(old, new)
        self._hints.clear()

    def clear(self) -> Ids:
        """Strike everything out, and return the blocks that were there."""
        held = np.flatnonzero(self.nodes != _NONE)
        self.nodes[held] = self.parents[held] = _NONE
        self.keys.clear()
        self._hints.clear()
        self.roots.clear()
        return held

    # -- steps --------------------------------------------------------------------------------------------------

    def _follow(self, tokens: Tokens, keys: Keys, before: int) -> Ids:
        """The chain of blocks with these keys and tokens, the first after the node ``before``."""
        found = self.keys.first_of(keys)
        alike = self._alike(found, tokens, before)
        return found if len(alike) == len(found) else self._follow_exactly(tokens, keys.tolist(), before)

    def _alike(self, blocks: Ids, tokens: Tokens, before: int) -> Ids:
        """As many of ``blocks``, at least one, as hold ``tokens``, each after the last, the first after ``before``.

        A block that is not there has no node before it, and so ends it.
        """
        if self._parent[blocks[0]] != before:
            return blocks[:0]
        count, linked = len(blocks), self.parents.take(blocks[1:]) == self.nodes.take(blocks[:-1])
        asked = tokens[: count * self.block_size]
        if np.count_nonzero(linked) == count - 1 and self._rows.take(blocks).tobytes() == asked.tobytes():
            return blocks
        same = (self._tokens[blocks] == asked.reshape(count, self.block_size)).all(axis=1)
        same[1:] &= linked
        return blocks[: int(np.argmin(same))]

    def _follow_exactly(self, tokens: Tokens, keys: list[int], before: int) -> Ids:
        """As ``_follow``, one by one: some keys have several blocks."""
        exact: list[int] = []
        for place, key in enumerate(keys):
            row = tokens[place * self.block_size : (place + 1) * self.block_size]
            block = self._find(key, before, row.tobytes())
            if block == _NONE:
                break
            exact.append(block)
            before = self._node[block]
        return np.array(exact, np.int64)

    def _find(self, key: int, parent: int, row: bytes) -> int:
        """A block of these tokens after that node, or _NONE."""
        for block in self.keys.all_of(key):
            if self._parent[block] == parent and self._tokens[block].tobytes() == row:
                return block
        return _NONE

    def _has(self, key: int, node: int) -> bool:
        return any(self._node[block] == node for block in self.keys.all_of(key))

    def _append_chain(self, keys: Keys, blocks: Ids, before: int) -> None:
        """Blocks that nobody has the like of follow each other: each gets a node of its own."""
        last = self._last_node
        self._last_node = stop = last + len(blocks)
        if len(blocks) == 1:
            block = int(blocks[0])
            self.keys.add(int(keys[0]), block)
            self._node[block], self._parent[block] = stop, before
            return
        self.keys.add_all(keys, blocks)
        nodes = np.arange(last, stop + 1)
        self.nodes[blocks] = nodes[1:]
        nodes[0] = before
        self.parents[blocks] = nodes[:-1]
