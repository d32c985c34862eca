"""The recorder: what it keeps of each call, what it counts, and that it changes nothing."""

import gc
import threading
import time
import weakref

import pytest
from cuda.bindings import driver as cuda

from vmm.device import Device
from vmm.driver import Access, Driver
from vmm.host import HostDriver
from vmm.recorder import Recorder

UNIT = 2 << 20


@pytest.fixture
def recorder():
    return Recorder(capacity=1000)


@pytest.fixture
def driver(recorder):
    return Driver(recorder.wrap(HostDriver(memory="64 MiB")), "host")


def one_life(driver):
    """One chunk's life; returns its address and handle."""
    base = driver.reserve(2 * UNIT)
    handle = driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.set_access(base, UNIT, [(0, Access.READWRITE)])
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, 2 * UNIT)
    return base, handle


def test_each_call_is_kept_with_its_address_size_and_handle(recorder, driver):
    recorder.clear()
    base, handle = one_life(driver)
    seen = [(e.call, e.address, e.size, e.handle, e.result) for e in recorder.events()]
    assert seen == [
        ("cuMemAddressReserve", base, 2 * UNIT, 0, 0),
        ("cuMemCreate", 0, UNIT, handle, 0),
        ("cuMemMap", base, UNIT, handle, 0),
        ("cuMemSetAccess", base, UNIT, 0, 0),
        ("cuMemUnmap", base, UNIT, 0, 0),
        ("cuMemRelease", 0, 0, handle, 0),
        ("cuMemAddressFree", base, 2 * UNIT, 0, 0),
    ]


def test_times_are_in_order_and_inside_the_call(recorder, driver):
    recorder.clear()
    before = time.perf_counter_ns()
    one_life(driver)
    after = time.perf_counter_ns()
    times = [event.time_ns for event in recorder.events()]
    assert before <= times[0]
    assert times == sorted(times)
    assert all(event.duration_ns > 0 for event in recorder.events())
    assert times[-1] + recorder.events()[-1].duration_ns <= after


def test_time_is_summed_for_each_call_dropped_events_included():
    recorder = Recorder(capacity=3)
    driver = Driver(recorder.wrap(HostDriver(backing="none")), "host")
    recorder.clear()
    assert recorder.durations() == {}
    one_life(driver)
    kept = {event.call: event.duration_ns for event in recorder.events()}
    assert recorder.durations().keys() == recorder.counts().keys()
    assert len(kept) < len(recorder.durations())
    assert kept.items() <= recorder.durations().items()


def test_refused_calls_are_kept_with_their_status(recorder):
    api = recorder.wrap(HostDriver(backing="none"))
    api.cuInit(0)
    assert int(api.cuMemUnmap(UNIT, UNIT)[0]) == 1
    last = recorder.events()[-1]
    assert (last.call, last.address, last.size, last.result) == ("cuMemUnmap", UNIT, UNIT, 1)
    api.cuMemAddressReserve(1 << 60, 0, 0, 0)
    last = recorder.events()[-1]
    assert (last.call, last.address, last.size, last.result) == ("cuMemAddressReserve", 0, 1 << 60, 2)


def test_results_pass_through_unchanged(recorder):
    plain = HostDriver(backing="none")
    api = recorder.wrap(plain)
    assert api.cuInit(0) == (cuda.CUresult.CUDA_SUCCESS,)
    status, base = api.cuMemAddressReserve(UNIT, 0, 0, 0)
    assert type(base) is cuda.CUdeviceptr
    assert int(status) == 0
    api.cuMemAddressFree(base, UNIT)
    with pytest.raises(OverflowError):
        api.cuMemAddressFree(-1, UNIT)
    assert recorder.counts()["cuMemAddressFree"] == 1  # a call that never reached the driver is none


def test_attributes_of_the_driver_stay(recorder):
    plain = HostDriver(backing="none", memory="16 MiB")
    api = recorder.wrap(plain)
    assert (api.backing, api.driver_name, api.granularity) == ("none", "host", UNIT)
    assert api.live() == plain.live()
    assert api.explain(5).kind == "unknown"
    with pytest.raises(AttributeError):
        _ = api.cuNoSuchCall


def test_the_bindings_module_can_be_wrapped(recorder):
    api = recorder.wrap(cuda)
    assert api.CUdeviceptr is cuda.CUdeviceptr
    assert api.CUresult.CUDA_SUCCESS == 0


