"""The host driver's memory as the operating system sees it."""

import ctypes
import os
import random
from pathlib import Path

import pytest

from vmm.driver import Access, Driver
from vmm.host import HostDriver, libc, os_view

UNIT = 2 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
GRANT = [(0, Access.READWRITE)]


@pytest.fixture
def api():
    return HostDriver(memory="64 MiB")


@pytest.fixture
def driver(api):
    return Driver(api, "host")


@pytest.fixture
def mapped(driver):
    """A reservation of 4 chunks, the first two of them mapped with full access: (base, handles)."""
    base = driver.reserve(4 * UNIT)
    handles = [driver.create(0, UNIT) for _ in range(2)]
    for index, handle in enumerate(handles):
        driver.map(base + index * UNIT, UNIT, handle)
    driver.set_access(base, 2 * UNIT, GRANT)
    yield base, handles
    driver.unmap(base, 2 * UNIT)
    for handle in handles:
        driver.release(handle)
    driver.free(base, 4 * UNIT)


def permission(address):
    return os_view.kernel_mapping(address).permission


def test_the_system_counts_what_the_driver_counts(api, driver):
    """To the byte, over a random life of chunks of several sizes, plain memory among them."""
    seeded = random.Random(7)
    context = driver.context_retain(0)
    held = []
    with driver.context(context):
        for _ in range(60):
            if held and seeded.random() < 0.5:
                give, what = held.pop(seeded.randrange(len(held)))
                give(what)
            elif seeded.random() < 0.2:
                held.append((driver.alloc_free, driver.alloc(seeded.choice([1, 4096, 70_000]))))
            else:
                held.append((driver.release, driver.create(0, UNIT * seeded.choice([1, 1, 2, 3]))))
            free, total = driver.memory_info()
            assert os_view.committed_bytes(api) == total - free
        for give, what in held:
            give(what)
        assert os_view.committed_bytes(api) == 0
    driver.context_release(0)


def test_memory_is_taken_at_create_and_not_at_the_first_touch(api, driver):
    handle = driver.create(0, 3 * UNIT)
    assert os_view.committed_bytes(api) == 3 * UNIT
    driver.release(handle)


def test_a_terabyte_of_addresses_costs_no_memory(api, driver):
    before = int(Path("/proc/self/statm").read_text().split()[1])
    base = driver.reserve(1 << 40)
    after = int(Path("/proc/self/statm").read_text().split()[1])
    assert os_view.committed_bytes(api) == 0
    assert abs(after - before) * PAGE < 1 << 20
    line = os_view.kernel_mapping(base)
    assert line.permission == "---p"
    assert line.end - line.start >= 1 << 40
    driver.free(base, 1 << 40)


def test_access_is_the_kernels_permission(driver, mapped):
    base, handles = mapped
    assert (permission(base), permission(base + 2 * UNIT)) == ("rw-s", "---p")
    driver.set_access(base, UNIT, [(0, Access.READ)])
    assert (permission(base), permission(base + UNIT)) == ("r--s", "rw-s")
    driver.set_access(base, UNIT, [(0, Access.NONE)])
    assert permission(base) == "---s"
    driver.unmap(base, UNIT)
    assert permission(base) == "---p"
    driver.map(base, UNIT, handles[0])
    assert permission(base) == "---s"


def test_an_alias_is_a_second_mapping_of_the_same_file_bytes(driver, mapped):
    base, handles = mapped
    driver.map(base + 3 * UNIT, UNIT, handles[0])
    driver.set_access(base + 3 * UNIT, UNIT, [(0, Access.READ)])
    first, alias = os_view.kernel_mapping(base), os_view.kernel_mapping(base + 3 * UNIT)
    assert (first.inode, first.offset + base - first.start) == (alias.inode, alias.offset)
    ctypes.memmove(base + 5, b"twice", 5)
    assert ctypes.string_at(base + 3 * UNIT + 5, 5) == b"twice"
    driver.unmap(base + 3 * UNIT, UNIT)


def test_bytes_survive_unmap_and_remap_at_another_address(driver, mapped):
    base, handles = mapped
    ctypes.memmove(base, b"still here", 10)
    driver.unmap(base, UNIT)
    driver.map(base + 2 * UNIT, UNIT, handles[0])
    driver.set_access(base + 2 * UNIT, UNIT, GRANT)
    assert ctypes.string_at(base + 2 * UNIT, 10) == b"still here"
    driver.unmap(base + 2 * UNIT, UNIT)
    driver.map(base, UNIT, handles[0])


def test_a_new_chunk_does_not_show_another_ones_bytes(driver, mapped):
    base, handles = mapped
    ctypes.memset(base, 0xEE, UNIT)
    driver.unmap(base, UNIT)
    driver.release(handles[0])
    handles[0] = driver.create(0, UNIT)
    driver.map(base, UNIT, handles[0])
    driver.set_access(base, UNIT, GRANT)
    assert ctypes.string_at(base, UNIT) == bytes(UNIT)


def test_poison_fills_fresh_memory():
    driver = Driver(HostDriver(memory="16 MiB", poison=0xA5), "host")
    handle = driver.create(0, UNIT)
    base = driver.reserve(UNIT)
    driver.map(base, UNIT, handle)
    driver.set_access(base, UNIT, GRANT)
    assert ctypes.string_at(base, UNIT) == b"\xa5" * UNIT
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, UNIT)


def test_an_unmap_leaves_no_hole(driver, mapped):
    """Nobody else can take the addresses between an unmap and the next map."""
    base, handles = mapped
    driver.unmap(base, UNIT)
    assert not libc.reserve_at(base, PAGE)
    driver.map(base, UNIT, handles[0])


def test_chunks_created_in_order_add_no_kernel_mapping():
    """512 neighbours are one mapping to the kernel, before and after access is set."""
    driver = Driver(HostDriver(memory="32 MiB", granularity="64 KiB"), "host")
    unit = 64 << 10
    base = driver.reserve(512 * unit)
    handles = [driver.create(0, unit) for _ in range(512)]
    before = os_view.mapping_count()
    for index, handle in enumerate(handles):
        driver.map(base + index * unit, unit, handle)
    assert os_view.mapping_count() - before <= 2
    driver.set_access(base, 512 * unit, GRANT)
    assert os_view.mapping_count() - before <= 2
    driver.unmap(base, 512 * unit)
    for handle in handles:
        driver.release(handle)
    driver.free(base, 512 * unit)


def test_a_dropped_driver_gives_everything_back():
    api = HostDriver(memory="16 MiB")
    driver = Driver(api, "host")
    base = driver.reserve(UNIT)
    handle = driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.release(handle)
    files = len(list(Path("/proc/self/fd").iterdir()))
    name = os_view.kernel_mapping(base).name
    assert "vmm-device-0" in name
    del api, driver
    assert len(list(Path("/proc/self/fd").iterdir())) == files - 2  # the device's file and the host's
    line = os_view.kernel_mapping(base)
    assert line is None or line.name != name
