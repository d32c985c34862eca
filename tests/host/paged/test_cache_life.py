"""Random operations on CachedBlocks against a naive model, with every invariant checked after each.

The model knows for each block which tokens it holds after which; a router that knows events only must know the same.
"""

import random

import numpy as np
import pytest

from paged import BlockPool, Rows
from paged.prefix.cache_events import AllBlocksCleared, BlocksHit, BlocksRemoved, BlocksStored
from paged.prefix.cache_invariants import check_prefix
from paged.prefix.cached_blocks import CachedBlocks
from paged.prefix.known_tokens import KnownTokens
from vmm import StateError

SHAPES = [(8, 8), (2, 8), (3, 8), (20, 8)]  # (block stride, chunk): one block a row, several, straddling, larger
BLOCKS, SIZE = 32, 2


class Router:
    """What can be found, by the events alone: hash -> (salt, all tokens up to the end of the block)."""

    def __init__(self):
        self.known, self.hits = {}, []

    def __call__(self, event):
        if isinstance(event, BlocksStored):
            before = (event.salt, ()) if event.parent_block_hash is None else self.known[event.parent_block_hash]
            for place, name in enumerate(event.block_hashes):
                tokens = tuple(event.token_ids[place * event.block_size : (place + 1) * event.block_size])
                before = (event.salt, before[1] + tokens)
                assert name not in self.known
                self.known[name] = before
        elif isinstance(event, BlocksRemoved):
            assert len(set(event.block_hashes)) == len(event.block_hashes) > 0
            for name in event.block_hashes:
                del self.known[name]
        elif isinstance(event, BlocksHit):
            self.hits.append([self.known[name] for name in event.block_hashes])
        else:
            assert isinstance(event, AllBlocksCleared)
            self.known.clear()


class Running:
    """A sequence: the blocks of its tokens, and what is known of them."""

    def __init__(self, table, known, ids, salt):
        self.table, self.known, self.ids, self.salt = table, known, ids, salt


