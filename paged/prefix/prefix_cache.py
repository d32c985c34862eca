"""PrefixCache: which block holds which tokens after which prefix. Integers only.

A block is known by its node (``chain_nodes``): its tokens and the node before it. Blocks with the same node hold the
same bytes (two prompts computed at once). Keys (``chain_hash``) only find candidates, so that a collision of keys costs
time and nothing else. Nodes of different salts have different roots: tenants share nothing.

The cache holds a count of its own on each of its blocks. A block that nobody else holds is idle, and may be evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vmm import StateError

from ..blocks.block_ids import Ids
from .cache_events import AllBlocksCleared, BlocksHit, BlocksRemoved, BlocksStored, Listener
from .chain_hash import Keys, Tokens, chain_keys, root_key
from .chain_nodes import ChainNodes
from .idle_blocks import IdleBlocks

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
        self.chains = ChainNodes(blocks, block_size)
        self.nodes, self.parents = self.chains.nodes, self.chains.parents
        self._hash = hash
        self._busy = 0  # blocks of the cache that somebody else holds too

    def __len__(self) -> int:
        """Blocks in the cache."""
        return self.idle_blocks.count + self._busy

    def __contains__(self, block: int) -> bool:
        return block in self.chains

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
        return self.chains.keys.listed()

    def keys(self, tokens: Tokens, salt: int, before: int | None = None, place: int = 0) -> Keys:
        """The keys of the whole blocks of ``tokens``, after ``place`` blocks that end with the key ``before``."""
        return self._hash(tokens, self.block_size, root_key(salt) if before is None else before, place)

    # -- what is known ------------------------------------------------------------------------------------------

    def match(self, tokens: Tokens, salt: int) -> tuple[Ids, Keys]:
        """The blocks that hold the longest known prefix of ``tokens``, and the keys of at least as many blocks.

        At least one token is left over, for a prompt needs one to be computed. Nothing changes but the counters.
        """
        asked = len(tokens)
        found, keys = self._find(tokens, salt)
        self.counters.asked += asked
        self.counters.hit += len(found) * self.block_size
        if self.events and len(found):
            self.events(BlocksHit(keys[: len(found)].tolist(), asked))
        return found, keys

    def in_use(self, tokens: Tokens, salt: int) -> int:
        """How many blocks of the longest known prefix of ``tokens`` others hold too. Nothing changes."""
        found, _keys = self._find(tokens, salt)
        return len(found) - int(np.count_nonzero(self.idle_blocks.turns[found]))

    def store(self, tokens: Tokens, keys: Keys, salt: int, blocks: Ids, known: int) -> None:
        """Take in ``blocks``, whose bytes are those of ``tokens`` after the first ``known`` blocks and all before.

        ``blocks[0]`` is that of place ``known`` - 1, in the cache already, unless ``known`` is 0. ``keys`` has one a
        block from the first. The caller holds every block, and counts the cache as one more holder of the new.
        """
        new = blocks[1:] if known else blocks
        stop, size = known + len(new), self.block_size
        before = self.chains.node_before(blocks, known, salt)
        told = self.chains.insert(tokens[known * size : stop * size], keys[known:stop], new, before)
        self._busy += len(new)
        self.counters.stored += len(new)
        if self.events and told:
            self._tell_stored(tokens, keys, salt, known, told)

    # -- who uses it --------------------------------------------------------------------------------------------

    def use(self, blocks: Sequence[int] | Ids) -> int:
        """Blocks, each named once or more, got a holder; how many of them were idle."""
        return self.use_distinct(np.unique(np.asarray(blocks, np.int64)))

    def use_distinct(self, blocks: Ids) -> int:
        """As ``use``, for blocks that are named once each."""
        were = self.idle_blocks.discard(blocks)
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
        self.chains.rename(old, new)
        self.idle_blocks.rename(old, new)

    def clear(self) -> Ids:
        """Drop everything, because the bytes are gone, and return the blocks that the cache held."""
        held = self.chains.clear()
        self.idle_blocks.clear()
        self._busy = 0
        if self.events:
            self.events(AllBlocksCleared())
        return held

    # -- steps --------------------------------------------------------------------------------------------------

    def _find(self, tokens: Tokens, salt: int) -> tuple[Ids, Keys]:
        """What ``match`` returns."""
        chains = self.chains
        most, root = max(0, len(tokens) - 1) // self.block_size, chains.roots.get(salt)
        if not most or root is None:
            return _NO_BLOCKS, self.keys(tokens, salt)
        found = chains.begin(tokens, root)
        if len(found) >= most:
            return found[:most], chains.keys_of(found)
        return self._find_by_keys(tokens, salt, root, found, most)

    def _find_by_keys(self, tokens: Tokens, salt: int, root: int, found: Ids, most: int) -> tuple[Ids, Keys]:
        """As ``_find``, going on from those ``found``: up to ``most`` blocks, and the keys of all whole ones."""
        if not len(found):
            keys = self.keys(tokens, salt)
            return self.chains.go_on(tokens, keys, found, root, most), keys
        known = self.chains.keys_of(found)
        rest = self.keys(tokens[len(found) * self.block_size :], salt, int(known[-1]), len(found))
        more = self.chains.go_on(tokens, rest, found, root, most)
        return np.concatenate((found, more)), np.concatenate((known, rest))

    def _remove(self, blocks: Ids) -> None:
        """Strike blocks out, and tell of those that have no equal left."""
        gone = self.chains.strike(blocks, tell=self.events is not None)
        self.counters.evicted += len(blocks)
        if self.events and gone:
            self.events(BlocksRemoved(gone))

    def _tell_stored(self, tokens: Tokens, keys: Keys, salt: int, known: int, told: range) -> None:
        """Tell of the new blocks at the places ``told`` after the ``known``."""
        assert self.events is not None
        first, last, size = known + told.start, known + told.stop, self.block_size
        parent = int(keys[first - 1]) if first else None
        ids: list[int] = tokens[first * size : last * size].tolist()
        self.events(BlocksStored(keys[first:last].tolist(), parent, ids, size, salt))
