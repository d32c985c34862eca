"""Ranges that another device may use: grants over what is mapped and what will be, and their way back."""

import contextlib

import pytest

import vmm
from vmm.host import FailingDriver, HostDriver

CHUNK = 2 << 20


@pytest.fixture(params=["eager", "deferred"])
def pair(request):
    """Two devices of one driver that reach each other, and its switch for failures."""
    api = FailingDriver(HostDriver(memory="64 MiB", devices=2, streams=request.param))
    with vmm.Device(0, driver=api) as own, vmm.Device(1, driver=api) as other:
        yield own, other, api


@pytest.fixture
def kv(pair):
    with vmm.GrowableRange(pair[0], "64 MiB", name="kv") as made:
        yield made


def may(kv, device, chunk):
    return kv.device.driver.get_access(device.ordinal, kv.base + chunk * CHUNK)


def fill(device, address, byte):
    """Write a chunk by work of ``device``."""
    with device.current():
        device.driver.fill_async(address, byte, CHUNK)
    device.synchronize()


def test_case_33_a_grant_covers_chunks_mapped_before_and_after_it(pair, kv):
    """llama.cpp#24491: a range made for device 0, device 1 granted later."""
    _own, other, _ = pair
    kv.commit([0, 1, 4])
    assert may(kv, other, 0) == vmm.Access.NONE
    kv.grant(other, "rw")
    kv.commit([2, 9])
    assert {may(kv, other, chunk) for chunk in (0, 1, 2, 4, 9)} == {vmm.Access.READWRITE}
    for chunk in (1, 9):
        fill(other, kv.base + chunk * CHUNK, 7 + chunk)
        assert (kv.array("uint8", CHUNK, chunk * CHUNK) == 7 + chunk).all()


def test_a_grant_of_reading_does_not_let_write(pair, kv):
    own, other, api = pair
    kv.commit([0])
    kv.grant(other, "r")
    assert (may(kv, own, 0), may(kv, other, 0)) == (vmm.Access.READWRITE, vmm.Access.READ)
    seen = kv.array("uint8", 16, device=other)
    assert not seen.flags.writeable
    fill(own, kv.base, 5)
    assert (seen == 5).all()
    with pytest.raises(vmm.DriverError):
        fill(other, kv.base, 6)
    with contextlib.suppress(vmm.DriverError):
        other.synchronize()
    api.reset_context(1)
    assert (seen == 5).all()


def test_a_grant_that_is_taken_back_is_gone_for_old_and_new_chunks(pair, kv):
    _, other, _ = pair
    kv.commit([0])
    kv.grant(other, "rw")
    kv.grant(other, "none")
    kv.commit([1])
    assert {may(kv, other, chunk) for chunk in (0, 1)} == {vmm.Access.NONE}
    with pytest.raises(vmm.StateError, match=r"cannot be read by device 1; grant\(\) it access first"):
        kv.array("uint8", 16, device=other)


def test_protect_and_remap_keep_the_grants(pair, kv):
    own, other, _ = pair
    kv.commit([0, 1])
    kv.grant(other, "r")
    kv.protect(0, CHUNK, "r")
    kv.remap(1)
    assert [may(kv, own, chunk) for chunk in (0, 1)] == [vmm.Access.READ, vmm.Access.READWRITE]
    assert [may(kv, other, chunk) for chunk in (0, 1)] == [vmm.Access.READ] * 2


def test_an_array_of_the_other_device_holds_its_grant(pair, kv):
    own, other, _ = pair
    kv.commit([0])
    kv.grant(other, "rw")
    theirs, mine = kv.array("uint8", 16, device=other), kv.array("uint8", 16)
    for access in ("r", "none"):
        with pytest.raises(vmm.StateError, match="an array still views them"):
            kv.grant(other, access)
    assert may(kv, other, 0) == vmm.Access.READWRITE
    del theirs
    kv.grant(other, "none")  # an array of the range's own device is not in the way
    assert mine.flags.writeable
    assert may(kv, own, 0) == vmm.Access.READWRITE


def test_one_call_a_run_and_none_more_for_new_chunks(pair):
    recorder = vmm.Recorder()
    with (
        vmm.Device(0, driver=pair[2], recorder=recorder) as own,
        vmm.GrowableRange(own, "64 MiB") as kv,
    ):
        kv.commit([0, 1, 2, 5])
        recorder.clear()
        kv.grant(pair[1], "rw")
        assert recorder.counts()["cuMemSetAccess"] == 2
        recorder.clear()
        kv.commit([6, 7, 8])
        assert recorder.counts()["cuMemSetAccess"] == 1


@pytest.mark.parametrize("before", ["none", "r"])
def test_a_grant_that_fails_midway_changes_nothing(pair, kv, before):
    _, other, api = pair
    kv.commit([0, 2, 4])
    kv.grant(other, before)
    now = vmm.Access.of(before)
    for at in (1, 2, 3):
        api.arm("cuMemSetAccess", at, 1)
        with pytest.raises(vmm.DriverError, match="cuMemSetAccess"):
            kv.grant(other, "rw")
        assert [may(kv, other, chunk) for chunk in (0, 2, 4)] == [now] * 3
        kv.commit([6])
        assert may(kv, other, 6) == now
        kv.decommit([6])
    kv.grant(other, "rw")
    assert may(kv, other, 4) == vmm.Access.READWRITE


def test_a_recycled_chunk_is_zeroed_before_the_other_device_may_read_it(pair):
    own, other, _api = pair
    seen = []
    with vmm.ChunkSupply(own, cache="2 MiB") as supply:
        with vmm.GrowableRange(own, "8 MiB", supply=supply) as first:
            first.commit([0])
            first.array("uint8", CHUNK)[:] = 9
        with vmm.GrowableRange(own, "8 MiB", supply=supply) as second:
            second.grant(other, "r")
            fill_async = own.driver.fill_async

            def look(address, byte, size, stream=0):
                seen.append(own.driver.get_access(1, address))
                fill_async(address, byte, size, stream)

            own.driver.fill_async = look
            second.commit([0])
            del own.driver.fill_async
            assert (second.array("uint8", CHUNK, device=other) == 0).all()
    assert seen == [vmm.Access.NONE]


def test_what_cannot_be_granted_is_refused(pair, kv):
    with pytest.raises(ValueError, match=r"device 0 is the range's own; set its access with protect\(\)"):
        kv.grant(pair[0], "r")
    with pytest.raises(ValueError, match="access must be"):
        kv.grant(pair[1], "x")


def test_devices_without_peer_access_are_named():
    api = HostDriver(memory="64 MiB", devices=2, peers=())
    with (
        vmm.Device(0, driver=api) as own,
        vmm.Device(1, driver=api) as other,
        vmm.GrowableRange(own, "8 MiB") as kv,
        pytest.raises(vmm.StateError, match="device 1 cannot reach the memory of device 0"),
    ):
        kv.grant(other, "r")


def test_a_coarser_device_needs_larger_chunks(pair, kv, monkeypatch):
    """Case 10: the granularity is the maximum over the devices given access."""
    monkeypatch.setattr(pair[1], "granularity", 2 * CHUNK)
    with pytest.raises(vmm.AlignmentError, match="granularity of device 1; make larger chunks"):
        kv.grant(pair[1], "r")
