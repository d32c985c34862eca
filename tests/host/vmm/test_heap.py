import itertools
import random
import threading

import numpy as np
import pytest

import vmm

STREAMS = ("eager", "deferred")

MIB = 1 << 20


@pytest.fixture
def heap(device):
    with vmm.Heap(device, "1 GiB") as made:
        yield made


def test_a_block_commits_what_it_covers_and_gives_it_back(heap):
    block = heap.allocate(123_456)
    assert (block.requested, block.size) == (123_456, 123_904)
    assert block.address % 512 == 0
    assert (heap.reserved, heap.committed, heap.allocated) == (1 << 30, 2 * MIB, 123_904)
    block.free()
    heap.range.collect(wait=True)
    assert (heap.committed, heap.allocated) == (0, 0)


def test_a_chunk_stays_while_any_block_lies_in_it(heap):
    first, second = heap.allocate("3 MiB"), heap.allocate("3 MiB")
    assert heap.committed == 6 * MIB
    first.free()
    heap.range.collect(wait=True)
    assert heap.committed == 4 * MIB  # the chunk in the middle holds a part of both
    second.free()
    heap.range.collect(wait=True)
    assert heap.committed == 0


def test_freed_neighbours_merge_and_the_best_fit_is_taken(heap):
    blocks = [heap.allocate("1 MiB") for _ in range(6)]
    places = [block.address for block in blocks]
    for index in (1, 2, 4):
        blocks[index].free()
    assert heap.allocate("1 MiB").address == places[4]  # the hole that fits exactly, not the larger one before it
    assert heap.allocate("2 MiB").address == places[1]


def test_case_5_physical_memory_never_fragments(device):
    """rmm#1957 and #1664: free the 4 beside the 1, put 1 there, and 4 in a row are still to be had."""
    unit = 2 * MIB
    supply = vmm.ChunkSupply(device, budget=8 * unit)
    with supply, vmm.Heap(device, 64 * unit, supply=supply) as heap:
        heap.allocate(unit)
        four = heap.allocate(4 * unit)
        four.free()
        heap.allocate(unit)
        heap.allocate(unit)
        assert heap.allocate(4 * unit).size == 4 * unit
        assert heap.committed == 7 * unit


def test_no_address_left_names_the_largest_span(device):
    with vmm.Heap(device, "8 MiB") as heap:
        heap.allocate("5 MiB")
        with pytest.raises(vmm.OutOfMemoryError, match="the largest is 3 MiB"):
            heap.allocate("4 MiB")
        heap.allocate("3 MiB")


def test_no_physical_memory_left_changes_nothing(heap):
    heap.allocate("200 MiB")
    with pytest.raises(vmm.OutOfMemoryError):
        heap.allocate("100 MiB")
    assert (heap.allocated, heap.committed) == (200 * MIB, 200 * MIB)
    heap.allocate("50 MiB")


def test_a_block_freed_twice_is_refused(heap):
    block = heap.allocate(100)
    block.free()
    with pytest.raises(vmm.StateError, match="freed before"):
        block.free()
    again = heap.allocate(100)
    assert again.offset == block.offset
    with pytest.raises(vmm.StateError, match="freed before"):
        block.free()  # the place is taken by another block now
    with pytest.raises(vmm.StateError, match="freed before"):
        block.array("uint8", 100)
    assert heap.allocated == again.size


def test_a_viewed_block_is_not_freed_and_an_array_stays_inside_its_block(heap):
    block = heap.allocate(4096)
    x = block.array("float32", 1024)
    x[:] = 2
    with pytest.raises(vmm.StateError, match="cannot free"):
        block.free()
    assert heap.allocated == 4096
    with pytest.raises(vmm.RangeError, match="there are 4096"):
        block.array("float32", 1025)
    assert float(x.sum()) == 2048
    del x
    block.free()


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"])
def test_an_allocation_or_free_that_fails_changes_nothing(failing, call):
    device, api = failing
    with vmm.Heap(device, "64 MiB") as heap:
        heap.allocate("1 MiB")
        block = heap.allocate("6 MiB")
        state = (heap.allocated, heap.committed, device.driver.api.live())
        api.arm(call, 1)
        with pytest.raises(vmm.VmmError):
            block.free() if call == "cuMemUnmap" else heap.allocate("9 MiB")
        assert not api.disarm()
        assert (heap.allocated, heap.committed, device.driver.api.live()) == state
        heap.allocate("9 MiB").free()
        block.free()


def test_random_blocks_never_overlap_and_keep_their_bytes(heap):
    rng = random.Random(5)
    held: list[tuple[vmm.Block, int]] = []
    for step in range(1, 1500):
        if held and (rng.random() < 0.45 or heap.allocated > 100 * MIB):
            block, value = held.pop(rng.randrange(len(held)))
            assert (block.array("uint32", block.requested // 4) == value).all()
            block.free()
        else:
            block = heap.allocate(rng.choice([4, 600, 5000, 70_000, 3 * MIB]) // 4 * 4)
            block.array("uint32", block.requested // 4)[:] = step
            held.append((block, step))
        used = np.zeros(heap.range.chunk_count, dtype=bool)
        for block, _ in held:
            used[block.offset // (2 * MIB) : -(-(block.offset + block.size) // (2 * MIB))] = True
        assert heap.committed - heap.range.retiring == 2 * MIB * int(used.sum())
        assert heap.allocated == sum(block.size for block, _ in held)
    ordered = sorted(held, key=lambda entry: entry[0].offset)
    for (low, _), (high, _) in itertools.pairwise(ordered):
        assert low.offset + low.size <= high.offset


def test_two_threads_at_once_are_told_and_nothing_is_lost(rules):
    refused, errors = [], []
    with vmm.Heap(rules, "64 MiB") as heap:

        def work():
            try:
                for _ in range(2000):
                    try:
                        block = heap.allocate(700_000)
                    except vmm.StateError as refusal:
                        refused.append(refusal)
                        continue
                    while True:
                        try:
                            block.free()
                            break
                        except vmm.StateError as refusal:
                            refused.append(refusal)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert all("one thread at a time" in str(refusal) for refusal in refused)
        assert (heap.allocated, heap.committed) == (0, 0)
        assert heap.allocate("64 MiB").size == 64 * MIB
