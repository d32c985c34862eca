"""A pool against a naive model: what a sequence wrote is what it reads, whatever happens to the others."""

import ctypes
import random
import zlib

import numpy as np
import pytest

import paged
import vmm

UNIT = 64 << 10
SIZE = 4  # tokens of a block
SPEC = paged.KVSpec(1, 1, 512, "float32")  # 16 KiB a block of K and V, four blocks a row
KINDS = (
    ("start", 6), ("append", 6), ("ids", 4), ("fork", 3), ("free", 5), ("step", 10), ("step ids", 6), ("drop", 2),
    ("compact", 1), ("trim", 1), ("budget", 1), ("publish", 1),
)  # fmt: skip


class Naive:
    """Sequences as lists of numbers. A token whose id and history are known has a number that follows from them."""

    def __init__(self, pool, seed):
        self.pool, self.random = pool, random.Random(seed)
        self.numbers = {}  # sequence -> a number for each token
        self.ids = {}  # sequence -> ids of the first tokens, as far as they are known
        self.count = 0

    def number(self, ids):
        """Of the last token of ``ids``: the same wherever the same ids stand before it."""
        return float(zlib.crc32(bytes(ids)) & 0x7FFFFF)

    def fresh(self):
        self.count += 1
        return float(0x800000 + self.count)  # float32 holds it exactly

    def pick(self):
        return self.random.choice(list(self.numbers)) if self.numbers else None

    def new_numbers(self, sequence, ids, count):
        """Note ``count`` more tokens, by ids or not, and return their numbers."""
        known = self.ids[sequence]
        if ids is None or len(known) < len(self.numbers[sequence]):
            return [self.fresh() for _ in range(count)]
        found = [self.number([*known, *ids[: place + 1]]) for place in range(count)]
        known.extend(ids)
        return found

    def write(self, sequence, slots, numbers):
        """Put numbers into memory and into the list."""
        for slot, number in zip(slots.tolist(), numbers, strict=True):
            at(self.pool, slot // SIZE, slot % SIZE).value = number
        self.numbers[sequence].extend(numbers)

    def start(self):
        ids = [self.random.randrange(2) for _ in range(self.random.randrange(1, 20))]
        sequence = self.pool.sequence(np.array(ids, np.int32))
        assert sequence.length < len(ids)
        assert sequence.length % SIZE == 0
        self.ids[sequence] = ids[: sequence.length]
        self.numbers[sequence] = [self.number(ids[: place + 1]) for place in range(sequence.length)]
        rest = ids[sequence.length :]
        if self.tried(sequence, len(rest), lambda: sequence.append(np.array(rest, np.int32)), rest) is None:
            self.free(sequence)

    def tried(self, sequence, count, append, ids):
        """Append if it is possible, and only then."""
        can = sequence.can_append(count)
        try:
            slots = append()
        except vmm.OutOfMemoryError:
            assert not can
            return None
        assert can
        self.write(sequence, slots, self.new_numbers(sequence, ids, count))
        return slots

    def append(self, *, by_ids):
        sequence = self.pick()
        count = self.random.randrange(12)
        ids = [self.random.randrange(2) for _ in range(count)] if by_ids else None
        what = np.array(ids, np.int32) if by_ids else count
        self.tried(sequence, count, lambda: sequence.append(what), ids)

    def fork(self):
        parent = self.pick()
        child = parent.fork()
        self.numbers[child], self.ids[child] = list(self.numbers[parent]), list(self.ids[parent])

    def free(self, sequence):
        sequence.free()
        del self.numbers[sequence], self.ids[sequence]

    def step(self, *, by_ids):
        chosen = self.random.sample(list(self.numbers), self.random.randrange(len(self.numbers) + 1))
        batch = paged.Batch(self.pool, chosen)
        ids = [self.random.randrange(2) for _ in chosen]
        can = batch.can_append()
        try:
            slots = batch.append(np.array(ids, np.int32) if by_ids else None)
        except vmm.OutOfMemoryError:
            assert not can
            return
        assert can
        for place, sequence in enumerate(chosen):
            numbers = self.new_numbers(sequence, [ids[place]] if by_ids else None, 1)
            self.write(sequence, slots[place : place + 1], numbers)

    def drop(self):
        sequence = self.pick()
        sequence.drop_before(self.random.randrange(sequence.length + 1))

    def do(self, kind):
        pool = self.pool
        if kind == "start" and len(self.numbers) < 12:
            self.start()
        elif kind == "compact":
            pool.compact(most=self.random.choice((None, 5)))
        elif kind == "trim":
            pool.trim(cache=self.random.random() < 0.3)
        elif kind == "budget":
            pool.set_budget(self.random.randrange(2, 25) * pool.layout.row_bytes)
        elif not self.numbers or kind == "start":
            return
        elif kind in ("append", "ids"):
            self.append(by_ids=kind == "ids")
        elif kind == "fork" and len(self.numbers) < 12:
            self.fork()
        elif kind == "free":
            self.free(self.pick())
        elif kind in ("step", "step ids"):
            self.step(by_ids=kind == "step ids")
        elif kind == "drop":
            self.drop()
        elif kind == "publish":
            self.pick().publish()

    def check(self):
        """The books, every length, and every byte of one sequence."""
        self.pool.check()
        assert {one: one.length for one in self.pool.sequences} == {one: len(of) for one, of in self.numbers.items()}
        sequence = self.pick()
        if sequence is not None:
            kept = range(sequence.dropped, sequence.length)
            table, numbers = sequence.table, self.numbers[sequence]
            found = [at(self.pool, table[token // SIZE], token % SIZE).value for token in kept]
            assert found == [numbers[token] for token in kept]


def at(pool, block, slot):
    """The first number of K of one token."""
    return ctypes.c_float.from_address(pool.address(block=block, slot=slot))


def run(steps, seed):
    kinds = [kind for kind, weight in KINDS for _ in range(weight)]
    driver = vmm.HostDriver(memory="4 MiB", granularity=UNIT)
    with vmm.Device(driver=driver) as device:
        layout = paged.KVLayout(SPEC, SIZE, "block", chunk=UNIT)
        with paged.KVPool(device, layout, budget=24 * layout.row_bytes, prefix_cache=True, reserve_rows=1) as pool:
            naive = Naive(pool, seed)
            hits = 0
            for _ in range(steps):
                naive.do(naive.random.choice(kinds))
                naive.check()
                hits = max(hits, pool.blocks_idle)
            assert hits, "the prefix cache was never used"
            for sequence in list(naive.numbers):
                naive.free(sequence)
            pool.trim(cache=True)
            pool.check()
            assert (pool.tokens, pool.block_pool.used, pool.committed) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_random_operations_agree_with_the_model(seed):
    run(600, seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_random_operations_agree_with_the_model(seed):
    run(25_000, 100 + seed)
