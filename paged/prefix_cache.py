"""PrefixCache: which block holds which tokens after which prefix. Integers only.

A block is known by its node: its tokens and the node before it. Blocks with the same node hold the same bytes (two
prompts computed at once). Keys (``chain_hash``) only find candidates; a hit compares the tokens and the node before, so
a collision of keys costs time and nothing else. Nodes of different salts have different roots: tenants share nothing.

The cache holds a count of its own on each of its blocks. A block that nobody else holds is idle, and may be evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vmm import StateError

from .block_ids import Ids
from .cache_events import AllBlocksCleared, BlocksHit, BlocksRemoved, BlocksStored, Listener
from .chain_hash import Keys, Tokens, chain_keys, root_key
from .idle_blocks import IdleBlocks
from .key_table import KeyTable
from .salt_roots import SaltRoots
from .table_hints import TableHints

_NONE = -1
Hash = Callable[[Tokens, int, int, int], Keys]
_NO_BLOCKS: Ids = np.zeros(0, np.int64)


@dataclass(slots=True)
class Counters:
    """Since the cache was made: ``asked`` and ``hit`` in tokens of prompts, ``stored`` and ``evicted`` in blocks."""

    asked: int = 0
    hit: int = 0
    stored: int = 0
    evicted: int = 0


class PrefixCache:
    """Room for ``blocks`` block ids of ``block_size`` tokens.

    ``hash`` may be another function of chain keys. ``events`` is told what is stored, hit and removed.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        hash: Hash = chain_keys,  # noqa: A002  what it is
        events: Listener | None = None,
    ) -> None:
        self.block_size = block_size
        self.counters = Counters()
        self.events = events
        self.idle_blocks = IdleBlocks(blocks)
        self.roots = SaltRoots()
        self.nodes = np.full(blocks, _NONE, np.int64)  # _NONE: the block is not in the cache
        self.parents = np.full(blocks, _NONE, np.int64)  # the node before it; never _NONE for a block in the cache
        self._node: memoryview[int] = memoryview(self.nodes.data)  # the same, for one at a time
        self._parent: memoryview[int] = memoryview(self.parents.data)
        self._hash = hash
        self._table = KeyTable(blocks)
        self.hints = TableHints(blocks)
        self._tokens = np.zeros((blocks, block_size), np.int32)
        self._rows = self._tokens.view(np.dtype((np.void, 4 * block_size))).reshape(
            blocks
        )  # the same, one item a block
        self._last_node = 0
        self._busy = 0  # blocks of the cache that somebody else holds too

    def __len__(self) -> int:
        """Blocks in the cache."""
        return self.idle_blocks.count + self._busy

    def __contains__(self, block: int) -> bool:
        return self._node[block] != _NONE

    @property
    def idle(self) -> Sequence[int]:
        """The blocks that may be evicted, the least recently used first."""
        listed: list[int] = self.idle_blocks.listed().tolist()
        return listed

    @property
    def idle_count(self) -> int:
        """How many blocks may be evicted."""
        return self.idle_blocks.count

    def listed(self) -> list[int]:
        """The blocks that can be found by their keys."""
        return self._table.listed()

    def keys(self, tokens: Tokens, salt: int, before: int | None = None, place: int = 0) -> Keys:
        """The keys of the whole blocks of ``tokens``, after ``place`` blocks that end with the key ``before``."""
        return self._hash(tokens, self.block_size, root_key(salt) if before is None else before, place)

    # -- what is known ------------------------------------------------------------------------------------------

    def match(self, tokens: Tokens, salt: int) -> tuple[Ids, Keys]:
        """The blocks that hold the longest known prefix of ``tokens``, and the keys of at least as many blocks.

        At least one token is left over, for a prompt needs one to be computed. Nothing changes but the counters.
        """
        most, root = max(0, len(tokens) - 1) // self.block_size, self.roots.get(salt)
        self.counters.asked += len(tokens)
        found = _NO_BLOCKS if root is None or not most else self._start(tokens, most, root)
        keys = self._table.keys[found]
        if not len(found) or len(found) < most:
            place, before = len(found), int(keys[-1]) if len(found) else None
            rest = self.keys(tokens[place * self.block_size :], salt, before, place)
            if root is not None and place < most and self._table.has(int(rest[0])):
                parent = self._node[found[-1]] if place else root
                more = self._follow(tokens[place * self.block_size :], rest[: most - place], place, parent)
                found = np.concatenate((found, more))
            keys = np.concatenate((keys, rest))
        self.counters.hit += len(found) * self.block_size
        if self.events and len(found):
            self.events(BlocksHit(keys[: len(found)].tolist(), len(tokens)))
        return found, keys

    def store(self, tokens: Tokens, keys: Keys, salt: int, blocks: Ids, known: int) -> None:
        """Take in ``blocks``, whose bytes are those of ``tokens`` after the first ``known`` blocks and all before.

        ``blocks[0]`` is that of place ``known`` - 1, in the cache already, unless ``known`` is 0. ``keys`` has one a
        block from the first. The caller holds every block, and counts the cache as one more holder of the new.
        """
        new = blocks[1:] if known else blocks
        if len(new) == 1:
            self._store_one(tokens, keys, salt, blocks, known)
            return
        stop = known + len(new)
        before = self._before_all(blocks, known, salt)
        fresh = keys[known:stop]
        rows = np.ascontiguousarray(tokens[known * self.block_size : stop * self.block_size]).view(self._rows.dtype)
        self._rows[new] = rows
        if self._table.add_new(fresh, new):
            self._append_chain(new, before)
            told = list(range(len(new)))
        else:
            told = self._insert_each(new, fresh.tolist(), before)
        self._busy += len(new)
        self.counters.stored += len(new)
        if self.events:
            self._tell_stored(tokens, keys, salt, known, told)

    def note_table(self, table: Ids, known: int, salt: int) -> None:
        """The blocks of a table from place ``known`` on were stored: prompts that go the same way find it faster."""
        root = self.roots.get(salt)
        if root is not None and self.hints.wants(known, len(table)):
            self.hints.note(table, known, root, self._tokens[table[0]].tobytes())

    # -- who uses it --------------------------------------------------------------------------------------------

    def use(self, blocks: Sequence[int] | Ids) -> int:
        """Blocks, each named once or more, got a holder; how many of them were idle."""
        were = self.idle_blocks.discard(np.asarray(blocks, np.int64))
        self._busy += were
        return were

    def rest(self, blocks: Ids) -> None:
        """Blocks of the cache lost their last other holder, in the order of a table: the deepest will go first."""
        self.idle_blocks.add(blocks[::-1])
        self._busy -= len(blocks)

    def evict(self, count: int) -> Ids:
        """Drop ``count`` idle blocks, the least recently used first, and return them for the caller to free.

        Whoever used a block used those before it, and a table rests from its end, so that no block outlives the one
        before it. Raises StateError, with both numbers, if there are not so many; nothing has changed then.
        """
        if not 0 <= count <= self.idle_count:
            raise StateError(f"{count} blocks are to be evicted, {self.idle_count} are idle")
        leaving = self.idle_blocks.take(count)
        self._remove(leaving)
        return leaving

    def evict_these(self, blocks: Ids) -> None:
        """As ``evict``, for idle blocks that the caller has chosen."""
        if int(np.count_nonzero(self.idle_blocks.turns[blocks])) < len(blocks):
            raise StateError("a block that is to be evicted is not idle")
        self.idle_blocks.discard(blocks)
        self._remove(blocks)

    def forget(self, blocks: Sequence[int] | Ids) -> None:
        """Drop blocks of the cache that others hold too; the caller counts one holder less."""
        self._busy -= len(blocks)
        self._remove(np.asarray(blocks, np.int64))

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """The bytes of blocks moved: ``targets`` are what ``sources`` were, in the order of use too."""
        old, new = np.array(sources, np.int64), np.array(targets, np.int64)
        mine = self.nodes[old] != _NONE
        old, new = old[mine], new[mine]
        for numbers in (self._rows, self.parents, self.nodes):
            numbers[new] = numbers[old]
        self.nodes[old] = self.parents[old] = _NONE
        self._table.rename(old, new)
        self.hints.clear()
        self.idle_blocks.rename(old, new)

    def clear(self) -> Ids:
        """Drop everything, because the bytes are gone, and return the blocks that the cache held."""
        held = np.flatnonzero(self.nodes != _NONE)
        self.nodes[held] = self.parents[held] = _NONE
        self._table.clear()
        self.hints.clear()
        self.roots.clear()
        self.idle_blocks.clear()
        self._busy = 0
        if self.events:
            self.events(AllBlocksCleared())
        return held

    # -- steps --------------------------------------------------------------------------------------------------

    def _start(self, tokens: Tokens, most: int, root: int) -> Ids:
        """The first blocks of a prompt that are those of the last table that began alike; found without any key."""
        table = self.hints.start(root, tokens[: self.block_size].tobytes())
        if table is None:
            return _NO_BLOCKS
        guess = table[:most]
        if self._is_chain(guess, tokens, root):
            return guess
        rows = tokens[: len(guess) * self.block_size].reshape(-1, self.block_size)
        same = (self._tokens[guess] == rows).all(axis=1)
        guess = guess if same.all() else guess[: int(np.argmin(same))]
        return guess if len(guess) and self._is_chain(guess, tokens, root) else _NO_BLOCKS

    def _follow(self, tokens: Tokens, keys: Keys, place: int, before: int) -> Ids:
        """The chain of blocks with these keys and tokens from ``place`` on, the first after the node ``before``."""
        guess = self.hints.guess(keys, place, self._table.first)
        if guess is not None and self._is_chain(guess, tokens, before):
            return guess
        listed: list[int] = keys.tolist()
        found = self._table.first_of(listed)
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
        for block in self._table.all_of(key):
            if self._parent[block] == parent and self._tokens[block].tobytes() == row:
                return block
        return _NONE

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
            if self._insert(block, key, before, self._tokens[block].tobytes()):
                alone.append(place)
            before = self._node[block]
        return alone

    def _insert(self, block: int, key: int, before: int, row: bytes) -> bool:
        """Take one block in; whether it has no equal."""
        equal = self._find(key, before, row)
        self._table.add(key, block)
        self._parent[block] = before
        if equal == _NONE:
            self._last_node += 1
        self._node[block] = self._last_node if equal == _NONE else self._node[equal]
        return equal == _NONE

    def _store_one(self, tokens: Tokens, keys: Keys, salt: int, blocks: Ids, known: int) -> None:
        """As ``store`` of one block, in half the time: what a decode step asks for."""
        before, block = self._before_all(blocks, known, salt), int(blocks[-1])
        row = tokens[known * self.block_size : (known + 1) * self.block_size]
        self._tokens[block] = row
        alone = self._insert(block, int(keys[known]), before, row.tobytes())
        self._busy += 1
        self.counters.stored += 1
        if self.events and alone:
            self._tell_stored(tokens, keys, salt, known, [0])

    def _before_all(self, blocks: Ids, known: int, salt: int) -> int:
        """The node before the new blocks of ``store``."""
        before = self._node[blocks[0]] if known else self.roots.enter(salt)
        if before == _NONE:
            raise StateError(f"block {blocks[0]} is not in the cache, and none can be known after it")
        return before

    def _remove(self, blocks: Ids) -> None:
        """Strike blocks out, and tell of those that have no equal left."""
        keys = self._table.remove(blocks)
        self.hints.forget(blocks)
        parents = self.parents[blocks]
        first = parents < _NONE
        if np.count_nonzero(first):
            for root, row in zip(parents[first].tolist(), self._tokens[blocks[first]], strict=True):
                self.hints.forget_start(root, row.tobytes())
            self.roots.leave(parents[first].tolist())
        nodes = self.nodes[blocks]
        self.nodes[blocks] = self.parents[blocks] = _NONE
        self.counters.evicted += len(blocks)
        if self.events and len(blocks):
            left = [self._has_node(key, node) for key, node in zip(keys, nodes.tolist(), strict=True)]
            gone = dict.fromkeys(key for key, stays in zip(keys, left, strict=True) if not stays)
            if gone:
                self.events(BlocksRemoved(list(gone)))

    def _has_node(self, key: int, node: int) -> bool:
        return any(self._node[block] == node for block in self._table.all_of(key))

    def _tell_stored(self, tokens: Tokens, keys: Keys, salt: int, known: int, told: list[int]) -> None:
        """Tell of the new blocks at the places ``told`` after the ``known``: an event a run."""
        assert self.events is not None
        size = self.block_size
        starts = [place for index, place in enumerate(told) if not index or told[index - 1] != place - 1]
        for start in starts:
            stop = start
            while stop in told:
                stop += 1
            first, last = known + start, known + stop
            parent = int(keys[first - 1]) if first else None
            ids: list[int] = tokens[first * size : last * size].tolist()
            self.events(BlocksStored(keys[first:last].tolist(), parent, ids, size, salt))
