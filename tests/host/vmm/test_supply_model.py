"""Random lives of supplies that share a device, against a model that knows nothing but counts.

After each operation the test waits until the prefetching threads have nothing left to do, so that what they did can be
foretold. Creates are made to fail in between, whoever makes them.
"""

import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import vmm
from vmm.host import FailingDriver

UNIT = 64 << 10
TOTAL = 16  # units of memory
SHAPES = [  # units a chunk, chunks in the budget, in the cache, to prefetch
    (1, 10, 3, 0),
    (1, None, 2, 3),
    (2, 4, 0, 2),
    (1, 6, 0, 0),
    (3, None, 4, 1),
    (1, 5, 5, 5),
]


@dataclass
class Counts:
    """What is to be known about one supply: chunks, and why its thread does nothing."""

    unit: int
    most: int | None
    cache: int
    target: int
    out: int = 0
    idle: int = 0
    open: bool = True
    resting: bool = False
    failed: bool = False

    def room(self):
        return 1000 if self.most is None else self.most - self.out

    def lacks(self):
        return self.open and not self.resting and self.idle < self.target and self.room() > self.idle


class Model:
    """Counts of every supply, and of the device that they share."""

    def __init__(self):
        self.all = []
        self.failing = 0  # the how many-th create from now is refused; 0 for none

    def used(self):
        return sum(one.unit * (one.out + one.idle) for one in self.all)

    def creates(self, unit, count):
        """Whether ``count`` creates in a row succeed, with nothing else changing."""
        for number in range(1, count + 1):
            if self.failing:
                self.failing -= 1
                if not self.failing:
                    return False
            if self.used() + unit * number > TOTAL:
                return False
        return True

    def take(self, one, count):
        """Whether it succeeds."""
        if not one.open or count > one.room():
            return False
        others = [other for other in self.all if other is not one]
        missing = max(0, count - one.idle)
        while not self.creates(one.unit, missing):
            kept = sum(other.idle for other in others)
            for other in others:
                other.idle, other.resting = 0, True
            if not kept:
                return False
        one.out += count
        one.idle -= count - missing
        if missing:
            one.resting = one.failed = False
        return True

    def give(self, one, count):
        one.out -= count
        if one.open:
            one.idle += min(count, max(0, max(one.cache, one.target) - one.idle))
            one.resting = one.failed = False

    def work(self):
        """What the threads do; never two of them at once, because an operation wakes only its own."""
        assert sum(one.lacks() for one in self.all) <= 1
        for one in self.all:
            while one.lacks():
                if self.creates(one.unit, 1):
                    one.idle += 1
                else:
                    one.resting = one.failed = True


