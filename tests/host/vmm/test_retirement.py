"""Memory that was given up under work in flight: nothing waits, nothing is unmapped early, nothing is forgotten."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as cuda

import vmm
from vmm.fence import Fence
from vmm.host import FailingDriver

STREAMS = ("deferred",)
CHUNK = 2 << 20


@pytest.fixture
def kv(device):
    with vmm.GrowableRange(device, "64 MiB", name="kv") as made:
        yield made


def queue_fill(kv, chunk, byte, stream=0):
    """Queue work that writes all of a chunk."""
    with kv.device.current():
        kv.device.driver.fill_async(kv.base + chunk * CHUNK, byte, CHUNK, stream)


def state(kv):
    return kv.committed_chunks(), kv.retiring // CHUNK, kv.committed // CHUNK


def test_case_21_memory_goes_only_when_the_queued_work_is_done(kv, streams):
    """vllm#28714, #43020, pytorch#196258."""
    free = kv.device.memory_info().free
    kv.commit([3])
    queue_fill(kv, 3, 7, streams[0])
    kv.decommit([3])
    assert state(kv) == ([], 1, 1)
    assert kv.device.driver.api.live().mappings == 1
    kv.device.synchronize()  # raises if the work had found its memory gone
    assert state(kv) == ([], 0, 0)
    assert kv.device.memory_info().free == free


def take_the_wait_out(monkeypatch):
    monkeypatch.setattr(Fence, "done", True)


def wait_after_the_unmap(monkeypatch):
    """Unmap at once; the wait comes later."""
    whole = vmm.GrowableRange.decommit

    def early(self, chunks, *, after=None):
        with monkeypatch.context() as patch:
            patch.setattr(Fence, "done", True)
            whole(self, chunks, after=after)
        self.device.synchronize()

    monkeypatch.setattr(vmm.GrowableRange, "decommit", early)


@pytest.mark.parametrize("mutation", [take_the_wait_out, wait_after_the_unmap])
@pytest.mark.parametrize("stream", ["default", "own"])
@pytest.mark.parametrize("attempt", range(5))
def test_a_missing_wait_is_found_every_time(kv, streams, monkeypatch, mutation, stream, attempt):
    """What these tests are worth: the code without its wait faults, and the error names the range and the chunk."""
    kv.commit([attempt])
    queue_fill(kv, attempt, 7, 0 if stream == "default" else streams[0])
    mutation(monkeypatch)
    with pytest.raises(vmm.DriverError, match=rf"range 'kv', chunk {attempt}.*by cuMemUnmap") as caught:
        kv.decommit([attempt])
        kv.device.synchronize()
    assert caught.value.code == 700
    kv.device.driver.api.reset_context()


def test_polling_collects_without_a_wait(kv):
    kv.commit([0, 1, 2, 5])
    queue_fill(kv, 1, 7)
    kv.decommit([1, 2, 5])
    assert state(kv) == ([0], 3, 4)
    assert kv.collect() == 3 * CHUNK  # the first look came with the decommit
    assert state(kv) == ([0], 0, 1)


def test_any_commit_on_the_device_looks_too(kv):
    kv.commit([0])
    queue_fill(kv, 0, 7)
    kv.decommit([0])
    with vmm.GrowableRange(kv.device, "8 MiB") as other:
        other.commit([0])
        assert kv.retiring == 0


def test_only_the_work_that_is_named_is_waited_for(kv, streams):
    kv.commit([0, 1])
    queue_fill(kv, 0, 7, streams[0])
    queue_fill(kv, 1, 7, streams[1])
    kv.decommit([0], after=streams[0])
    kv.collect(wait=True)
    assert state(kv) == ([1], 0, 1)
    assert kv.device.driver.api.live().pending == 1  # the other stream's work still waits


def test_several_streams_can_be_named(kv, streams):
    kv.commit([0])
    for stream in streams:
        queue_fill(kv, 0, 7, stream)
    kv.decommit([0], after=streams)
    kv.collect(wait=True)
    assert kv.device.driver.api.live().pending == 0


def test_events_and_streams_of_other_libraries(kv, streams):
    """By what their objects have: cuda.core's protocol and handles, CuPy's ptr, PyTorch's attributes, the bindings."""
    device = kv.device
    with device.current():
        event = int(device.driver.api.cuEventCreate(0)[1])
    kinds = [
        cuda.CUstream(streams[0]),
        SimpleNamespace(__cuda_stream__=lambda: (0, streams[0])),
        SimpleNamespace(ptr=streams[0], wait_event=None),
        SimpleNamespace(cuda_stream=streams[0]),
        np.int64(streams[0]),
        cuda.CUevent(event),
        SimpleNamespace(handle=cuda.CUevent(event)),
        SimpleNamespace(ptr=event, record=None),
        SimpleNamespace(cuda_event=event),
    ]
    for place, after in enumerate(kinds):
        kv.commit([place])
        queue_fill(kv, place, 7, streams[0])
        with device.current():
            device.driver.api.cuEventRecord(event, streams[0])
        queue_fill(kv, 20, 7, streams[1]) if kv.is_committed(20) else kv.commit([20])
        kv.decommit([place], after=after)
        assert kv.is_retiring(place), after
        kv.collect(wait=True)
        assert not kv.is_retiring(place), after
    assert device.driver.api.live().pending == 1  # never that of the stream which was not named
    with device.current():
        device.driver.api.cuEventDestroy(event)


