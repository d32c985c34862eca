"""Ranges that sleep and wake by tag: addresses and bytes, memory that is really free, and every way to do it wrong."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vmm
from vmm.host import FailingDriver, HostDriver, sweep
from vmm.host.os_view import committed_bytes

STREAMS = ("eager", "deferred")
CHUNK = 2 << 20
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "sleep_wake.py"
GIVE_BACK = ("cuCtxPopCurrent", "cuMemRelease", "cuMemAddressFree", "cuEventDestroy", "cuMemFreeHost")


@pytest.fixture
def kv(device):
    with vmm.GrowableRange(device, "64 MiB", name="kv") as made:
        yield made


@pytest.fixture
def residency(device, kv):
    made = vmm.Residency(device)
    made.add(kv, "kv")
    return made


def fill(range_, seed):
    """Other bytes in every committed chunk; what they are."""
    rng = np.random.default_rng(seed)
    held = {chunk: rng.integers(256, size=CHUNK, dtype=np.uint8) for chunk in range_.committed_chunks()}
    for chunk, content in held.items():
        range_.array("uint8", CHUNK, chunk * CHUNK)[:] = content
    return held


def check(range_, held):
    for chunk, content in held.items():
        assert (range_.array("uint8", CHUNK, chunk * CHUNK) == content).all()


def test_memory_goes_and_comes_back_with_its_bytes_and_access_at_the_same_addresses(device, kv, residency):
    kv.grow(3 * CHUNK)
    kv.commit([5, 9])
    held = fill(kv, 1)
    kv.protect(5 * CHUNK, 6 * CHUNK, "r")
    kv.protect(9 * CHUNK, 10 * CHUNK, "none")
    free, base, before = device.memory_info().free, kv.base, kv.runs()
    slept = residency.sleep("kv", backup=True)
    assert (slept.unmapped, slept.returned, slept.backup, slept.shortfall) == (5 * CHUNK, 5 * CHUNK, 5 * CHUNK, 0)
    assert (kv.committed, kv.committed_chunks(), kv.held_chunks()) == (0, [], [0, 1, 2, 5, 9])
    assert device.memory_info().free == free + 5 * CHUNK
    residency.wake("kv")
    assert (kv.base, kv.runs(), kv.size) == (base, before, 3 * CHUNK)
    kv.protect(5 * CHUNK, 6 * CHUNK, "rw")
    kv.protect(9 * CHUNK, 10 * CHUNK, "rw")
    check(kv, held)
    assert device.driver.api.live().pinned == 0


def test_sleep_waits_for_queued_work(device, kv, residency):
    kv.grow(CHUNK)
    with device.current():
        device.driver.fill_async(kv.base, 7, CHUNK)
    residency.sleep("kv", backup=True)
    residency.wake("kv")
    assert (kv.array("uint8", CHUNK) == 7).all()


def test_case_14_the_second_of_each_is_a_typed_error_and_what_was_freed_asleep_does_not_come_back(kv):
    """vllm#36651, vllm-omni#4473."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=kv.device.driver.api, recorder=recorder) as device:
        both = vmm.Residency(device)
        with vmm.GrowableRange(device, "64 MiB", name="own") as own:
            both.add(own, "own")
            own.commit([0, 1, 2])
            both.sleep("own", backup=True)
            with pytest.raises(vmm.StateError, match="'own' is asleep already; wake it first"):
                both.sleep("own", backup=True)
            both.wake("own")
            with pytest.raises(vmm.StateError, match="'own' is awake"):
                both.wake("own")
            both.sleep("own", backup=False)
            own.decommit([1])
            assert own.held_chunks() == [0, 2]
            both.wake("own")
            assert own.committed_chunks() == [0, 2]
    released = [event.handle for event in recorder.events() if event.call == "cuMemRelease"]
    assert len(released) == len(set(released)) == recorder.counts()["cuMemCreate"]


def test_case_15_weights_awake_and_kv_asleep(device, kv, residency):
    """vllm#44395: what needs the memory of a tag that sleeps is refused, naming the tag."""
    with vmm.GrowableRange(device, "64 MiB", name="weights") as weights:
        residency.add(weights, "weights")
        for range_ in (kv, weights):
            range_.grow(CHUNK)
        held = fill(weights, 3)
        residency.sleep("weights", backup=True)
        residency.sleep("kv", backup=False)
        residency.wake("weights")
        check(weights, held)
        for action in (
            lambda: kv.commit([4]),
            lambda: kv.grow(CHUNK),
            lambda: kv.array("uint8", 1),
            lambda: kv.protect(0, CHUNK, "r"),
            lambda: kv.remap(0),
            lambda: kv.zero_window(0, CHUNK),
        ):
            with pytest.raises(vmm.StateError, match="kv is asleep with 'kv'; wake that first"):
                action()


