"""Several devices in one process: options, and what the operating system allows while a kernel of one of them runs."""

import ctypes
import re

import pytest

from vmm.driver import Access, Driver
from vmm.host import HostDriver, os_view

UNIT = 2 << 20
BOTH = [(0, Access.READWRITE), (1, Access.READ)]


@pytest.fixture
def driver():
    found = Driver(HostDriver(memory="32 MiB", devices=2), "host")
    contexts = [found.context_retain(ordinal) for ordinal in (0, 1)]
    found.contexts = contexts
    yield found
    for ordinal in (0, 1):
        found.context_release(ordinal)


@pytest.fixture
def shared(driver):
    """Two granules of device 0's memory; both devices may touch the first, only device 0 the second."""
    base, handles = driver.reserve(2 * UNIT), [driver.create(0, UNIT) for _ in range(2)]
    for index, handle in enumerate(handles):
        driver.map(base + index * UNIT, UNIT, handle)
    driver.set_access(base, UNIT, BOTH)
    driver.set_access(base + UNIT, UNIT, [(0, Access.READWRITE)])
    yield base
    if driver.api.live().mappings:
        driver.unmap(base, 2 * UNIT)
    for handle in handles:
        driver.release(handle)
    driver.free(base, 2 * UNIT)


def permissions(*addresses):
    return [os_view.kernel_mapping(address).permission for address in addresses]


def seen_by(driver, ordinal, *addresses):
    """The process's permissions while a kernel of a device runs."""
    seen = []
    with driver.context(driver.contexts[ordinal]):
        driver.api.submit(0, lambda: seen.extend(permissions(*addresses)))
    return seen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": 0}, "from 1 to 64"),
        ({"devices": 65}, "from 1 to 64"),
        ({"devices": 2, "peers": "some"}, "'some'"),
        ({"devices": 2, "peers": {(0, 2)}}, "(0, 2)"),
        ({"devices": 2, "peers": {(1, 1)}}, "(1, 1)"),
        ({"devices": 2, "peers": {(-1, 1)}}, "(-1, 1)"),
    ],
)
def test_devices_that_are_not_there_are_refused(options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        HostDriver(**options)


def test_peers_can_be_chosen_pair_by_pair():
    driver = Driver(HostDriver(devices=3, peers={(2, 0)}, backing="none"), "host")
    reached = {(a, b) for a in range(3) for b in range(3) if driver.can_access_peer(a, b)}
    assert reached == {(0, 2), (2, 0)}


def test_each_device_has_its_own_memory_file(driver):
    handle = driver.create(1, UNIT)
    assert [os_view.committed_bytes(driver.api, ordinal) for ordinal in (0, 1)] == [0, UNIT]
    driver.release(handle)


def test_the_cpu_sees_what_any_device_may_do(driver, shared):
    assert permissions(shared, shared + UNIT) == ["rw-s", "rw-s"]
    driver.set_access(shared, UNIT, [(0, Access.NONE)])
    assert permissions(shared) == ["r--s"]


def test_a_kernel_sees_what_its_own_device_may_do(driver, shared):
    assert seen_by(driver, 0, shared, shared + UNIT) == ["rw-s", "rw-s"]
    assert seen_by(driver, 1, shared, shared + UNIT) == ["r--s", "---s"]
    assert permissions(shared, shared + UNIT) == ["rw-s", "rw-s"]  # and the CPU afterwards what it saw before


def test_a_launch_that_fails_gives_the_permissions_back(driver, shared):
    def fail():
        raise KeyError("kernel")

    with driver.context(driver.contexts[1]), pytest.raises(KeyError):
        driver.api.submit(0, fail)
    assert permissions(shared, shared + UNIT) == ["rw-s", "rw-s"]


def test_what_is_unmapped_during_a_launch_stays_unmapped(driver, shared):
    with driver.context(driver.contexts[1]):
        driver.api.submit(0, lambda: driver.unmap(shared, 2 * UNIT))
    assert permissions(shared, shared + UNIT) == ["---p", "---p"]


def test_plain_memory_of_another_device_is_not_a_kernels(driver):
    with driver.context(driver.contexts[0]):
        address = driver.alloc(UNIT)
    ctypes.memset(address, 7, UNIT)
    assert seen_by(driver, 0, address) == ["rw-s"]
    assert seen_by(driver, 1, address) == ["---s"]
    assert ctypes.string_at(address, 1) == b"\7"
    with driver.context(driver.contexts[0]):
        driver.alloc_free(address)


def test_host_memory_that_only_the_host_may_touch_is_not_a_kernels():
    """One device too: the host and the device can have different rights."""
    from cuda.bindings import driver as cuda

    api = HostDriver(memory="16 MiB")
    driver = Driver(api, "host")
    prop, grant = cuda.CUmemAllocationProp(), cuda.CUmemAccessDesc()
    (ctypes.c_int * 4).from_address(prop.getPtr())[:] = 1, 0, 2, 0
    (ctypes.c_int * 3).from_address(grant.getPtr())[:] = 2, 0, 3
    base, handle = driver.reserve(UNIT), int(api.cuMemCreate(UNIT, prop, 0)[1])
    driver.map(base, UNIT, handle)
    assert int(api.cuMemSetAccess(base, UNIT, [grant], 1)[0]) == 0
    driver.contexts = [driver.context_retain(0)]
    assert seen_by(driver, 0, base) == ["---s"]
    assert permissions(base) == ["rw-s"]
    driver.context_release(0)
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, UNIT)
