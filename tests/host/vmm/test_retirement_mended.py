"""Single faults that random lives of ranges have shown once."""

import pytest

import vmm
from vmm.host import FailingDriver, HostDriver

UNIT = 64 << 10


@pytest.fixture
def api():
    return FailingDriver(HostDriver(memory=16 * UNIT, granularity=UNIT, streams="deferred"))


@pytest.fixture
def device(api):
    with vmm.Device(driver=api) as made:
        yield made


def fill(memory, chunk, byte, stream=0):
    with memory.device.current():
        memory.device.driver.fill_async(memory.base + chunk * UNIT, byte, UNIT, stream)


def test_a_lack_of_memory_inside_a_window_of_zeros_says_so(device):
    with vmm.GrowableRange(device, 32 * UNIT) as kv:
        window = kv.zero_window(0, 32 * UNIT)
        with pytest.raises(vmm.OutOfMemoryError, match="cuMemCreate"):
            kv.commit(range(20))
        assert window.zeros == list(range(32))
        window.close()


@pytest.mark.parametrize("call", ["cuMemMap", "cuMemSetAccess", "cuMemUnmap"])
def test_a_move_that_fails_shows_its_bytes_to_nobody(api, device, call):
    """The chunk that it had copied to goes back, and to another range."""
    with (
        vmm.ChunkSupply(device, cache=4 * UNIT) as supply,
        vmm.GrowableRange(device, 4 * UNIT, supply=supply) as kv,
        vmm.GrowableRange(device, 4 * UNIT, supply=supply) as other,
    ):
        kv.commit([0])
        fill(kv, 0, 7)
        supply.give(supply.take(1))  # nobody's yet
        api.arm(call, 2 if call != "cuMemUnmap" else 1, 1)  # the first ones are those of the second address
        with pytest.raises(vmm.DriverError, match=call):
            kv.remap(0)
        api.disarm()
        other.commit([0, 1, 2])
        assert not other.array("uint8", 3 * UNIT).any()


def test_a_move_that_fails_before_its_copy_shows_the_bytes_of_another_to_nobody(api, device):
    with (
        vmm.ChunkSupply(device, cache=4 * UNIT) as supply,
        vmm.GrowableRange(device, 4 * UNIT, supply=supply) as kv,
        vmm.GrowableRange(device, 4 * UNIT, supply=supply) as other,
    ):
        kv.commit([0])
        other.commit([0])
        fill(other, 0, 7)
        other.decommit([0])
        other.collect(wait=True)
        api.arm("cuMemMap", 1, 1)
        with pytest.raises(vmm.DriverError, match="cuMemMap"):
            kv.remap(0)
        kv.commit([1])
        assert not kv.array("uint8", UNIT, UNIT).any()


def test_a_move_takes_along_what_work_in_flight_writes(api, device, monkeypatch):
    whole = device.driver.copy_async

    def copy(*places):
        assert api.live().pending == 0, "a stream may still write where this copies from"
        whole(*places)

    monkeypatch.setattr(device.driver, "copy_async", copy)
    with vmm.GrowableRange(device, 4 * UNIT) as kv:
        with device.current():
            stream = int(api.cuStreamCreate(1)[1])
        kv.commit([0])
        fill(kv, 0, 7, stream)
        kv.remap(0)
        assert (kv.array("uint8", UNIT) == 7).all()
        with device.current():
            api.cuStreamDestroy(stream)


def test_what_was_taken_back_is_put_back_alone(device):
    """A commit that lacks memory waits for the others of the same decommit; what it had taken back goes later."""
    with vmm.ChunkSupply(device, budget=4 * UNIT) as supply, vmm.GrowableRange(device, 16 * UNIT, supply=supply) as kv:
        kv.commit([0, 1, 2, 3])
        fill(kv, 2, 7)
        kv.decommit([1, 2, 3])
        with pytest.raises(vmm.OutOfMemoryError, match="budget"):
            kv.commit([1, 8, 9, 10])
        assert (kv.committed_chunks(), kv.is_retiring(1)) == ([0], True)
        assert kv.collect(wait=True) == UNIT
        assert kv.committed == supply.in_use == UNIT


def test_a_release_that_is_refused_in_the_middle_loses_no_other(api, device):
    """Of memory, and of events; what retires is gone, and is not unmapped again."""
    free = device.memory_info().free
    with vmm.GrowableRange(device, 16 * UNIT) as kv:
        kv.commit(range(6))
        fill(kv, 2, 7)
        kv.decommit([1, 2, 3, 5])
        device.synchronize()  # the work is done; what follows looks again
        kv.decommit([0])
        api.arm("cuMemRelease", 1, 1)
        with pytest.raises(vmm.ReleaseError, match="cuMemRelease"):
            kv.collect(wait=True)
        assert (kv.retiring, kv.committed_chunks()) == (0, [4])
        assert api.live().events == 0
    lost = api.picture().allocations
    assert len(lost) == 1
    api.cuMemRelease(lost[0][0])
    assert device.memory_info().free == free


def test_a_refused_event_loses_no_other(api, device):
    fence = device.fence([0, 1, 2])
    assert api.live().events == 3
    api.arm("cuEventDestroy", 2, 1)
    with pytest.raises(vmm.ReleaseError, match="cuEventDestroy"):
        fence.close()
    fence.close()
    assert api.live().events == 1
    api.cuEventDestroy(api.picture().events[0])


@pytest.mark.parametrize("call", ["cuMemRelease", "cuMemAddressFree", "cuEventDestroy"])
def test_a_close_that_is_refused_something_has_given_back_the_rest(api, device, call):
    kv = vmm.GrowableRange(device, 16 * UNIT)
    kv.grow(4 * UNIT)
    kv.commit([6, 7])
    fill(kv, 6, 7)
    kv.decommit([6])
    kv.decommit([7])
    kv.device.retirement.poll = lambda: None
    api.arm(call, 1, 1)
    with pytest.raises(vmm.ReleaseError, match=call):
        kv.close()
    del kv.device.retirement.poll
    assert (kv.closed, kv.size, kv.supply.in_use) == (True, 0, 0)
    kv.close()
    left = api.picture()
    assert (left.mappings, left.reservations) == ((), ())
    for handle, *_ in left.allocations:
        api.cuMemRelease(handle)
    for event in left.events:
        api.cuEventDestroy(event)
    assert len(left.allocations) + len(left.events) == (call != "cuMemAddressFree")


def test_a_close_whose_unmap_is_refused_changes_nothing(api, device):
    with vmm.GrowableRange(device, 16 * UNIT) as kv:
        kv.commit([0, 1, 5])
        fill(kv, 5, 7)
        kv.zero_window(8 * UNIT, 10 * UNIT)
        device.synchronize()
        before = api.picture()
        api.arm("cuMemUnmap", 3, 1)
        with pytest.raises(vmm.DriverError, match="cuMemUnmap"):
            kv.close()
        assert api.picture() == before
        assert (kv.array("uint8", UNIT, 5 * UNIT) == 7).all()
