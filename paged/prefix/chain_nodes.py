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
        self._hints = TableHints(blocks)
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

    def begin(self, tokens: Tokens, most: int, root: int) -> Ids:
        """The first blocks of a prompt that are those of the last table that began alike; found without any key."""
        table = self._hints.start(root, tokens[: self.block_size].tobytes())
        if table is None:
            return _NO_BLOCKS
        guess = table[:most]
        if self._is_chain(guess, tokens, root):
            return guess
        rows = tokens[: len(guess) * self.block_size].reshape(-1, self.block_size)
        same = (self._tokens[guess] == rows).all(axis=1)
        guess = guess if same.all() else guess[: int(np.argmin(same))]
        return guess if len(guess) and self._is_chain(guess, tokens, root) else _NO_BLOCKS

    def go_on(self, tokens: Tokens, keys: Keys, found: Ids, root: int, most: int) -> Ids:
        """The blocks after those ``found``, up to ``most`` in all, by the ``keys`` of the places that follow."""
        place = len(found)
        if place >= most or not self.keys.has(int(keys[0])):
            return _NO_BLOCKS
        before = self._node[found[-1]] if place else root
        return self._follow(tokens[place * self.block_size :], keys[: most - place], place, before)

    # -- changes ------------------------------------------------------------------------------------------------

    def node_before(self, blocks: Ids, known: int, salt: int) -> int:
        """The node before new blocks that follow ``blocks[0]``, or that begin a prompt where ``known`` is 0.

        Raises StateError if that block is not there.
        """
        before = self._node[blocks[0]] if known else self.roots.enter(salt)
        if before == _NONE:
            raise StateError(f"block {blocks[0]} is not in the cache, and none can be known after it")
        return before

    def insert(self, tokens: Tokens, keys: Keys, blocks: Ids, before: int) -> list[int]:
        """Take in blocks with their ``tokens`` and ``keys``, each after the one before it, the first after ``before``.

        Returns the places of those that have no equal.
        """
        if len(blocks) == 1:
            return self._insert_one(int(blocks[0]), int(keys[0]), before, tokens)
        self._rows[blocks] = np.ascontiguousarray(tokens).view(self._rows.dtype)
        if not self.keys.add_new(keys, blocks):
            return self._insert_each(blocks, keys.tolist(), before)
        self._append_chain(blocks, before)
        return list(range(len(blocks)))

    def wants_table(self, known: int, full: int) -> bool:
        """Whether ``note_table`` would note a table of ``full`` blocks."""
        return self._hints.wants(known, full)

    def note_table(self, table: Ids, known: int, salt: int) -> None:
        """The blocks of a table from place ``known`` on were taken in: prompts that go the same way find it faster."""
        root = self.roots.get(salt)
        if root is not None:
            self._hints.note(table, known, root, self._tokens[table[0]].tobytes())

    def strike(self, blocks: Ids, *, tell: bool) -> list[int]:
        """Strike blocks out; with ``tell``, return the keys of those that have no equal left, each once."""
        keys, nodes, parents = self.keys.remove(blocks), self.nodes[blocks], self.parents[blocks]
        self._hints.forget(blocks)
        first = parents < _NONE
        if np.count_nonzero(first):
            for root, row in zip(parents[first].tolist(), self._tokens[blocks[first]], strict=True):
                self._hints.forget_start(root, row.tobytes())
            self.roots.leave(parents[first].tolist())
        self.nodes[blocks] = self.parents[blocks] = _NONE
        if not tell:
            return []
        return list(
            dict.fromkeys(key for key, node in zip(keys, nodes.tolist(), strict=True) if not self._has(key, node))
        )

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

    def _follow(self, tokens: Tokens, keys: Keys, place: int, before: int) -> Ids:
        """The chain of blocks with these keys and tokens from ``place`` on, the first after the node ``before``."""
        guess = self._hints.guess(keys, place, self.keys.first)
        if guess is not None and self._is_chain(guess, tokens, before):
            return guess
        listed: list[int] = keys.tolist()
        found = self.keys.first_of(listed)
        return found if self._is_chain(found, tokens, before) else self._follow_exactly(tokens, listed, before)

    def _is_chain(self, blocks: Ids, tokens: Tokens, before: int) -> bool:
        """Whether blocks, at least one, hold ``tokens``, the first after the node ``before``, each after the last."""
        befores = np.empty(len(blocks), np.int64)
        befores[0], befores[1:] = before, self.nodes[blocks[:-1]]
        if np.count_nonzero(self.parents[blocks] == befores) < len(blocks):
            return False
        return self._rows[blocks].tobytes() == tokens[: len(blocks) * self.block_size].tobytes()

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

    def _append_chain(self, blocks: Ids, before: int) -> None:
        """Blocks that nobody has the like of follow each other: each gets a node of its own."""
        nodes = np.arange(self._last_node + 1, self._last_node + 1 + len(blocks))
        self.nodes[blocks] = nodes
        self.parents[blocks] = nodes - 1
        self.parents[blocks[0]] = before
        self._last_node += len(blocks)

    def _insert_each(self, blocks: Ids, keys: list[int], before: int) -> list[int]:
        """Take blocks in one by one, each with the node of an equal one if there is. The places of those without."""
        alone: list[int] = []
        for place, (block, key) in enumerate(zip(blocks.tolist(), keys, strict=True)):
            if self._add(block, key, before, self._tokens[block].tobytes()):
                alone.append(place)
            before = self._node[block]
        return alone

    def _add(self, block: int, key: int, before: int, row: bytes) -> bool:
        """Take one block in; whether it has no equal."""
        equal = self._find(key, before, row)
        self.keys.add(key, block)
        self._parent[block] = before
        if equal == _NONE:
            self._last_node += 1
        self._node[block] = self._last_node if equal == _NONE else self._node[equal]
        return equal == _NONE

    def _insert_one(self, block: int, key: int, before: int, tokens: Tokens) -> list[int]:
        """As ``insert`` of one block, in half the time: what a decode step asks for."""
        self._tokens[block] = tokens
        return [0] if self._add(block, key, before, tokens.tobytes()) else []