def test_case_16_a_wake_that_lacks_memory_leaves_everything_asleep(device, kv, residency):
    """vllm#13941, #12981, torch_memory_saver#99: 5 chunks are needed, 3 are free."""
    kv.commit([0, 1, 4, 5, 9])
    held = fill(kv, 5)
    residency.sleep("kv", backup=True)
    with vmm.GrowableRange(device, "1 GiB", name="other") as other:
        other.grow(device.memory_info().free - 3 * CHUNK)
        with pytest.raises(
            vmm.OutOfMemoryError, match="kv needs 5 chunks, 10 MiB, and 6 MiB are free; it still sleeps"
        ):
            residency.wake("kv")
        assert (residency.is_asleep("kv"), kv.committed, kv.held_chunks()) == (True, 0, [0, 1, 4, 5, 9])
        assert device.driver.api.live().mappings == other.committed // CHUNK
    residency.wake("kv")
    check(kv, held)


def test_case_16_two_ranges_of_a_tag_wake_together_or_not_at_all(device, kv, residency):
    with vmm.GrowableRange(device, "64 MiB", name="second") as second:
        residency.add(second, "kv")
        kv.commit([0, 1])
        second.commit([0, 1, 2])
        held, more = fill(kv, 6), fill(second, 7)
        residency.sleep("kv", backup=True)
        with vmm.GrowableRange(device, "1 GiB", name="other") as other:
            other.grow(device.memory_info().free - 3 * CHUNK)
            with pytest.raises(vmm.OutOfMemoryError, match="second needs 3 chunks"):
                residency.wake("kv")
            assert (kv.committed, second.committed) == (0, 0)
        residency.wake("kv")
        check(kv, held)
        check(second, more)


def test_case_18_a_hundred_sleeps_hold_no_host_memory_after_the_wake(device, kv, residency):
    """vllm#16663."""
    kv.commit([0, 3])
    held = fill(kv, 8)
    for _ in range(100):
        residency.sleep("kv", backup=True)
        assert device.driver.api.live().pinned == 1
        residency.wake("kv")
        assert device.driver.api.live().pinned == 0
    check(kv, held)


def test_case_19_the_drivers_free_memory_rises_by_what_was_unmapped_or_the_shortfall_is_said(device):
    """vllm#47654, torch_memory_saver#83: cached chunks go too; what another owner holds is reported."""
    with (
        vmm.ChunkSupply(device, cache="16 MiB", exportable=True) as supply,
        vmm.GrowableRange(device, "64 MiB", supply=supply, name="kv") as kv,
    ):
        residency = vmm.Residency(device)
        residency.add(kv, "kv")
        kv.commit(range(6))
        kv.decommit([5])
        kv.collect(wait=True)
        free = device.memory_info().free
        held = vmm.PhysicalMemory.retained(device, CHUNK, kv.mapping(0).address)  # as an exporter does
        slept = residency.sleep("kv", backup=False)
        assert device.memory_info().free == free + 5 * CHUNK  # four of its own and the cached one
        assert (slept.unmapped, slept.returned, slept.shortfall) == (5 * CHUNK, 4 * CHUNK, CHUNK)
        residency.wake("kv")
        held.close()
        slept = residency.sleep("kv", backup=False)
        assert (slept.unmapped, slept.returned, slept.shortfall) == (5 * CHUNK, 5 * CHUNK, 0)
        residency.wake("kv")
        held = vmm.PhysicalMemory.retained(device, CHUNK, kv.mapping(0).address)
        slept = residency.sleep("kv", backup=False)
        assert (slept.unmapped, slept.returned, slept.shortfall) == (5 * CHUNK, 4 * CHUNK, CHUNK)
        held.close()


def test_64_mib_sleep_and_wake_byte_identical_and_every_byte_is_given_back():
    """As the benchmark does with 8 GiB: read back from the driver, and from the operating system."""
    recorder, size = vmm.Recorder(), 64 << 20
    host = HostDriver(memory="80 MiB")
    with (
        vmm.Device(driver=host, recorder=recorder) as device,
        vmm.GrowableRange(device, "1 GiB", name="weights") as weights,
    ):
        both = vmm.Residency(device)
        both.add(weights, "weights")
        weights.grow(size)
        content = np.random.default_rng(0).integers(256, size=size, dtype=np.uint8)
        weights.array("uint8", size)[:] = content
        slept = both.sleep("weights", backup=True)
        assert (slept.unmapped, slept.returned, slept.backup) == (size, size, size)
        assert committed_bytes(host, 0) == 0
        assert host.live().pinned > 0
        both.wake("weights")
        assert (weights.array("uint8", size) == content).all()
        assert committed_bytes(host, 0) == size
        assert host.live().pinned == 0
    released = [event.handle for event in recorder.events() if event.call == "cuMemRelease"]
    assert len(released) == len(set(released)) == recorder.counts()["cuMemCreate"] == 2 * size // CHUNK
    assert committed_bytes(host, 0) == 0


