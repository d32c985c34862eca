"""The driver's layer as data, and whose memory an address is."""

import pytest

from vmm.address_range import AddressRange
from vmm.device import Device
from vmm.driver import Access
from vmm.errors import ClosedError
from vmm.growable import GrowableRange
from vmm.host import HostDriver
from vmm.page_table import describe, snapshot
from vmm.physical import PhysicalMemory

UNIT = 2 << 20


@pytest.fixture(params=["memory", "none"])
def device(request):
    with Device(driver=HostDriver(memory="64 MiB", backing=request.param)) as found:
        yield found


def test_a_snapshot_of_a_growable_range_has_a_run_for_each_chunk(device):
    with GrowableRange(device, reserve="1 TiB", name="kv") as kv:
        kv.commit([0, 1, 5])
        kv.protect(UNIT, 2 * UNIT, "r")
        table = snapshot(kv)
        assert (table.name, table.base, table.reserved, table.committed) == ("kv", kv.base, 1 << 40, 3 * UNIT)
        seen = [(run.address - kv.base, run.size, run.offset, run.access) for run in table.runs]
        assert seen == [
            (0, UNIT, 0, Access.READWRITE),
            (UNIT, UNIT, 0, Access.READ),
            (5 * UNIT, UNIT, 0, Access.READWRITE),
        ]
        assert [run.handle for run in table.runs] == [kv.mapping(chunk).handle for chunk in (0, 1, 5)]


def test_a_snapshot_does_not_change_with_the_range(device):
    with GrowableRange(device, reserve="1 GiB") as kv:
        kv.grow(UNIT)
        before = snapshot(kv)
        kv.grow(2 * UNIT)
        assert (before.committed, snapshot(kv).committed) == (UNIT, 3 * UNIT)


def test_translate_answers_as_the_hardware_would(device):
    with AddressRange(device, 4 * UNIT) as addresses, PhysicalMemory(device, 2 * UNIT) as memory:
        mapping = addresses.map(UNIT, memory)
        table = snapshot(addresses)
        base = addresses.base
        assert table.translate(base + UNIT + 5) == (memory.handle, 5)
        assert table.translate(base + 3 * UNIT - 1) == (memory.handle, 2 * UNIT - 1)
        assert [table.translate(base + at) for at in (0, UNIT - 1, 3 * UNIT)] == [None, None, None]
        assert table.find(base + UNIT).stop == base + 3 * UNIT
        addresses.unmap([mapping])
        assert snapshot(addresses).runs == ()


def test_what_the_snapshot_says_is_what_the_driver_says(device):
    """Each run against the driver's own answer for its first and last byte."""
    with GrowableRange(device, reserve="1 GiB") as kv:
        kv.commit([1, 2, 7])
        kv.protect(2 * UNIT, 3 * UNIT, "r")
        for run in snapshot(kv).runs:
            for address in (run.address, run.stop - 1):
                owner = describe(device, address)
                assert (owner.mapping_base, owner.mapping_size) == (run.address, run.size)
                assert owner.access is run.access is device.driver.get_access(0, address)


def test_a_closed_range_has_no_page_table(device):
    addresses = AddressRange(device, UNIT)
    addresses.close()
    with pytest.raises(ClosedError):
        snapshot(addresses)


def test_the_owner_of_a_mapped_address(device):
    with GrowableRange(device, reserve="1 GiB") as kv:
        kv.grow(2 * UNIT)
        owner = describe(device, kv.base + UNIT + 7)
        assert (owner.kind, owner.base, owner.size, owner.mapped) == ("vmm", kv.base, 1 << 30, True)
        assert (owner.mapping_base, owner.mapping_size) == (kv.base + UNIT, UNIT)
        assert (owner.device, owner.access) == (0, Access.READWRITE)
        assert str(owner).endswith("on device 0, readwrite")


def test_the_owner_of_a_reserved_address(device):
    with GrowableRange(device, reserve="1 GiB") as kv:
        owner = describe(device, kv.base + 9)
        assert (owner.kind, owner.base, owner.size, owner.mapped) == ("vmm", kv.base, 1 << 30, False)
        assert (owner.device, owner.access) == (-1, Access.NONE)
        assert str(owner).endswith("nothing is mapped there")


def test_the_owners_of_plain_and_pinned_memory(device):
    with device.current():
        plain, pinned = device.driver.alloc(1000), device.driver.host_alloc(5000)
    first, second = describe(device, plain + 999), describe(device, pinned + 4999)
    assert (first.kind, first.base, first.size) == ("device", plain, 1000)
    assert (second.kind, second.base, second.size) == ("host", pinned, 5000)
    assert "device allocation of 1000 B" in str(first)
    assert "pinned host allocation" in str(second)
    assert describe(device, pinned + 5000).kind == "foreign"
    with device.current():
        device.driver.alloc_free(plain)
        device.driver.host_free(pinned)
    assert describe(device, plain).kind == "foreign"


def test_a_foreign_address_is_nobodys(device):
    owner = describe(device, id(device))
    assert (owner.kind, owner.size, owner.mapped) == ("foreign", 0, False)
    assert str(owner) == f"{id(device):#x} is no memory of the driver"
