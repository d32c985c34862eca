"""Blocks are ordered by streams: at once on their own, on another only after the work is done. Deferred streams run
nothing before somebody waits, so memory that changes hands too early shows.
"""

import threading

import numpy as np
import pytest

import vmm
from vmm.driver import EventHandle
from vmm.streams import PER_THREAD

STREAMS = ("deferred",)
MIB = 1 << 20
CHUNK = 2 * MIB


@pytest.fixture
def heap(device):
    with vmm.Heap(device, "1 GiB") as made:
        yield made
        made.check()


@pytest.fixture
def tight(device):
    """A heap that may have no more than 4 chunks."""
    with vmm.ChunkSupply(device, budget=4 * CHUNK) as supply, vmm.Heap(device, "1 GiB", supply=supply) as made:
        yield made
        made.check()


def fill(device, block, byte, stream):
    with device.current():
        device.driver.fill_async(block.address, byte, block.size, stream)


def free_in_flight(device, heap, size, stream):
    """Allocate and free a block for work that has not run yet."""
    block = heap.allocate(size, stream=stream)
    fill(device, block, 1, stream)
    block.free()
    return block


def pending(device):
    return device.driver.api.live().pending


def bytes_of(device, block):
    device.synchronize()
    return set(np.unique(block.array("uint8", block.requested)).tolist())


@pytest.mark.parametrize("size", [4096, 3 * CHUNK])
def test_the_same_stream_has_a_freed_block_at_once(device, heap, streams, size):
    first = free_in_flight(device, heap, size, streams[0])
    second = heap.allocate(size, stream=streams[0])
    assert (second.address, pending(device)) == (first.address, 1)  # nobody waited
    fill(device, second, 2, streams[0])
    assert bytes_of(device, second) == {2}


@pytest.mark.parametrize("size", [4096, 3 * CHUNK])
def test_another_stream_has_other_memory_until_the_work_is_done(device, heap, streams, size):
    first = free_in_flight(device, heap, size, streams[0])
    second = heap.allocate(size, stream=streams[1])
    fill(device, second, 2, streams[1])
    assert bytes_of(device, second) == {2}
    assert second.address != first.address


def test_what_another_stream_freed_is_moved_when_it_is_done(device, heap, streams):
    free_in_flight(device, heap, 8 * CHUNK, streams[0])
    heap.allocate(8 * CHUNK, stream=streams[1]).free()  # a lack of room, which has the work watched
    device.synchronize()
    committed = heap.committed
    block = heap.allocate(16 * CHUNK, stream=streams[1])
    assert heap.committed == committed  # nothing new was made
    fill(device, block, 2, streams[1])
    assert bytes_of(device, block) == {2}


def test_a_budget_that_another_stream_used_up_is_waited_for(device, tight, streams):
    free_in_flight(device, tight, 4 * CHUNK, streams[0])
    second = tight.allocate(4 * CHUNK, stream=streams[1])
    assert pending(device) == 0  # the fill ran on memory that was there
    fill(device, second, 2, streams[1])
    assert bytes_of(device, second) == {2}


def test_a_third_stream_waits_for_the_first_though_a_second_failed_between(device, tight, streams):
    """rmm#2489: a request that nothing can satisfy must not hand one stream's memory to all."""
    free_in_flight(device, tight, 2 * CHUNK, streams[0])
    with pytest.raises(vmm.OutOfMemoryError):
        tight.allocate(5 * CHUNK, stream=streams[1])
    third = tight.allocate(2 * CHUNK, stream=0)
    fill(device, third, 3, 0)
    assert bytes_of(device, third) == {3}


