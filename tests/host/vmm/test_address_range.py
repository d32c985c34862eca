import gc

import pytest

import vmm
from vmm.address_range import adjacent

MIB = 1 << 20


@pytest.fixture
def addresses(device):
    with vmm.AddressRange(device, "16 MiB") as made:
        yield made


@pytest.fixture
def chunks(device):
    made = [vmm.PhysicalMemory(device, "2 MiB") for _ in range(4)]
    yield made
    for chunk in made:
        chunk.close()


def test_the_size_is_rounded_up_to_the_granularity(device):
    with vmm.AddressRange(device, 1) as small, vmm.AddressRange(device, "2 MiB") as exact:
        assert (small.size, exact.size) == (2 * MIB, 2 * MIB)


def test_a_mapping_remembers_its_extent(addresses, chunks):
    mapping = addresses.map(4 * MIB, chunks[0])
    assert (mapping.offset, mapping.size, mapping.stop) == (4 * MIB, 2 * MIB, 6 * MIB)
    assert mapping.address == addresses.base + 4 * MIB
    assert mapping.handle == chunks[0].handle
    assert addresses.mappings() == [mapping]


def test_adjacent_mappings_are_unmapped_in_one_call_and_others_are_refused(addresses, chunks):
    low, high, far = (addresses.map(offset * MIB, chunk) for offset, chunk in zip((0, 2, 8), chunks, strict=False))
    with pytest.raises(vmm.StateError, match="does not follow"):
        addresses.unmap([low, far])
    with pytest.raises(vmm.StateError, match="does not follow"):
        addresses.unmap([high, low])
    addresses.unmap([low, high])
    assert addresses.mappings() == [far]
    with pytest.raises(vmm.StateError, match="not mapped"):
        addresses.unmap([low])


def test_runs_are_cut_where_addresses_jump(addresses, chunks):
    made = [addresses.map(offset * MIB, chunk) for offset, chunk in zip((0, 2, 8, 10), chunks, strict=True)]
    assert [list(run) for run in adjacent(made)] == [made[:2], made[2:]]
    assert list(adjacent([])) == []


@pytest.mark.parametrize(
    ("offset", "error"), [(1, vmm.AlignmentError), (16 * MIB, vmm.RangeError), (-2 * MIB, vmm.RangeError)]
)
def test_a_place_outside_or_between_is_refused(addresses, chunks, offset, error):
    with pytest.raises(error, match="offset"):
        addresses.map(offset, chunks[0])
    assert addresses.mappings() == []


def test_mapping_over_a_mapping_is_the_drivers_error(addresses, chunks):
    addresses.map(0, chunks[0])
    with pytest.raises(vmm.DriverError) as caught:
        addresses.map(0, chunks[1])
    assert (caught.value.call, caught.value.code) == ("cuMemMap", 1)
    assert len(addresses.mappings()) == 1


def test_access_is_what_the_driver_says_it_is(addresses, chunks):
    made = [addresses.map(0, chunks[0]), addresses.map(2 * MIB, chunks[1])]
    driver = addresses.device.driver
    assert driver.get_access(0, addresses.base) == vmm.Access.NONE
    addresses.set_access(made, vmm.Access.READ)
    assert [driver.get_access(0, mapping.address) for mapping in made] == [vmm.Access.READ] * 2
    assert made[1].access == vmm.Access.READ


def test_close_unmaps_and_frees_and_a_second_close_does_nothing(device, chunks):
    addresses = vmm.AddressRange(device, "8 MiB")
    addresses.map(2 * MIB, chunks[0])
    addresses.close()
    addresses.close()
    live = device.driver.api.live()
    assert (live.reservations, live.mappings) == (0, 0)
    with pytest.raises(vmm.ClosedError):
        _ = addresses.base


def test_a_range_that_is_dropped_is_freed_with_a_warning(device):
    addresses = vmm.AddressRange(device, "2 MiB")
    with pytest.warns(ResourceWarning, match="never closed"):
        del addresses
        gc.collect()
    assert device.driver.api.live().reservations == 0