class Pair:
    """Three supplies and their model, given the same operations."""

    def __init__(self):
        self.api = FailingDriver(vmm.HostDriver(memory=TOTAL * UNIT, granularity=UNIT, backing="none"))
        self.device = vmm.Device(driver=self.api)
        self.model = Model()
        self.supplies, self.held = [], []
        self.seen = {"taken": 0, "refused": 0, "failed": 0}
        for shape in range(3):
            self.supplies.append(self.made(shape))
            self.held.append([])
            self.settle()

    def made(self, shape, at=None):
        unit, most, cache, target = SHAPES[shape % len(SHAPES)]
        counts = Counts(unit, most, cache, target)
        if at is None:
            self.model.all.append(counts)
        else:
            self.model.all[at] = counts
        size = unit * UNIT
        budget = None if most is None else most * size
        return vmm.ChunkSupply(self.device, size, budget=budget, cache=cache * size, prefetch=target * size)

    # -- operations ---------------------------------------------------------------------------------------------

    def take(self, which, count):
        expected = self.model.take(self.model.all[which], count)
        try:
            taken = self.supplies[which].take(count)
        except (vmm.OutOfMemoryError, vmm.ClosedError):
            assert not expected
            self.seen["refused"] += 1
        else:
            assert expected
            assert len(taken) == count
            self.held[which].extend(taken)
            self.seen["taken"] += count
        self.settle()

    def give(self, which, count):
        held = self.held[which]
        leaving, self.held[which] = held[:count], held[count:]
        self.model.give(self.model.all[which], len(leaving))
        self.supplies[which].give(leaving)
        self.settle()

    def trim(self, which):
        one = self.model.all[which]
        assert self.supplies[which].trim() == one.idle * one.unit * UNIT
        one.idle, one.resting = 0, True
        self.settle()

    def close(self, which, shape):
        """Close a supply; one that is closed and has everything back is replaced by a new one."""
        one = self.model.all[which]
        if one.open or self.held[which]:
            self.supplies[which].close()
            one.idle, one.open = 0, False
        else:
            self.supplies[which] = self.made(shape, which)
        self.settle()

    def fail(self, at):
        self.api.arm("cuMemCreate", at)
        self.model.failing = at

    # -- agreement ----------------------------------------------------------------------------------------------

    def settle(self):
        self.model.work()
        for supply, one in zip(self.supplies, self.model.all, strict=True):
            assert supply.wait_prefetched(30)
            size = one.unit * UNIT
            assert (supply.in_use, supply.cached) == (one.out * size, one.idle * size)
            assert supply.available == (None if one.most is None else one.room() * size)
            assert supply.can_take(one.room())
            assert one.most is None or not supply.can_take(one.room() + 1)
            if one.open:
                assert (supply.prefetch_error is not None) == (one.failed and one.target > 0)
                self.seen["failed"] += one.failed
        handles = [chunk.handle for held in self.held for chunk in held]
        assert len(set(handles)) == len(handles) == sum(one.out for one in self.model.all)
        assert self.device.driver.api.live().allocations == sum(one.out + one.idle for one in self.model.all)
        assert self.device.memory_info().free == (TOTAL - self.model.used()) * UNIT

    def finish(self):
        for which, supply in enumerate(self.supplies):
            supply.close()
            supply.give(self.held[which])
            assert (supply.in_use, supply.cached) == (0, 0)
        assert self.device.driver.api.live().allocations == 0
        self.device.close()


class Life(RuleBasedStateMachine):
    """Hypothesis chooses the operations, and shortens a life that goes wrong."""

    def __init__(self):
        super().__init__()
        self.pair = Pair()

    which = st.integers(0, 2)

    @rule(which=which, count=st.integers(0, 6))
    def take(self, which, count):
        self.pair.take(which, count)

    @rule(which=which, count=st.integers(0, 6))
    def give(self, which, count):
        self.pair.give(which, count)

    @rule(which=which)
    def trim(self, which):
        self.pair.trim(which)

    @rule(which=which, shape=st.integers(0, len(SHAPES) - 1))
    def close(self, which, shape):
        self.pair.close(which, shape)

    @rule(at=st.integers(1, 5))
    def fail(self, at):
        self.pair.fail(at)

    def teardown(self):
        self.pair.finish()


def test_any_life_of_supplies_agrees_with_the_counts():
    chosen = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(Life, settings=chosen)


def live(seed, steps):
    pair, seeded = Pair(), random.Random(seed)
    for _ in range(steps):
        which, count = seeded.randrange(3), seeded.randrange(7)
        turn = seeded.random()
        if turn < 0.48:
            pair.take(which, count)
        elif turn < 0.85:
            pair.give(which, count)
        elif turn < 0.90:
            pair.trim(which)
        elif turn < 0.95:
            pair.close(which, seeded.randrange(len(SHAPES)))
        else:
            pair.fail(1 + seeded.randrange(5))
    pair.finish()
    assert min(pair.seen.values()) > steps // 100, pair.seen


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seeded_life_agrees_with_the_counts(seed):
    live(seed, 8_000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_a_long_life_agrees_with_the_counts(seed):
    live(100 + seed, 10_000)
