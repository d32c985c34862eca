"""Cases that other projects met, each with its right answer here: leaks, moved bases, caches in the way, odd sizes."""

import os

import pytest

import vmm
from vmm.host import headroom

MIB = 1 << 20
CHUNK = 2 * MIB


def in_a_range(device):
    with vmm.GrowableRange(device, 64 * MIB) as memory:
        memory.grow(64 * MIB)


def in_a_heap(device):
    with vmm.Heap(device, reserve=64 * MIB) as heap:
        heap.allocate(64 * MIB).free()


def by_hand(device):
    with vmm.AddressRange(device, 64 * MIB) as addresses, vmm.PhysicalMemory(device, 64 * MIB) as memory:
        addresses.set_access([addresses.map(0, memory)], vmm.Access.READWRITE)


def from_a_supply_that_prefetches(device):
    with vmm.ChunkSupply(device, 8 * MIB, cache=16 * MIB, prefetch=16 * MIB) as supply:
        supply.give(supply.take(8))


@pytest.mark.parametrize("allocate", [in_a_range, in_a_heap, by_hand, from_a_supply_that_prefetches])
def test_case_3_allocate_64_mib_and_close_64_times(rules, allocate):
    """cuda-python#2344, #2882: no live handle, no mapping, and the free memory of the start."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=rules.driver.api, recorder=recorder) as device:
        before, free = device.driver.api.live(), device.memory_info().free
        for _ in range(64):
            allocate(device)
            assert device.driver.api.live() == before
            assert device.memory_info().free == free
        counts = recorder.counts()
    assert counts["cuMemCreate"] == counts["cuMemRelease"] >= 64


def test_case_3_the_system_has_its_memory_back_too(device):
    for _ in range(8):
        in_a_range(device)
        assert device.driver.api.committed_bytes() == 0
    assert device.memory_info().free == device.memory_info().total


@pytest.fixture
def recorded(device):
    """A device whose calls are kept."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=device.driver.api, recorder=recorder) as made:
        yield made, recorder


def spans(recorder, call):
    return sorted((event.address, event.size) for event in recorder.events() if event.call == call)


@pytest.mark.parametrize("neighbours", [0, 2])
def test_case_4_a_base_never_moves_whether_the_next_addresses_are_free_or_taken(recorded, neighbours):
    """cuda-python#2887, #2877, #2388: grow, grow where the addresses behind are taken, grow twice, close."""
    device, recorder = recorded
    with vmm.GrowableRange(device, 4 * CHUNK) as memory:
        base, after = memory.base, memory.base + memory.reserved
        taken = [device.driver.reserve(CHUNK, hint=after) for _ in range(neighbours)]
        assert after not in taken[1:]  # at the latest the second finds them taken
        memory.grow(CHUNK)
        memory.array("uint32", 4)[:] = 5
        memory.grow(CHUNK + 1)
        memory.grow(CHUNK)
        assert (memory.base, memory.committed) == (base, 4 * CHUNK)
        with pytest.raises(vmm.RangeError, match="8 MiB reserved"):
            memory.grow(CHUNK)
        assert (memory.base, memory.committed, memory.size) == (base, 4 * CHUNK, 3 * CHUNK + 1)
        assert (memory.array("uint32", 4) == 5).all()
    for address in taken:
        device.driver.free(address, CHUNK)
    assert spans(recorder, "cuMemAddressFree") == spans(recorder, "cuMemAddressReserve")
    created = sorted(event.handle for event in recorder.events() if event.call == "cuMemCreate")
    assert created == sorted(event.handle for event in recorder.events() if event.call == "cuMemRelease")
    assert sum(size for _, size in spans(recorder, "cuMemUnmap")) == 4 * CHUNK
    live = device.driver.api.live()
    assert (live.reservations, live.mappings, live.allocations) == (0, 0, 0)


def test_case_4_a_range_between_two_others_frees_only_its_own(recorded):
    """Two reservations side by side stay two, whichever goes first."""
    device, recorder = recorded
    ranges = [vmm.GrowableRange(device, 2 * CHUNK) for _ in range(5)]
    made = {(memory.base, memory.reserved) for memory in ranges}
    for index in (2, 0, 4, 1, 3):
        ranges[index].grow(2 * CHUNK)
        ranges[index].close()
    assert set(spans(recorder, "cuMemAddressFree")) == made == set(spans(recorder, "cuMemAddressReserve"))