@pytest.mark.parametrize("after", ["0", 1.5, object(), True, [None]])
def test_what_is_neither_stream_nor_event_is_refused(kv, after):
    kv.commit([0])
    with pytest.raises(TypeError, match="neither a stream nor an event"):
        kv.decommit([0], after=after)
    assert state(kv) == ([0], 0, 1)
    assert kv.device.driver.api.live().events == 0


def test_a_stream_that_is_not_there_changes_nothing(kv):
    kv.commit([0])
    with pytest.raises(vmm.DriverError, match="cuEventRecord"):
        kv.decommit([0], after=0xDEAD)
    assert state(kv) == ([0], 0, 1)
    assert kv.device.driver.api.live().events == 0


def test_a_chunk_that_is_wanted_again_stays_as_it_is(kv):
    recorder = vmm.Recorder()
    with (
        vmm.Device(driver=kv.device.driver.api, recorder=recorder) as device,
        vmm.GrowableRange(device, "64 MiB") as memory,
    ):
        memory.commit([0, 1, 2])
        memory.array("uint8", CHUNK, CHUNK)[:] = 5
        memory.decommit([1, 2])
        queue_fill(memory, 1, 6)
        recorder.clear()
        memory.commit([1, 3])
        assert recorder.counts().get("cuMemCreate") == 1  # for chunk 3
        assert recorder.counts().get("cuMemMap") == 1
        device.synchronize()
        assert state(memory) == ([0, 1, 3], 0, 3)
        assert (memory.array("uint8", CHUNK, CHUNK) == 6).all()


def test_a_chunk_that_retired_with_other_access_waits_and_comes_back_as_new(kv):
    kv.commit([0])
    queue_fill(kv, 0, 7)
    kv.device.synchronize()
    kv.protect(0, CHUNK, "r")
    kv.decommit([0])
    kv.commit([0])
    assert kv.runs() == [vmm.Run(0, CHUNK, vmm.Access.READWRITE)]


def test_close_waits_and_forgets_nothing(kv):
    free = kv.device.memory_info().free
    other = vmm.GrowableRange(kv.device, "8 MiB")
    other.commit([0, 1])
    queue_fill(other, 1, 7)
    other.decommit([1])
    assert other.retiring == CHUNK
    other.close()
    assert kv.device.memory_info().free == free
    assert kv.device.driver.api.live().events == 0


def test_a_range_that_is_dropped_while_it_retires_waits_too(kv):
    other = vmm.GrowableRange(kv.device, "8 MiB", name="dropped")
    other.commit([0, 1])
    queue_fill(other, 0, 7)
    queue_fill(other, 1, 7)
    other.decommit([1])
    with pytest.warns(ResourceWarning, match="dropped was never closed"):
        del other
    kv.device.synchronize()  # raises if the work had lost its memory
    assert kv.device.driver.api.live().mappings == 0


def test_lack_of_memory_waits_for_the_oldest_only(device, streams):
    """128 chunks in all: taking one more waits for the first that left, not for the second."""
    with vmm.GrowableRange(device, "1 GiB") as kv:
        kv.commit(range(128))
        for chunk, stream in enumerate(streams):
            queue_fill(kv, chunk, 7, stream)
            kv.decommit([chunk], after=stream)
        hold_back(device)
        kv.commit([200])
        assert (kv.is_retiring(0), kv.is_retiring(1)) == (False, True)
        with pytest.raises(vmm.OutOfMemoryError):
            kv.commit([201, 202])
        assert len(kv.committed_chunks()) == 127
        kv.commit([201])


def hold_back(device):
    """Let no look find a fence open, as if the GPU were slow; a wait still does its work."""
    device.retirement.collect = lambda _owner=None, **_wait: 0


def test_a_budget_waits_for_what_retires_of_it(device):
    with (
        vmm.ChunkSupply(device, budget="8 MiB") as supply,
        vmm.GrowableRange(device, "64 MiB", supply=supply) as kv,
    ):
        kv.commit([0, 1, 2, 3])
        queue_fill(kv, 3, 7)
        kv.decommit([2, 3])
        hold_back(device)
        assert (supply.in_use, supply.available) == (4 * CHUNK, 2 * CHUNK)
        assert supply.can_take(2)
        assert not supply.can_take(3)
        kv.commit([8, 9])
        assert state(kv) == ([0, 1, 8, 9], 0, 4)
        with pytest.raises(vmm.OutOfMemoryError, match="0 B left in the budget"):
            kv.commit([10])