class Life:
    def __init__(self, shape, order, seed, max_idle=None):
        self.draw = random.Random(seed)
        self.router = Router()
        self.pool = BlockPool(Rows(BLOCKS, *shape))
        self.pool.commit(range(self.pool.rows.count))
        self.prefix = CachedBlocks(self.pool, SIZE, order=order, max_idle=max_idle, events=self.router)
        self.content, self.running = {}, []
        self.asked = self.hit = self.shared = 0

    @property
    def cached(self):
        return {self.content[block] for block in np.flatnonzero(self.prefix.cache.nodes >= 0).tolist()}

    def _allocate(self, blocks):
        """Blocks, of what is idle if nothing else is left; None if not even so."""
        idle, lacking = self.prefix.cache.idle_count, max(0, blocks - self.pool.available)
        if lacking > idle:
            return None
        self._evict(lacking)
        return self.pool.allocate(blocks)

    def _evict(self, count):
        idle, available = self.prefix.cache.idle_count, self.pool.available
        self.prefix.evict(count)
        assert (self.prefix.cache.idle_count, self.pool.available) == (idle - count, available + count)

    def admit(self):
        ids = self.draw.choices([0, 1], [5, 1], k=self.draw.randint(0, 14))
        salt = self.draw.randrange(2)
        wholes = [(salt, tuple(ids[:stop])) for stop in range(SIZE, len(ids), SIZE)]
        expected = next((place for place, whole in enumerate(wholes) if whole not in self.cached), len(wholes))
        found, known, idle = self.prefix.hit(np.array(ids, np.int32), salt)
        blocks = found.tolist()
        assert [self.content[block] for block in blocks] == wholes[:expected]
        assert (self.router.hits.pop() if expected else []) == wholes[:expected]
        assert idle == sum(not any(block in one.table for one in self.running) for block in blocks)
        self.asked, self.hit = self.asked + len(ids), self.hit + SIZE * expected
        rest = self._allocate(-(-len(ids) // SIZE) - len(blocks))
        if rest is None:
            self._give_up(blocks)
        else:
            self.running.append(Running(blocks + rest, known, ids, salt))

    def publish(self):
        one = self.draw.choice(self.running)
        length = len(one.ids)
        table = self.draw.choice([list, np.array, lambda ids: np.array(ids, np.int32)])(one.table)
        self.prefix.publish(one.known, table, length)
        for place in range(length // SIZE):
            self.content[one.table[place]] = (one.salt, tuple(one.ids[: (place + 1) * SIZE]))

    def append(self):
        one = self.draw.choice(self.running)
        more = [self.draw.randrange(2) for _ in range(self.draw.randint(1, 5))]
        if len(one.ids) % SIZE and any(
            one.table[-1:] == other.table[-1:] for other in self.running if other is not one
        ):
            return  # its tail is shared
        blocks = self._allocate(-(-(len(one.ids) + len(more)) // SIZE) - len(one.table))
        if blocks is not None:
            one.known.put(len(one.ids), np.array(more, np.int32), SIZE)
            one.ids, one.table = one.ids + more, one.table + blocks

    def fork(self):
        one = self.draw.choice(self.running)
        self.pool.fork(one.table)
        self.running.append(Running(list(one.table), one.known.copy(), list(one.ids), one.salt))

    def free(self):
        self._give_up(self.running.pop(self.draw.randrange(len(self.running))).table)

    def free_for_good(self):
        """What a lowered limit does: what is idle or would be is forgotten at once."""
        table = self.running.pop(self.draw.randrange(len(self.running))).table
        self.prefix.let_go(table)
        self._give_up(table)
        assert self.prefix.cache.idle_count == 0

    def _give_up(self, table):
        if table and table[0] in self.prefix.cache:
            with pytest.raises(StateError, match=f"block {table[0]} is freed more often"):
                self.prefix.check_held([*table, *([table[0]] * self.pool.count(table[0]))])
        self.prefix.check_held(table)
        self.pool.free(table)
        self.prefix.rest(table)

    def evict(self):
        idle = self.prefix.cache.idle_count
        with pytest.raises(StateError, match=f"{idle + 1} blocks are to be evicted, {idle} are idle"):
            self.prefix.evict(idle + 1)
        self._evict(self.draw.randint(0, idle // 2))

    def move(self):
        held = [block for block in range(BLOCKS) if self.pool.count(block)]
        targets = [block for block in range(BLOCKS) if not self.pool.count(block)]
        number = min(len(held), len(targets), 3)
        sources, targets = self.draw.sample(held, number), self.draw.sample(targets, number)
        self.pool.move(sources, targets)
        self.prefix.cache.move(sources, targets)
        names = dict(zip(sources, targets, strict=True))
        for one in self.running:
            one.table = [names.get(block, block) for block in one.table]
        for source, target in names.items():
            self.content[target] = self.content.get(source)

    def clear(self):
        if self.draw.random() < 0.95:
            return
        while self.running:
            self.free()
        self.prefix.clear()
        assert self.pool.used == 0

    def step(self):
        names = ["admit"] * 5 + ["evict", "move", "clear"]
        if self.running:
            names += (
                ["publish"] * 3
                + ["append"] * 2
                + ["fork"]
                + ["free"] * 4
                + ["free_for_good"] * (self.draw.random() < 0.1)
            )
        getattr(self, self.draw.choice(names))()
        self.compare()

    def compare(self):
        """Case 31 among others: free, held and idle are always all there is."""
        held = {block for one in self.running for block in one.table}
        self.pool.check()
        check_prefix(self.prefix, held)
        assert self.pool.available + len(held) + self.prefix.cache.idle_count == BLOCKS
        cached = self.cached
        assert self.prefix.holders_of(range(BLOCKS)).tolist() == [self.prefix.holders(block) for block in range(BLOCKS)]
        assert set(self.router.known.values()) == cached
        assert len(self.router.known) == len(cached)
        for salt, tokens in cached:  # no block outlives the one before it
            assert len(tokens) == SIZE or (salt, tokens[:-SIZE]) in cached
        assert (self.prefix.cache.counters.asked, self.prefix.cache.counters.hit) == (self.asked, self.hit)
        self.shared += self.pool.shared


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["lru", "row", "blend"])
def test_random_operations_against_a_naive_model(shape, order):
    life = Life(shape, order, 7)
    for _ in range(700):
        life.step()
    assert min(life.hit, life.shared, life.prefix.cache.counters.evicted) > 100


def test_no_more_are_idle_than_may_be():
    life = Life((2, 8), "lru", 9, max_idle=5)
    most = 0
    for _ in range(700):
        life.step()
        most = max(most, life.prefix.cache.idle_count)
    assert most == 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["lru", "row", "blend"])
def test_a_hundred_thousand_random_operations_of_each_order(shape, order):
    life = Life(shape, order, 11)
    for _ in range(100_000 // len(SHAPES)):
        life.step()
    assert life.prefix.cache.counters.evicted > 1000


def test_a_chain_goes_on_after_a_block_of_the_cache_only():
    """After ``clear`` nothing can be known after what a sequence had stored."""
    pool = BlockPool(Rows(8, 8, 8))
    prefix = CachedBlocks(pool, SIZE)
    table, known = pool.allocate(2), KnownTokens(np.array([1, 2, 3, 4], np.int32), 0)
    prefix.publish(known, table, 2)
    prefix.clear()
    with pytest.raises(StateError, match=f"block {table[0]} is not in the cache, and none can be known after it"):
        prefix.publish(known, table, 4)
    pool.check()
    check_prefix(prefix, table)
