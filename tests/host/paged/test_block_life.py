"""Random operations on a BlockPool against a naive model, with every invariant checked after each."""

import random

import numpy as np
import pytest

from paged import BlockPool, Rows
from vmm import OutOfMemoryError, RangeError, StateError

SHAPES = [  # (block stride, chunk): one block a row, several, straddling, larger than a row
    (8, 8),
    (2, 8),
    (1, 12),
    (3, 8),
    (5, 8),
    (20, 8),
    (13, 6),
    (16, 8),
]
BLOCKS = 30


class Naive:
    """What a pool is, without any structure: counts, and the set of committed rows."""

    def __init__(self, rows, max_rows):
        self.rows, self.max_rows = rows, max_rows
        self.counts, self.committed = dict.fromkeys(range(rows.blocks), 0), set()

    def has_memory(self, block):
        return self.committed.issuperset(self.rows.of(block))

    def free_now(self):
        return {block for block, count in self.counts.items() if not count and self.has_memory(block)}

    def live_rows(self):
        return {row for block, count in self.counts.items() if count for row in self.rows.of(block)}


class Life:
    """A pool, its naive model and the tables that hold its blocks; each method is one operation."""

    def __init__(self, shape, seed):
        self.draw = random.Random(seed)
        self.rows = Rows(BLOCKS, *shape)
        self.pool = BlockPool(self.rows, max(3, self.rows.count * 2 // 3))
        self.naive, self.tables = Naive(self.rows, self.pool.max_rows), []

    def allocate(self):
        size = self.draw.choice([1, 1, 2, 5, 8, 14])
        if not self.pool.can_allocate(size):
            with pytest.raises(OutOfMemoryError, match=f"{size} blocks? asked"):
                self.pool.choose(size)
            return
        choice = self.pool.choose(size)
        assert not self.naive.committed.intersection(choice.rows)
        self.naive.committed.update(choice.rows)
        available = self.naive.free_now()
        way = self.draw.randrange(4)
        if way == 0:
            taken = self.pool.take(choice)
        elif way == 1:
            taken = self.pool.take_array(choice).tolist()
        else:
            taken = self.pool.allocate(size) if way == 2 else self.pool.allocate_array(size).tolist()
        assert {type(block) for block in taken} == {int}
        assert len(set(taken)) == size
        assert available.issuperset(taken)
        self.naive.counts.update(dict.fromkeys(taken, 1))
        self.tables.append(taken)

    def fork(self):
        table = [block for block in self.draw.choice(self.tables) for _ in range(self.draw.choice([1, 1, 2]))]
        self.pool.fork(self.draw.choice([list, np.array])(table))
        self.tables.append(table)
        for block in table:
            self.naive.counts[block] += 1

    def free(self):
        table = self.tables.pop(self.draw.randrange(len(self.tables)))
        if self.draw.random() < 0.5:
            self.draw.shuffle(table)
        going = table if self.draw.random() < 0.7 else table[: len(table) // 2]
        if rest := table[len(going) :]:
            self.tables.append(rest)
        before = self.naive.live_rows()
        emptied = self.pool.free(self.draw.choice([list, np.array, lambda ids: np.array(ids, np.int32)])(going))
        for block in going:
            self.naive.counts[block] -= 1
        assert sorted(emptied) == sorted(before - self.naive.live_rows())

    def hold(self):
        able = [block for block in range(BLOCKS) if self.naive.has_memory(block)]
        if chosen := self.draw.sample(able, min(len(able), self.draw.randint(1, 3))):
            self.pool.hold(chosen)
            self.tables.append(chosen)
            for block in chosen:
                self.naive.counts[block] += 1

    def move(self):
        held = [block for block, count in self.naive.counts.items() if count]
        targets = sorted(self.naive.free_now())
        number = min(len(held), len(targets), 3)
        sources, targets = self.draw.sample(held, number), self.draw.sample(targets, number)
        self.pool.move(sources, targets)
        names = dict(zip(sources, targets, strict=True))
        self.tables = [[names.get(block, block) for block in table] for table in self.tables]
        for source, target in names.items():
            self.naive.counts[target], self.naive.counts[source] = self.naive.counts[source], 0

    def decommit(self):
        empty = self.naive.committed - self.naive.live_rows()
        assert set(self.pool.empty) == empty
        going = self.draw.sample(sorted(empty), self.draw.randint(0, len(empty)))
        self.pool.decommit(going)
        self.naive.committed.difference_update(going)

    def limit(self):
        self.naive.max_rows = self.draw.randint(2, self.rows.count)
        self.pool.limit(self.naive.max_rows)

    def mistake(self):
        """Refused, named, and nothing changes: the comparison after the operation shows it."""
        held = self.draw.choice(self.tables)
        free = [block for block, count in self.naive.counts.items() if not count]
        if free:
            with pytest.raises(StateError, match=f"block {free[0]} is freed more often"):
                self.pool.free([*held, free[0]])
            with pytest.raises(StateError, match=f"block {free[0]} is free and cannot be shared"):
                self.pool.fork([*held, free[0]])
        often = [held[0]] * (self.naive.counts[held[0]] + 1)
        with pytest.raises(StateError, match=f"block {held[0]} is freed more often"):
            self.pool.free(often)
        with pytest.raises(RangeError, match=f"block {BLOCKS} is unknown"):
            self.pool.free([*held, BLOCKS])

    def step(self):
        names = ["allocate"] * 4 + ["hold", "decommit", "limit"]
        if self.tables:
            names += ["free"] * 4 + ["fork", "fork", "move", "mistake"]
        getattr(self, self.draw.choice(names))()
        self.compare()

    def compare(self):
        pool, naive = self.pool, self.naive
        pool.check()
        assert set(pool.committed) == naive.committed
        assert pool.counts.numbers.tolist() == list(naive.counts.values())
        assert pool.over == max(0, len(naive.committed) - naive.max_rows)
        assert pool.available == (0 if pool.over else len(naive.free_now()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_random_operations_against_a_naive_model(shape, seed):
    life = Life(shape, seed)
    for _ in range(1200):
        life.step()
    assert life.tables


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", SHAPES)
def test_two_hundred_thousand_random_operations_against_a_naive_model(shape):
    life = Life(shape, 5)
    for _ in range(25_000):  # in each of 8 shapes
        life.step()
    assert life.tables