@pytest.mark.parametrize("prefetch", [None, "2 MiB", "4 MiB"])
def test_case_7_neither_a_cached_nor_a_prefetched_chunk_stands_in_the_way(prefetch):
    """cupy#7678, where the device itself holds two chunks: asked for as two, as one of both, and of another supply."""
    with vmm.Device(driver=vmm.HostDriver(memory=2 * CHUNK)) as device:
        small = vmm.ChunkSupply(device, budget=2 * CHUNK, cache=2 * CHUNK, prefetch=prefetch)
        with small, vmm.ChunkSupply(device, 2 * CHUNK) as large:
            for _ in range(3):
                small.give(small.take(1))
                small.wait_prefetched(30)
                assert small.cached >= CHUNK
                small.give(small.take(2))
                small.wait_prefetched(30)
                large.give(large.take(1))
                assert (small.in_use, large.in_use) == (0, 0)


def test_case_9_less_than_what_is_set_aside_is_none(device, monkeypatch):
    """kvcached#371: 3 free and 5 set aside are 0 available, never negative and never huge."""
    monkeypatch.setattr(headroom, "available_bytes", lambda: 3 * MIB)  # of which 64 are left for the program
    with vmm.ChunkSupply(device) as supply:
        with pytest.raises(vmm.OutOfMemoryError):
            supply.take(1)
        assert (supply.in_use, supply.available) == (0, None)
    assert device.memory_info().free == 256 * MIB


def test_case_9_a_budget_that_holds_no_chunk_has_none_available(device):
    with vmm.ChunkSupply(device, 8 * MIB, budget=5 * MIB, cache=64 * MIB, prefetch=8 * MIB) as supply:
        assert supply.wait_prefetched(30)
        assert (supply.available, supply.cached) == (0, 0)
        assert supply.can_take(0)
        assert not supply.can_take(1)
        with pytest.raises(vmm.OutOfMemoryError, match="8 MiB asked, 0 B left"):
            supply.take(1)


def test_case_9_a_device_that_holds_more_than_it_has_shows_0_free():
    """5 units came from other processes to a device of 3."""
    unit = 64 << 10
    with (
        vmm.Device(driver=vmm.HostDriver(memory=5 * unit, granularity=unit)) as maker,
        vmm.Device(driver=vmm.HostDriver(memory=3 * unit, granularity=unit)) as holder,
        vmm.PhysicalMemory(maker, 5 * unit, exportable=True) as memory,
    ):
        descriptor = memory.export()
        with vmm.PhysicalMemory.imported(holder, 5 * unit, descriptor):
            assert holder.memory_info().free == 0
            with pytest.raises(vmm.OutOfMemoryError, match="0 B free"), vmm.ChunkSupply(holder) as supply:
                supply.take(1)
        os.close(descriptor)
        memory.close()  # one process here: its other descriptor counts too
        assert holder.memory_info().free == 3 * unit


@pytest.mark.parametrize("unit", [2 * MIB, 64 << 10])
@pytest.mark.parametrize("size", ["1", "6912", "G-1", "G", "G+1"])
def test_case_10_the_rounded_and_the_logical_size_are_both_kept(unit, size):
    """torch_memory_saver#82, mscclpp#451: copies touch the logical bytes only."""
    logical = {"1": 1, "6912": 6912, "G-1": unit - 1, "G": unit, "G+1": unit + 1}[size]
    rounded = 2 * unit if logical > unit else unit
    with (
        vmm.Device(driver=vmm.HostDriver(memory=4 * unit, granularity=unit)) as device,
        vmm.GrowableRange(device, 4 * unit) as memory,
        device.current(),
    ):
        memory.grow(logical)
        assert (memory.size, memory.committed) == (logical, rounded)
        assert device.memory_info().free == 4 * unit - rounded
        device.driver.fill_async(memory.base, 0xEE, rounded)
        device.driver.copy_in(memory.base, b"\x11" * logical, logical)
        device.synchronize()
        found = bytearray(rounded)
        device.driver.copy_out(found, memory.base, rounded)
        assert found == b"\x11" * logical + b"\xee" * (rounded - logical)
        assert bytes(memory.array("uint8", logical)) == b"\x11" * logical
        memory.shrink(logical)
        assert (memory.size, memory.committed) == (0, 0)


@pytest.mark.parametrize("unit", [2 * MIB, 64 << 10])
def test_case_10_what_is_rounded_and_what_is_refused(unit):
    """Addresses are rounded up; physical memory is taken as asked or not at all."""
    with vmm.Device(driver=vmm.HostDriver(memory=4 * unit, granularity=unit)) as device:
        for size, rounded in ((1, unit), (6912, unit), (unit - 1, unit), (unit, unit), (unit + 1, 2 * unit)):
            with vmm.AddressRange(device, size) as addresses:
                assert addresses.size == rounded
            if size == rounded:
                vmm.PhysicalMemory(device, size).close()
                continue
            for make in (vmm.PhysicalMemory, vmm.ChunkSupply):
                with pytest.raises(vmm.AlignmentError, match=str(size)):
                    make(device, size)
