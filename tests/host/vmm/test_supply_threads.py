"""Several threads on supplies of one device, while creates fail: nobody gets what another has, totals are exact."""

import random
import sys
import threading

import pytest

import vmm
from vmm.host import FailingDriver

UNIT = 64 << 10
TOTAL = 40  # chunks of memory
THREADS = 6


class Worker(threading.Thread):
    """Takes and gives at random, and keeps account of what it holds together with the others."""

    def __init__(self, seed, supplies, account, api, steps):
        super().__init__(name=f"worker {seed}")
        self.seeded = random.Random(seed)
        self.supplies, self.account, self.api, self.steps = supplies, account, api, steps
        self.held = [[] for _ in supplies]
        self.taken = self.refused = 0
        self.error = None

    def run(self):
        try:
            for _ in range(self.steps):
                self.step()
            for which in range(len(self.supplies)):
                self.give(which, len(self.held[which]))
        except BaseException as error:
            self.error = error

    def step(self):
        which, turn = self.seeded.randrange(len(self.supplies)), self.seeded.random()
        if turn < 0.5:
            self.take(which, self.seeded.randint(1, 5))
        elif turn < 0.92:
            self.give(which, self.seeded.randint(1, 6))
        elif turn < 0.95:
            assert self.supplies[which].trim() % UNIT == 0
        else:
            self.api.arm("cuMemCreate", self.seeded.randint(1, 4))

    def take(self, which, count):
        supply = self.supplies[which]
        try:
            taken = supply.take(count)
        except vmm.OutOfMemoryError:
            self.refused += 1
            return
        for chunk in taken:
            assert self.account.setdefault(chunk.handle, self) is self
        assert supply.budget is None or supply.in_use <= supply.budget
        self.held[which].extend(taken)
        self.taken += count

    def give(self, which, count):
        held = self.held[which]
        leaving, self.held[which] = held[:count], held[count:]
        for chunk in leaving:
            assert self.account.pop(chunk.handle) is self
        self.supplies[which].give(leaving)


@pytest.fixture
def hasty():
    """Threads change turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def together(seed, steps):
    api, account = FailingDriver(vmm.HostDriver(memory=TOTAL * UNIT, granularity=UNIT, backing="none")), {}
    with vmm.Device(driver=api) as device:
        supplies = [
            vmm.ChunkSupply(device, budget=20 * UNIT, cache=4 * UNIT, prefetch=6 * UNIT),
            vmm.ChunkSupply(device, cache=3 * UNIT),
            vmm.ChunkSupply(device, 2 * UNIT, prefetch=8 * UNIT),
        ]
        workers = [Worker(seed * THREADS + number, supplies, account, api, steps) for number in range(THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
            assert not worker.is_alive()
            assert worker.error is None, worker.error
        assert not account
        api.disarm()
        kept = 0
        for supply, most in zip(supplies, (6, 3, 4), strict=True):
            assert supply.wait_prefetched(30)
            assert supply.in_use == 0
            assert supply.cached <= most * supply.chunk_size
            kept += supply.cached
        assert device.memory_info().free == TOTAL * UNIT - kept
        for supply in supplies:
            supply.close()
        assert device.driver.api.live().allocations == 0
        assert min(sum(worker.taken for worker in workers), sum(worker.refused for worker in workers)) > steps // 10


@pytest.mark.parametrize("seed", [1])
def test_threads_take_and_give_while_creates_fail(hasty, seed):  # noqa: ARG001 - a setting
    together(seed, 2_000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10, 15))
def test_threads_take_and_give_for_long(hasty, seed):  # noqa: ARG001 - a setting
    together(seed, 10_000)


def test_supplies_come_and_go_in_many_threads(rules):
    """Each with a thread of its own, which ends with it, whoever lacks memory meanwhile."""
    errors = []

    def work(number):
        try:
            for _ in range(30):
                with vmm.ChunkSupply(rules, prefetch=3 * rules.granularity) as supply:
                    supply.give(supply.take(number))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not errors
    assert not [thread for thread in threading.enumerate() if thread.name == "vmm-prefetch"]
    assert rules.driver.api.live().allocations == 0
