"""What an error says about the address that was touched: the range, its state, and the call that brought it there."""

import contextlib
import gc
import re
import weakref

import pytest

import vmm
from vmm.driver import Access, Driver
from vmm.errors import DriverError
from vmm.host import HostDriver

UNIT = 2 << 20
GRANT = [(0, Access.READWRITE)]


@pytest.fixture(params=["eager", "deferred"])
def device(request):
    with vmm.Device(driver=HostDriver(memory="64 MiB", streams=request.param)) as found:
        yield found


@pytest.fixture
def mapped(device):
    """Two granules, readable and writable, at ``base``; the test may unmap them."""
    driver = device.driver
    base, handles = driver.reserve(4 * UNIT), [driver.create(0, UNIT) for _ in range(2)]
    for index, handle in enumerate(handles):
        driver.map(base + index * UNIT, UNIT, handle)
    driver.set_access(base, 2 * UNIT, GRANT)
    yield base
    with contextlib.suppress(DriverError):
        driver.unmap(base, 2 * UNIT)
    for handle in handles:
        driver.release(handle)
    with contextlib.suppress(DriverError):
        driver.free(base, 4 * UNIT)


def refusal(device, address):
    """The error of a copy that reads at ``address``."""
    with device.current(), pytest.raises(DriverError) as caught:
        device.driver.copy_out(bytearray(64), address, 64)
    assert caught.value.code == 1
    return str(caught.value)


def test_never_mapped(device, mapped):
    text = refusal(device, mapped + 3 * UNIT + 8)
    assert f"read of {mapped + 3 * UNIT + 8:#x}" in text
    assert f"0x600008 bytes into the reservation of 8 MiB at {mapped:#x}; nothing was ever mapped there" in text


def test_the_first_address_that_is_not_mapped_is_named(device, mapped):
    assert f"read of {mapped + 2 * UNIT:#x}" in refusal(device, mapped + 2 * UNIT - 32)


def test_unmapped_and_by_which_call(device, mapped):
    device.driver.unmap(mapped, 2 * UNIT)
    text = refusal(device, mapped + UNIT)
    assert text.endswith(f"nothing is mapped there any more, by cuMemUnmap({mapped:#x}, 4 MiB), the latest change")
    other = device.driver.reserve(UNIT)
    device.driver.free(other, UNIT)
    assert refusal(device, mapped).endswith("1 change ago")


def test_read_only_and_since_which_call(device, mapped):
    device.driver.set_access(mapped, UNIT, [(0, Access.READ)])
    with device.current(), pytest.raises(DriverError) as caught:
        device.driver.fill_async(mapped, 0, 64)
    said = f"with read only, by cuMemSetAccess({mapped:#x}, 2 MiB), the latest change"
    assert str(caught.value).endswith(said)
    assert f"write of {mapped:#x}" in str(caught.value)


def test_mapped_but_access_never_set(device, mapped):
    driver = device.driver
    handle = driver.create(0, UNIT)
    driver.map(mapped + 2 * UNIT, UNIT, handle)
    assert refusal(device, mapped + 2 * UNIT).endswith("with no access")
    driver.unmap(mapped + 2 * UNIT, UNIT)
    driver.release(handle)


def test_freed(device, mapped):
    driver = device.driver
    driver.unmap(mapped, 2 * UNIT)
    driver.free(mapped, 4 * UNIT)
    text = refusal(device, mapped + UNIT)
    assert "it did and was freed" in text
    assert f"by cuMemAddressFree({mapped:#x}, 8 MiB)" in text
    with device.current():
        plain = driver.alloc(4096)
        driver.alloc_free(plain)
    assert f"by cuMemFree({plain:#x}, 4 KiB)" in refusal(device, plain)


def test_foreign(device):
    assert refusal(device, 0x1000).endswith("0x1000 belongs to no reservation and no allocation")


def test_a_new_reservation_does_not_inherit_the_old_ones_past():
    api = HostDriver(backing="none")
    driver = Driver(api, "host")
    base = driver.reserve(UNIT)
    handle = driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.unmap(base, UNIT)
    assert api.explain(base).state == "unmapped"
    driver.free(base, UNIT)
    assert api.explain(base).state == "freed"
    assert driver.reserve(UNIT, hint=base) == base
    assert api.explain(base).state == "never mapped"
    driver.free(base, UNIT)
    driver.release(handle)


def test_the_history_forgets_and_says_so():
    api = HostDriver(backing="none")
    driver = Driver(api, "host")
    base, handle = driver.reserve(2 * UNIT), driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.unmap(base, UNIT)
    for _ in range(5000):
        driver.map(base + UNIT, UNIT, handle)
        driver.unmap(base + UNIT, UNIT)
    assert api.explain(base).state == "not mapped"  # never, or too long ago
    assert api.explain(base + UNIT).state == "unmapped"
    driver.release(handle)
    driver.free(base, 2 * UNIT)


def test_an_explanation_is_for_the_device_that_asks():
    api = HostDriver(memory="16 MiB", devices=2, backing="none")
    driver = Driver(api, "host")
    base, handle = driver.reserve(UNIT), driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.set_access(base, UNIT, GRANT)
    assert [api.explain(base, device).state for device in (0, 1)] == ["accessible", "no access"]
    assert api.explain(base).state == "accessible"
    with driver.context(driver.context_retain(1)):
        assert api.explain(base).state == "no access"
    driver.context_release(1)
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, UNIT)


# -- kernels, through a device ----------------------------------------------------------------------------------


def kernel_that_reads(device, address):
    """What a launch does: touch, and raise the target's fault where there is nothing."""

    def call():
        if device.driver.api.explain(address).state != "accessible":
            raise device.fault(address, False)

    return call