def test_the_benchmark_of_sleeps_checks_what_it_measures():
    command = [sys.executable, str(BENCHMARK), "--driver", "host", "--size", "8 MiB", "--rounds", "1", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(found.stdout)
    assert (report["size"], report["faults"]) == (8 << 20, [])
    assert set(report["steps"]) == {"sleep, backup", "wake, backup", "sleep, no backup", "wake, no backup"}


def test_arrays_pins_and_windows_keep_a_range_awake(kv, residency):
    kv.grow(2 * CHUNK)
    array = kv.array("uint8", 16)
    with pytest.raises(vmm.StateError, match="an array still views them"):
        residency.sleep("kv", backup=False)
    del array
    with kv.pin(0, CHUNK, "a graph"), pytest.raises(vmm.StateError, match="a graph"):
        residency.sleep("kv", backup=False)
    with kv.zero_window(4 * CHUNK, 8 * CHUNK), pytest.raises(vmm.StateError, match="close that first"):
        residency.sleep("kv", backup=False)
    assert not residency.is_asleep("kv")
    assert kv.committed == 2 * CHUNK


def test_shrinking_asleep_moves_the_front(kv, residency):
    kv.grow(4 * CHUNK)
    residency.sleep("kv", backup=True)
    kv.shrink(2 * CHUNK)
    residency.wake("kv")
    assert (kv.size, kv.committed_chunks()) == (2 * CHUNK, [0, 1])


def test_a_range_that_is_closed_asleep_frees_its_backup(device, residency):
    other = vmm.GrowableRange(device, "64 MiB")
    residency.add(other, "other")
    other.commit([0, 1])
    residency.sleep("other", backup=True)
    other.close()
    assert device.driver.api.live().pinned == 0
    assert not residency.is_asleep("other")


def test_tags_are_checked(device, kv, residency):
    with pytest.raises(vmm.StateError, match="no range has the tag 'kw'; tags are 'kv'"):
        residency.sleep("kw", backup=True)
    with pytest.raises(vmm.StateError, match="kv has the tag 'kv' already"):
        residency.add(kv, "other")
    residency.sleep("kv", backup=False)
    with (
        vmm.GrowableRange(device, "8 MiB") as late,
        pytest.raises(vmm.StateError, match="'kv' is asleep; wake it before ranges are added"),
    ):
        residency.add(late, "kv")


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("backup", [True, False])
def test_every_call_of_a_sleep_and_of_a_wake_may_fail(streams, backup):
    api = FailingDriver(HostDriver(memory="64 MiB", streams=streams), spared=GIVE_BACK)
    with (
        vmm.Device(driver=api) as device,
        vmm.GrowableRange(device, "64 MiB", name="a") as first,
        vmm.GrowableRange(device, "64 MiB", name="b") as second,
    ):
        residency = vmm.Residency(device)
        residency.add(first, "kv")
        residency.add(second, "kv")
        first.commit([0, 1, 4])
        second.commit([2, 3])
        first.protect(4 * CHUNK, 5 * CHUNK, "none")
        held = fill(second, 9)

        def state():
            accesses = [(run.start, run.stop, run.access) for range_ in (first, second) for run in range_.runs()]
            return accesses, residency.is_asleep("kv"), first.held_chunks(), second.held_chunks()

        def sleep():
            residency.sleep("kv", backup=backup)

        def wake():
            residency.wake("kv")

        copies = ["cuMemHostAlloc", "cuMemcpyDtoHAsync"] if backup else []
        back = ["cuMemcpyHtoDAsync"] if backup else []
        for code in (1, 2):
            for call in ("cuMemSetAccess", "cuMemUnmap", "cuCtxSynchronize", *copies):
                failed = sweep(api, sleep, state=state, code=code, call=call, restore=lambda: is_back(residency))
                assert failed or (call == "cuMemSetAccess" and not backup)
            sleep()
            for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess", *back):
                assert sweep(api, wake, state=state, code=code, call=call, restore=lambda: is_away(residency, backup))
            wake()
        if backup:
            check(second, held)


def is_back(residency):
    if residency.is_asleep("kv"):
        residency.wake("kv")


def is_away(residency, backup):
    if not residency.is_asleep("kv"):
        residency.sleep("kv", backup=backup)