def test_streams_that_are_destroyed_leave_memory_that_others_have(device):
    """cuml#2632 and rmm#510: memory freed on many streams, which then go. cupy#8068: it is not lost to others."""
    with (
        vmm.ChunkSupply(device, budget=8 * CHUNK) as supply,
        vmm.Heap(device, "1 GiB", supply=supply) as heap,
    ):
        for _ in range(8):
            with device.current():
                stream = int(device.driver.api.cuStreamCreate(1)[1])
            block = heap.allocate(CHUNK, stream=stream)
            fill(device, block, 1, stream)
            with device.current():
                device.driver.api.cuStreamSynchronize(stream)
                device.driver.api.cuStreamDestroy(stream)
            block.free()
        block = heap.allocate(8 * CHUNK, stream=0)
        fill(device, block, 2, 0)
        assert bytes_of(device, block) == {2}
        heap.check()


def test_a_free_records_no_event():
    """rmm#1995: an event at each free costs as much as all the rest of it."""
    recorder = vmm.Recorder()
    with (
        vmm.Device(driver=vmm.HostDriver(memory="64 MiB", streams="deferred"), recorder=recorder) as other,
        vmm.Heap(other, "64 MiB") as heap,
    ):
        heap.allocate(CHUNK, stream=0).free()
        recorder.clear()
        for size in range(512, CHUNK, 100_000):
            heap.allocate(max(size, MIB), stream=0).free()
        assert not recorder.counts()


def test_a_block_freed_after_another_stream_waits_for_that(device, heap, streams, monkeypatch):
    block = heap.allocate(CHUNK, stream=streams[0])
    with monkeypatch.context() as busy:
        busy.setattr(device, "finished", lambda _event: False)  # the work takes long
        fill(device, block, 1, streams[1])
        block.free(after=streams[1])
        with pytest.raises(vmm.StateError, match="freed before"):
            block.free()
        assert heap.allocate(CHUNK, stream=streams[0]).address != block.address
    device.synchronize()
    heap.collect()
    assert heap.allocate(CHUNK, stream=streams[0]).address == block.address


def test_a_block_freed_after_an_event(device, heap, streams):
    block = heap.allocate(CHUNK, stream=streams[0])
    with device.current():
        event = int(device.driver.api.cuEventCreate(0)[1])
        fill(device, block, 1, streams[1])
        device.driver.api.cuEventRecord(event, streams[1])
    block.free(after=[EventHandle(event), 0])
    assert heap.allocate(CHUNK, stream=streams[0]).address != block.address
    heap.collect(wait=True)
    assert heap.allocate(CHUNK, stream=streams[0]).address == block.address
    with device.current():
        device.driver.api.cuEventDestroy(event)


def test_a_block_freed_after_another_stream_still_has_its_own_work(device, heap, streams):
    """Its own stream may write it although the other has ended: nobody else gets it."""
    block = heap.allocate(4 * CHUNK, stream=streams[0])
    block.free(after=streams[1])  # nothing runs there
    block = heap.allocate(4 * CHUNK, stream=streams[0])
    fill(device, block, 1, streams[0])
    block.free(after=streams[1])
    other = heap.allocate(2 * CHUNK, stream=0)  # for which what is known to be empty would be enough
    fill(device, other, 2, 0)
    assert bytes_of(device, other) == {2}


def test_memory_that_waits_for_other_work_is_had_before_memory_lacks(device, tight, streams):
    """pytorch#189504: no error while a block that fits is only not yet looked at."""
    block = tight.allocate(4 * CHUNK, stream=streams[0])
    fill(device, block, 1, streams[1])
    block.free(after=streams[1])
    assert tight.allocate(4 * CHUNK, stream=streams[0]).size == 4 * CHUNK


def test_addresses_that_retire_are_had_before_addresses_lack(device, streams):
    with vmm.Heap(device, 4 * CHUNK) as heap:
        free_in_flight(device, heap, 4 * CHUNK, streams[0])
        heap.trim()
        assert heap.range.retiring
        assert heap.allocate(4 * CHUNK, stream=streams[1]).size == 4 * CHUNK
        heap.check()


def test_a_trim_under_work_in_flight_takes_nothing_away_too_early(device, heap, streams):
    free_in_flight(device, heap, 3 * CHUNK, streams[0])
    assert heap.trim() == heap.range.retiring == 3 * CHUNK
    device.synchronize()  # a fault would be raised here
    heap.collect(wait=True)
    assert heap.committed == 0