def test_a_failed_commit_puts_back_what_it_had_taken_back():
    api = FailingDriver(vmm.HostDriver(memory="64 MiB", streams="deferred"))
    with vmm.Device(driver=api) as own, vmm.GrowableRange(own, "64 MiB") as kv:
        kv.commit([0, 1, 2])
        queue_fill(kv, 1, 7)
        kv.decommit([1, 2])
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
            hold_back(own)
            api.arm(call, 1, 1)
            with pytest.raises(vmm.DriverError, match=call):
                kv.commit([1, 3])
            del own.retirement.collect
            assert state(kv) == ([0], 2, 3)
        own.synchronize()
        assert state(kv) == ([0], 0, 1)


def test_an_unmap_that_fails_later_leaves_it_retiring():
    api = FailingDriver(vmm.HostDriver(memory="64 MiB", streams="deferred"))
    with vmm.Device(driver=api) as own, vmm.GrowableRange(own, "64 MiB") as kv:
        kv.commit([0, 1, 2, 5])
        kv.decommit([1, 2, 5])
        api.arm("cuMemUnmap", 2, 1)  # the second of its two runs
        with pytest.raises(vmm.DriverError, match="cuMemUnmap"):
            kv.collect(wait=True)
        assert state(kv) == ([0], 3, 4)
        assert kv.collect() == 3 * CHUNK
        assert state(kv) == ([0], 0, 1)


def test_after_a_fault_nothing_is_in_flight(kv):
    kv.commit([0, 1])
    address = kv.base + 9 * CHUNK
    kv.device.submit(0, lambda: (_ for _ in ()).throw(kv.device.fault(address, True)), None)
    kv.decommit([1])
    with pytest.raises(vmm.DriverError):
        kv.device.synchronize()
    kv.collect()
    assert state(kv) == ([0], 0, 1)
    kv.device.driver.api.reset_context()


def test_another_thread_may_collect(kv):
    kv.commit(range(8))
    for chunk in range(8):
        queue_fill(kv, chunk, 7)
        kv.decommit([chunk])
    freed = []
    thread = threading.Thread(target=lambda: freed.append(kv.device.retirement.collect(wait=True)))
    thread.start()
    thread.join()
    assert state(kv) == ([], 0, 0)
    kv.commit([0])


def pattern(step):
    return step % 255 + 1


def random_run(device, streams, seed, steps):
    """Queued fills of random chunks between commits and decommits, against what each chunk must hold at the end."""
    rng = np.random.default_rng(seed)
    chunks = 24
    with (
        vmm.ChunkSupply(device, budget=16 * CHUNK, cache=4 * CHUNK) as supply,
        vmm.GrowableRange(device, chunks * CHUNK, supply=supply, name="model") as kv,
    ):
        bytes_of: dict[int, int | None] = {}  # committed chunk -> its byte, None where it is not known
        for step in range(steps):
            choice = rng.integers(10)
            chunk = int(rng.integers(chunks))
            if choice < 4 and chunk in bytes_of:
                with device.current():
                    device.driver.fill_async(kv.base + chunk * CHUNK, pattern(step), 4096, streams[chunk % 2])
                bytes_of[chunk] = pattern(step)
            elif choice < 7 and chunk not in bytes_of and len(bytes_of) < 16:
                kv.commit([chunk])
                bytes_of[chunk] = None
            elif choice < 9 and bytes_of:
                leaving = [one for one in bytes_of if one % 3 == chunk % 3]
                named = {one % 2 for one in leaving}
                after = None if step % 2 else [streams[one] for one in named]
                kv.decommit(leaving, after=after)
                for one in leaving:
                    del bytes_of[one]
            elif choice == 9:
                kv.collect(wait=step % 7 == 0)
            assert kv.committed_chunks() == sorted(bytes_of)
            assert kv.committed == (len(bytes_of) + kv.retiring // CHUNK) * CHUNK <= 16 * CHUNK
            assert supply.in_use == kv.committed
        device.synchronize()
        assert kv.committed == len(bytes_of) * CHUNK
        for chunk, byte in bytes_of.items():
            if byte is not None:
                assert (kv.array("uint8", 4096, chunk * CHUNK) == byte).all()


@pytest.mark.parametrize("seed", range(3))
def test_random_work_never_loses_its_memory(device, streams, seed):
    random_run(device, streams, seed, 1500)


@pytest.mark.exhaustive
def test_random_work_never_loses_its_memory_at_length(device, streams):
    random_run(device, streams, 99, 100_000)
