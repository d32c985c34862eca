"""What a heap keeps and nobody uses is there for others on its supply and its device."""

import threading

import pytest

import vmm

MIB = 1 << 20
CHUNK = 2 * MIB


@pytest.fixture
def small():
    with vmm.Device(driver=vmm.HostDriver(memory=8 * CHUNK, backing="none")) as made:
        yield made


def test_another_range_of_the_supply_gets_it(small):
    with (
        vmm.ChunkSupply(small, budget=6 * CHUNK) as supply,
        vmm.Heap(small, "1 GiB", supply=supply) as heap,
        vmm.GrowableRange(small, "1 GiB", supply=supply) as kv,
    ):
        kept = heap.allocate(100)
        heap.allocate(5 * CHUNK).free()
        assert (heap.committed, supply.available) == (6 * CHUNK, 0)
        assert supply.obtainable() == 5 * CHUNK
        kv.grow(3 * CHUNK)
        assert heap.committed == 3 * CHUNK
        heap.check()
        kept.free()


def test_another_supply_of_the_device_gets_it(small):
    with vmm.Heap(small, "1 GiB") as heap, vmm.GrowableRange(small, "1 GiB") as other:
        heap.allocate(7 * CHUNK).free()
        assert small.obtainable == 8 * CHUNK
        other.grow(8 * CHUNK)
        assert heap.committed == 0
        heap.check()
        with pytest.raises(vmm.OutOfMemoryError):
            heap.allocate(100)
        other.shrink(CHUNK)
        heap.allocate(100)


def test_case_7_what_is_cached_is_used_before_anything_is_refused(small):
    """cupy#7678: a limit of 2, take 1, free it, ask 2."""
    with (
        vmm.ChunkSupply(small, budget=2 * CHUNK) as supply,
        vmm.Heap(small, "1 GiB", supply=supply) as heap,
    ):
        for size in (CHUNK, 2 * CHUNK, CHUNK // 3, 2 * CHUNK):
            heap.allocate(size).free()
            heap.allocate(size, stream=0).free()


@pytest.mark.parametrize("budget", [None, 300])
def test_a_growth_of_more_than_is_needed_never_leads_to_a_refusal(budget):
    """A large heap takes some chunks more in one go, but not the last ones."""
    driver = vmm.HostDriver(memory=300 * CHUNK if budget is None else 1000 * CHUNK, backing="none")
    with (
        vmm.Device(driver=driver) as device,
        vmm.ChunkSupply(device, budget=budget and budget * CHUNK) as supply,
        vmm.Heap(device, "4 GiB", supply=supply) as heap,
    ):
        blocks = [heap.allocate(CHUNK) for _ in range(200)]
        assert heap.committed > 200 * CHUNK
        blocks += [heap.allocate(CHUNK) for _ in range(100)]
        assert heap.committed == 300 * CHUNK
        assert len({block.address for block in blocks}) == 300


def test_a_heap_that_is_in_a_change_spares_nothing_and_waits_for_who_looks(small):
    with (
        vmm.ChunkSupply(small, budget=6 * CHUNK) as supply,
        vmm.Heap(small, "1 GiB", supply=supply) as heap,
    ):
        heap.allocate(4 * CHUNK).free()
        with heap.turn.taken():
            assert supply.obtainable() == 2 * CHUNK
        looking, go_on, found = threading.Event(), threading.Event(), []

        def look():
            with heap.turn.borrowed() as mine:
                found.append(mine)
                looking.set()
                go_on.wait(20)

        thread = threading.Thread(target=look)
        thread.start()
        assert looking.wait(20)
        threading.Timer(0.05, go_on.set).start()
        heap.allocate(CHUNK)  # no error: the other thread is done soon
        thread.join()
        assert found == [True]


def test_a_heap_that_was_dropped_is_forgotten(small):
    with vmm.ChunkSupply(small, budget=6 * CHUNK) as supply:
        with vmm.Heap(small, "1 GiB", supply=supply) as heap:
            heap.allocate(4 * CHUNK).free()
        del heap
        assert supply.obtainable() == 6 * CHUNK
        assert small.obtainable == 8 * CHUNK
