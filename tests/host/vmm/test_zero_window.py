"""A window in which uncommitted chunks read as zeros: its mappings, its cost, and that no commit races with a read."""

import pytest

import vmm
from vmm.host import FailingDriver, HostDriver, sweep

STREAMS = ("eager", "deferred")
CHUNK = 2 << 20
GIVE_BACK = ("cuCtxPopCurrent", "cuMemRelease", "cuMemAddressFree", "cuEventDestroy")  # they only end what is over


@pytest.fixture
def kv(device):
    with vmm.GrowableRange(device, "64 MiB", name="kv") as made:
        yield made


def read(kv, chunk, size=16):
    """Bytes of a chunk by a copy of the device."""
    found = bytearray(size)
    with kv.device.current():
        kv.device.driver.copy_out(found, kv.base + chunk * CHUNK, size)
    return bytes(found)


def write(kv, chunk, byte, stream=0):
    with kv.device.current():
        kv.device.driver.fill_async(kv.base + chunk * CHUNK, byte, CHUNK, stream)


def test_uncommitted_chunks_of_the_window_read_as_zeros(kv):
    kv.commit([3])
    write(kv, 3, 7)
    with kv.zero_window("4 MiB", "12 MiB") as window:
        assert window.zeros == [2, 4, 5]
        assert [read(kv, chunk) for chunk in (2, 4, 5)] == [bytes(16)] * 3
        assert read(kv, 3) == bytes([7] * 16)
        assert kv.committed_chunks() == [3]
    for chunk in (2, 4, 5, 9):
        with pytest.raises(vmm.DriverError, match=f"range 'kv', chunk {chunk}"):
            read(kv, chunk)


def test_zeros_are_written_even_where_fresh_memory_is_not_zero():
    with (
        vmm.Device(driver=HostDriver(memory="64 MiB", poison=0xAB)) as device,
        vmm.GrowableRange(device, "8 MiB") as kv,
        kv.zero_window(0, "8 MiB"),
    ):
        assert read(kv, 1, CHUNK) == bytes(CHUNK)


def test_the_zeros_cannot_be_written(kv):
    with kv.zero_window(0, "4 MiB"):
        with pytest.raises(vmm.DriverError, match="chunk 1"):
            write(kv, 1, 7)
            kv.device.synchronize()
        assert read(kv, 0) == bytes(16)


def test_a_commit_takes_the_place_of_zeros_and_a_decommit_brings_them_back(kv):
    with kv.zero_window("4 MiB", "12 MiB") as window:
        kv.commit([1, 2, 5])
        assert window.zeros == [3, 4]
        write(kv, 2, 7)
        kv.decommit([2])
        kv.collect(wait=True)
        assert window.zeros == [2, 3, 4]
        assert read(kv, 2) == bytes(16)
    assert kv.committed_chunks() == [1, 5]


def test_a_commit_inside_waits_for_work_that_reads_the_zeros(kv):
    """Without the wait the read would find nothing mapped, or another's bytes, with deferred streams every time."""
    with kv.zero_window(0, "8 MiB"), vmm.GrowableRange(kv.device, "2 MiB") as target:
        target.commit([0])
        with kv.device.current():
            kv.device.driver.fill_async(target.base, 9, CHUNK)
            kv.device.driver.copy_async(target.base, kv.base + CHUNK, CHUNK)
        kv.commit([1])
        assert kv.device.driver.api.live().pending == 0
        assert (target.array("uint8", CHUNK) == 0).all()


def test_what_it_costs_is_one_chunk_and_is_said(kv):
    free = kv.device.memory_info().free
    with kv.zero_window(0, "64 MiB") as window:
        assert free - kv.device.memory_info().free == CHUNK == kv.committed
        assert "2 MiB of memory, 32 mappings; a commit inside waits for the device" in str(window)
        assert len(vmm.snapshot(kv).runs) == 32
    assert (kv.device.memory_info().free, kv.committed) == (free, 0)


def test_windows_that_overlap_or_lie_outside_are_refused(kv):
    with kv.zero_window("4 MiB", "12 MiB"):
        with pytest.raises(vmm.StateError, match="chunks 5 to 7 overlap ZeroWindow"):
            kv.zero_window("10 MiB", "16 MiB")
        with kv.zero_window("12 MiB", "16 MiB") as neighbour:
            assert neighbour.zeros == [6, 7]
    with pytest.raises(vmm.RangeError):
        kv.zero_window(0, "66 MiB")
    with pytest.raises(vmm.AlignmentError):
        kv.zero_window(1, "4 MiB")


def test_closing_the_range_closes_the_window(device):
    free = device.memory_info().free
    kv = vmm.GrowableRange(device, "64 MiB")
    window = kv.zero_window(0, "64 MiB")
    kv.commit([4])
    kv.close()
    window.close()
    assert device.memory_info().free == free


def test_a_grant_of_writing_does_not_reach_the_zeros():
    api = HostDriver(memory="64 MiB", devices=2)
    with (
        vmm.Device(0, driver=api) as own,
        vmm.Device(1, driver=api) as other,
        vmm.GrowableRange(own, "8 MiB") as kv,
        kv.zero_window(0, "4 MiB"),
    ):
        kv.grant(other, "rw")
        kv.commit([0, 3])
        kv.decommit([0])
        rights = [own.driver.get_access(1, kv.base + chunk * CHUNK) for chunk in (0, 1, 3)]
        assert rights == [vmm.Access.READ, vmm.Access.READ, vmm.Access.READWRITE]


@pytest.mark.parametrize("streams", ["eager", "deferred"])
def test_every_call_of_a_window_may_fail(streams):
    api = FailingDriver(HostDriver(memory="64 MiB", streams=streams), spared=GIVE_BACK)
    with vmm.Device(driver=api) as device, vmm.GrowableRange(device, "64 MiB", name="kv") as kv:
        kv.commit([1])
        windows = []

        def state():
            return kv.committed_chunks(), [window.zeros for window in kv._chunks.windows], kv.supply.in_use

        def close():
            windows.pop().close()

        sweep(api, lambda: windows.append(kv.zero_window(0, "8 MiB")), restore=close, state=state, code=1)
        window = kv.zero_window(0, "8 MiB")
        sweep(api, lambda: kv.commit([2, 5]), restore=lambda: take_away(kv, [2, 5]), state=state, code=1)
        kv.commit([2, 5])
        if streams == "eager":
            sweep(api, lambda: kv.decommit([1, 2]), restore=lambda: kv.commit([1, 2]), state=state, code=1)
        sweep(api, window.close, state=state, code=1)


def take_away(kv, chunks):
    kv.decommit(chunks)
    kv.collect(wait=True)