class Module:
    """A driver whose calls do nothing: what is left is the recorder."""

    @staticmethod
    def cuMemRelease(_handle):  # noqa: N802 - the driver's name
        return (cuda.CUresult.CUDA_SUCCESS,)


def test_when_the_ring_is_full_the_oldest_go_and_the_counts_stay_exact():
    recorder = Recorder(capacity=4)
    api = recorder.wrap(Module)
    for handle in range(1, 11):
        api.cuMemRelease(handle)
    assert [event.handle for event in recorder.events()] == [7, 8, 9, 10]
    assert recorder.dropped == 6
    assert recorder.counts() == {"cuMemRelease": 10}


def test_clear_forgets_everything(recorder, driver):
    one_life(driver)
    recorder.clear()
    assert (recorder.events(), recorder.counts(), recorder.dropped) == ([], {}, 0)
    one_life(driver)
    assert sum(recorder.counts().values()) == len(recorder.events()) == 7


def test_several_drivers_share_one_recorder(recorder):
    first, second = (Driver(recorder.wrap(HostDriver(backing="none")), "host") for _ in range(2))
    recorder.clear()
    one_life(first)
    one_life(second)
    assert recorder.counts()["cuMemCreate"] == 2


def test_threads_lose_no_event():
    recorder = Recorder(capacity=100_000)
    api = recorder.wrap(Module)
    threads = [
        threading.Thread(target=lambda start=start: [api.cuMemRelease(start + i) for i in range(5000)])
        for start in (10_000, 20_000, 30_000, 40_000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.counts() == {"cuMemRelease": 20_000}
    assert len({event.handle for event in recorder.events()}) == 20_000


def test_a_record_keeps_no_buffer_alive(recorder, driver):
    class Buffer(bytearray):
        pass

    with driver.context(driver.context_retain(0)):
        plain = driver.alloc(16)
        buffer = Buffer(16)
        driver.copy_in(plain, buffer, 16)
        driver.copy_out(buffer, plain, 16)
        gone = weakref.ref(buffer)
        del buffer
        gc.collect()
        assert gone() is None
        seen = [(e.call, e.address, e.size) for e in recorder.events() if e.call.startswith("cuMemcpy")]
        assert seen == [("cuMemcpyHtoD", plain, 16), ("cuMemcpyDtoH", plain, 16)]
        driver.alloc_free(plain)
    driver.context_release(0)


@pytest.mark.parametrize(
    ("call", "value", "size"), [("cuMemsetD8", 7, 6), ("cuMemsetD16", 7, 12), ("cuMemsetD32", 7, 24)]
)
def test_sizes_are_bytes_where_a_call_counts_elements(recorder, driver, call, value, size):
    with driver.context(driver.context_retain(0)):
        plain = driver.alloc(64)
        getattr(driver.api, call)(plain, value, 6)
        last = recorder.events()[-1]
        assert (last.address, last.size) == (plain, size)
        driver.alloc_free(plain)
    driver.context_release(0)


def test_a_shut_driver_stays_shut_behind_a_recorder(recorder):
    """A call that was made before cuInit must not stay refused after it."""
    api = recorder.wrap(HostDriver(backing="none"))
    assert int(api.cuDeviceGetCount()[0]) == 3
    api.cuInit(0)
    assert int(api.cuDeviceGetCount()[0]) == 0


def test_a_device_takes_a_recorder(recorder):
    with Device(driver=HostDriver(backing="none"), recorder=recorder) as device:
        assert device.backing == "none"
        assert recorder.counts()["cuDevicePrimaryCtxRetain"] == 1
        device.memory_info()
    assert recorder.counts()["cuMemGetInfo"] == 1
    assert recorder.counts()["cuDevicePrimaryCtxRelease"] == 1


def test_an_event_reads_as_a_line(recorder, driver):
    base, handle = one_life(driver)
    line = next(str(event) for event in recorder.events() if event.call == "cuMemMap")
    assert line.startswith(f"cuMemMap address {base:#x} size 2 MiB handle {handle:#x} -> 0 in ")


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_ring_holds_at_least_one(capacity):
    with pytest.raises(ValueError, match=str(capacity)):
        Recorder(capacity)
