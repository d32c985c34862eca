"""Seeded random calls against a model that marks every unit, and that knows which stream last used it."""

import random

import pytest

import vmm

UNIT = 64 << 10
STREAMS = (None, 0, 1)


class Model:
    """Blocks as sets of units of 512 bytes."""

    def __init__(self):
        self.taken = set()

    def take(self, block):
        units = range(block.offset // 512, (block.offset + block.size) // 512)
        assert block.offset % 512 == block.size % 512 == 0
        assert self.taken.isdisjoint(units), f"{block} has bytes of another block"
        self.taken.update(units)

    def free(self, block):
        units = set(range(block.offset // 512, (block.offset + block.size) // 512))
        assert units <= self.taken
        self.taken -= units


def size_of(rng):
    return rng.choice((rng.randrange(1, 3000), rng.randrange(1, UNIT), rng.randrange(1, 6 * UNIT)))


def walk(heap, seed, steps, most):
    """Allocate and free at random. Every block keeps a value of its own in its first and last byte."""
    rng, model, held = random.Random(seed), Model(), []
    refused = 0
    for step in range(steps):
        if held and (rng.random() < 0.48 or heap.allocated > most):
            block, value = held.pop(rng.randrange(len(held)))
            array = block.array("uint8", block.requested)
            assert (int(array[0]), int(array[-1])) == (value, value)
            del array
            model.free(block)
            rng.choice((block.free, block.free, block.drop))()
        else:
            alignment = rng.choice((512, 512, 512, 4096, UNIT))
            try:
                block = heap.allocate(size_of(rng), stream=rng.choice(STREAMS), alignment=alignment)
            except vmm.OutOfMemoryError:
                refused += 1
                continue
            assert block.address % alignment == 0
            assert not heap._dropped, "what was dropped was not freed"
            model.take(block)
            array = block.array("uint8", block.requested)
            array[0] = array[-1] = step % 251
            del array
            held.append((block, step % 251))
        if rng.random() < 0.02:
            heap.trim()
        if rng.random() < 0.02:
            heap.collect(wait=rng.random() < 0.5)
        if step % 7 == 0:
            heap.check()
            check_against(heap, model)
    for block, _value in held:
        block.free()
    heap.trim()
    heap.collect(wait=True)
    heap.check()
    assert heap.committed == heap.allocated == 0
    return refused


def check_against(heap, model):
    dropped = sum(block.size for block in heap._dropped)
    assert heap.allocated == len(model.taken) * 512 + dropped
    needed = {unit * 512 // UNIT for unit in model.taken}
    assert needed <= set(heap.range.committed_chunks())
    assert heap.committed >= len(needed) * UNIT
    if not heap.keep and not dropped and not heap.range.retiring:
        assert heap.committed == len(needed) * UNIT


def run(seed, steps, keep, streams, budget):
    driver = vmm.HostDriver(memory=256 * UNIT, granularity=UNIT, streams=streams)
    with (
        vmm.Device(driver=driver) as device,
        vmm.ChunkSupply(device, budget=budget * UNIT) as supply,
        vmm.Heap(device, 512 * UNIT, supply=supply, keep=keep) as heap,
    ):
        return walk(heap, seed, steps, 40 * UNIT)


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("keep", [True, False])
def test_random_blocks_never_overlap_and_keep_their_bytes(keep, streams):
    assert run(5, 350, keep, streams, 200) == 0


def test_random_blocks_where_memory_lacks():
    assert run(6, 350, True, "eager", 24) > 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_many_random_blocks(seed):
    for keep in (True, False):
        for streams in ("eager", "deferred"):
            run(seed, 900, keep, streams, (24, 40, 200)[seed % 3])


def test_a_refusal_changes_no_block_and_the_largest_that_is_possible_is_had():
    """rmm#93: what is left is known, and one block of it is had whatever came before."""
    driver = vmm.HostDriver(memory=64 * UNIT, granularity=UNIT, backing="none")
    with vmm.Device(driver=driver) as device, vmm.Heap(device, 4096 * UNIT) as heap:
        rng, held = random.Random(9), []
        for _ in range(200):
            if held and rng.random() < 0.5:
                held.pop(rng.randrange(len(held))).free()
                continue
            try:
                held.append(heap.allocate(rng.randrange(1, 12) * UNIT))
            except vmm.OutOfMemoryError:
                before = [(block.address, block.size) for block in held]
                left = 64 * UNIT - sum(block.size for block in held)
                with pytest.raises(vmm.OutOfMemoryError):
                    heap.allocate(left + UNIT)
                assert [(block.address, block.size) for block in held] == before
                if left:
                    heap.allocate(left).free()
            heap.check()