@pytest.mark.parametrize("keep", [True, False])
def test_without_a_stream_all_work_of_the_device_counts(device, streams, keep):
    with vmm.Heap(device, "1 GiB", keep=keep) as heap:
        block = heap.allocate(3 * CHUNK)
        fill(device, block, 1, streams[1])
        block.free()
        heap.trim()
        assert heap.range.retiring == 3 * CHUNK
        device.synchronize()
        heap.collect(wait=True)
        assert heap.committed == 0


def test_without_a_stream_a_named_one_is_all_that_is_waited_for(device, streams):
    with vmm.Heap(device, "32 MiB", keep=False) as heap:
        first, second = heap.allocate(CHUNK), heap.allocate(CHUNK)
        fill(device, first, 1, streams[0])
        second.free(after=streams[1])
        heap.collect(wait=True)
        assert (heap.committed, pending(device)) == (first.size, 1)  # the first one's work
        first.free(after=streams[0])
        heap.collect(wait=True)
        assert heap.committed == 0


def test_a_chunk_of_two_blocks_waits_for_the_work_of_both(device, streams, monkeypatch):
    with vmm.Heap(device, "32 MiB", keep=False) as heap:
        first, second = heap.allocate(4096), heap.allocate(4096)
        with monkeypatch.context() as busy:
            busy.setattr(device, "finished", lambda _event: False)  # the work takes long
            fill(device, first, 1, streams[0])
            first.free(after=streams[0])
            second.free()
            heap.collect()
            assert heap.committed == CHUNK
        for _ in range(3):  # looks that let the named work run; it faults where its memory went too early
            heap.collect()
        device.synchronize()
        heap.collect(wait=True)
        assert heap.committed == 0


def test_a_stream_object_names_its_stream(heap, streams):
    class Stream:
        def __cuda_stream__(self):
            return 0, streams[0]

    block = heap.allocate(CHUNK, stream=Stream())
    assert block.stream == streams[0]
    block.free(after=Stream())
    heap.collect(wait=True)
    assert heap.allocate(CHUNK, stream=streams[0]).address == block.address


def test_the_stream_of_a_thread_is_another_in_each(device, heap, monkeypatch):
    """rmm#1393: CU_STREAM_PER_THREAD is one handle and many streams."""
    block = heap.allocate(CHUNK, stream=PER_THREAD)
    block.free()
    found = []
    thread = threading.Thread(target=lambda: found.append(heap.allocate(CHUNK, stream=PER_THREAD)))
    thread.start()
    thread.join()
    assert found[0].address != block.address
    assert heap.allocate(CHUNK, stream=PER_THREAD).address == block.address
    fill(device, found[0], 1, PER_THREAD)
    allocated = heap.allocated
    with monkeypatch.context() as busy:
        busy.setattr(device, "finished", lambda _event: False)  # the work takes long
        found[0].free(after=PER_THREAD)  # this thread's, not the one that it was allocated for
    assert heap.allocated == allocated


@pytest.mark.parametrize("handle", [-1, 1 << 64, 1 << 70])
def test_a_number_that_can_be_no_handle_is_refused_and_costs_no_event(device, handle):
    said = pytest.raises(vmm.RangeError, match=rf"stream {handle} is no handle: those are 0 .* to 2\*\*64 - 1")
    with vmm.Heap(device, "64 MiB") as heap, vmm.GrowableRange(device, "64 MiB") as kv:
        kv.grow("4 MiB")
        block, before = heap.allocate(100), device.driver.api.live()
        for attempt in (
            lambda: block.free(after=handle),
            lambda: heap.allocate(100, stream=handle),
            lambda: kv.shrink("2 MiB", after=handle),
            lambda: vmm.stream_handle(handle),
        ):
            with said:
                attempt()
        assert device.driver.api.live() == before and heap.holds(block)
        block.free()