def faulted(device, address):
    """The error of a kernel, from whichever call reports it."""
    with pytest.raises(DriverError) as caught:
        device.submit(0, kernel_that_reads(device, address), None)
        device.synchronize()
    assert caught.value.code == 700
    return str(caught.value)


def test_a_kernels_fault_names_the_address_and_the_call_that_took_it_away(device, mapped):
    device.driver.unmap(mapped, 2 * UNIT)
    text = faulted(device, mapped + 16)
    assert f"read of {mapped + 16:#x}" in text
    assert f"by cuMemUnmap({mapped:#x}, 4 MiB)" in text
    device.driver.api.reset_context()


def test_a_fault_is_reported_once_and_owners_close(device, mapped):
    faulted(device, mapped + 3 * UNIT)
    device.synchronize()  # nothing is left to wait for
    with pytest.raises(DriverError, match=r"700.*read of"):
        device.memory_info()
    with pytest.raises(DriverError, match=r"700.*read of"):
        device.submit(0, lambda: None, None)


def test_a_fault_that_nobody_waited_for_comes_out_at_close():
    api = HostDriver(memory="16 MiB", streams="deferred")
    device = vmm.Device(driver=api)
    device.submit(0, kernel_that_reads(device, 0x1000), None)
    with pytest.raises(DriverError, match="700"):
        device.close()
    device.close()
    assert api.live().total == 0
    with vmm.Device(driver=api) as fresh:  # the last release of the context made it new
        assert fresh.memory_info().free == 16 << 20


def test_an_unmap_under_a_queued_kernel_is_found_every_time():
    """What on a GPU is a race once a month."""
    with vmm.Device(driver=HostDriver(memory="16 MiB", streams="deferred")) as device:
        driver = device.driver
        base, handle = driver.reserve(UNIT), driver.create(0, UNIT)
        driver.map(base, UNIT, handle)
        driver.set_access(base, UNIT, GRANT)
        device.submit(0, kernel_that_reads(device, base), None)
        device.synchronize()
        device.submit(0, kernel_that_reads(device, base), None)
        driver.unmap(base, UNIT)
        with pytest.raises(DriverError, match=f"by cuMemUnmap\\({base:#x}"):
            device.synchronize()
        driver.release(handle)
        driver.free(base, UNIT)


class Kept:
    """Something that a launch keeps alive."""


@pytest.mark.parametrize(("streams", "alive"), [("eager", False), ("deferred", True)])
def test_what_a_launch_uses_lives_until_it_has_run(streams, alive):
    with vmm.Device(driver=HostDriver(memory="16 MiB", streams=streams)) as device:
        kept, ran = Kept(), []
        reference = weakref.ref(kept)
        device.submit(0, lambda: ran.append(reference() is not None), kept)
        del kept
        gc.collect()
        assert (reference() is not None) == alive
        device.synchronize()
        gc.collect()
        assert reference() is None
        assert ran == [True]


def test_a_launch_runs_in_its_own_context_later():
    api = HostDriver(memory="16 MiB", devices=2, streams="deferred")
    with vmm.Device(0, driver=api) as first, vmm.Device(1, driver=api) as second:
        seen = []
        for device in (first, second):
            device.submit(0, lambda: seen.append(int(api.cuCtxGetDevice()[1])), None)
        second.synchronize()
        assert seen == [1]
        first.synchronize()
        assert seen == [1, 0]


def test_an_error_that_is_no_fault_comes_out_of_the_wait():
    def broken():
        raise KeyError("wrong argument")

    with vmm.Device(driver=HostDriver(memory="16 MiB", streams="deferred")) as device:
        device.submit(0, broken, None)
        with pytest.raises(KeyError, match="wrong argument"):
            device.synchronize()
        device.synchronize()
        assert device.memory_info().free == 16 << 20


def test_pending_work_counts_as_alive():
    api = HostDriver(memory="16 MiB", streams="deferred")
    with vmm.Device(driver=api) as device:
        device.submit(0, lambda: None, None)
        assert api.live().pending == 1
        device.synchronize()
        assert api.live().pending == 0


def test_an_error_names_range_and_chunk(device):
    with vmm.GrowableRange(device, "16 MiB", name="kv cache") as memory:
        device.driver.ranges.add(memory)
        memory.commit([0, 1])
        memory.decommit([1])
        device.synchronize()
        address = memory.base + memory.chunk_size + 12
        assert "range 'kv cache', chunk 1: read of" in refusal(device, address)
        text = faulted(device, address)
        assert re.search(r"range 'kv cache', chunk 1: read of .* by cuMemUnmap", text)


class OnlyUnmaps:
    """A driver without knowledge: as a GPU's."""

    def __init__(self, api):
        self._api = api

    def __getattr__(self, name):
        if name in ("explain", "diagnosis", "submit"):
            raise AttributeError(name)
        return getattr(self._api, name)


def test_a_gpu_knows_no_address_and_its_error_lists_the_latest_unmaps():
    api = HostDriver(memory="64 MiB")
    with vmm.Device(driver=OnlyUnmaps(api)) as device:
        driver = device.driver
        base, handle = driver.reserve(16 * UNIT), driver.create(0, UNIT)
        for index in range(16):
            driver.map(base + index * UNIT, UNIT, handle)
            driver.unmap(base + index * UNIT, UNIT)
        text = str(device.fault(0, False))
        assert f"the latest unmaps, last first: {base + 15 * UNIT:#x} + 0x200000, {base + 14 * UNIT:#x}" in text
        assert text.count("+ 0x200000") == 8
        driver.release(handle)
        driver.free(base, 16 * UNIT)
