"""Mapping and unmapping: whole allocations only, and every refused call changes nothing."""

import pytest


@pytest.mark.row("3.6 a whole allocation at clear addresses")
def test_a_mapping_begins_without_access(lab):
    base = lab.mapped(1, access=None)
    assert lab.attribute("MAPPED", base)
    assert lab.access(base) == 0


@pytest.mark.row("3.6 reservation larger than the mapping")
def test_a_reservation_may_be_mapped_in_parts(lab):
    base = lab.reserve(8)
    lab.map(base + 5 * lab.unit, lab.create(2), units=2)
    assert [bool(lab.attribute("MAPPED", base + i * lab.unit)) for i in range(8)] == [False] * 5 + [True] * 2 + [False]


@pytest.mark.row("3.6 size below the allocation's")
def test_a_part_of_an_allocation_is_not_mapped(lab):
    base = lab.reserve(2)
    lab.assert_refused(1, lab.api.cuMemMap, base, lab.unit, 0, lab.create(2), 0)


@pytest.mark.row("3.6 offset other than 0")
def test_no_offset_into_an_allocation(lab):
    base = lab.reserve(2)
    handle = lab.create(2)
    lab.assert_refused(1, lab.api.cuMemMap, base, lab.unit, lab.unit, handle, 0)
    lab.assert_refused(1, lab.api.cuMemMap, base, 2 * lab.unit, lab.unit, handle, 0)


@pytest.mark.row("3.6 offset -1")
def test_a_negative_offset_is_refused(lab):
    base = lab.reserve(1)
    handle = lab.create()
    lab.assert_refused(1, lab.api.cuMemMap, base, lab.unit, (1 << 64) - 1, handle, 0)
    with pytest.raises(OverflowError):
        lab.api.cuMemMap(base, lab.unit, -1, handle, 0)


@pytest.mark.row("3.6 size above the allocation's")
def test_no_more_than_the_allocation_is_mapped(lab):
    base = lab.reserve(2)
    lab.assert_refused(1, lab.api.cuMemMap, base, 2 * lab.unit, 0, lab.create(), 0)


@pytest.mark.row("3.6 size 0, ptr 0")
def test_nothing_is_not_mapped(lab):
    base = lab.reserve(1)
    handle = lab.create()
    lab.assert_refused(1, lab.api.cuMemMap, base, 0, 0, handle, 0)
    lab.assert_refused(1, lab.api.cuMemMap, 0, lab.unit, 0, handle, 0)


@pytest.mark.row("3.6 target already mapped")
def test_mapped_addresses_are_not_mapped_again(lab):
    base = lab.mapped(1, spare=1)
    lab.assert_refused(1, lab.api.cuMemMap, base, lab.unit, 0, lab.create(), 0)


@pytest.mark.row("3.6 target partly mapped")
@pytest.mark.parametrize("at", [0, 1, 2])
def test_partly_mapped_addresses_are_not_mapped(lab, at):
    base = lab.reserve(5)
    lab.map(base + 2 * lab.unit, lab.create())
    lab.assert_refused(1, lab.api.cuMemMap, base + at * lab.unit, 3 * lab.unit, 0, lab.create(3), 0)


@pytest.mark.row("3.6 outside a reservation, or crossing its end")
@pytest.mark.parametrize("at", [-1, 1, 2])
def test_a_mapping_lies_inside_one_reservation(lab, at):
    base = lab.reserve(2)
    lab.assert_refused(1, lab.api.cuMemMap, base + at * lab.unit, 2 * lab.unit, 0, lab.create(2), 0)


@pytest.mark.row("3.6 crossing two adjacent reservations")
@pytest.mark.unknown("3.6 crossing two adjacent reservations")
def test_a_mapping_does_not_cross_reservations(lab):
    first, _ = lab.reserve_adjacent()
    lab.assert_refused(1, lab.api.cuMemMap, first + lab.unit, 2 * lab.unit, 0, lab.create(2), 0)


@pytest.mark.row("3.6 misaligned ptr")
@pytest.mark.parametrize("by", [1, 4096])
def test_a_mapping_begins_on_a_granule(lab, by):
    base = lab.reserve(2)
    lab.assert_refused(1, lab.api.cuMemMap, base + by, lab.unit, 0, lab.create(), 0)


@pytest.mark.row("3.6 zero handle")
def test_handle_0_is_not_mapped(lab):
    lab.assert_refused(1, lab.api.cuMemMap, lab.reserve(1), lab.unit, 0, 0, 0)


@pytest.mark.row("3.6 stale handle")
@pytest.mark.host_only("the real driver may crash on a stale handle")
def test_a_stale_handle_is_not_mapped(lab):
    base = lab.reserve(1)
    handle = lab.create()
    lab.release(handle)
    lab.assert_refused(1, lab.api.cuMemMap, base, lab.unit, 0, handle, 0)


@pytest.mark.row("3.5 and 3.6 a released handle that is still mapped")
@pytest.mark.host_only("the real driver may crash on a stale handle")
def test_a_released_handle_is_not_mapped_again(lab):
    base = lab.mapped(1, spare=1)
    handle = lab.handles[0]
    lab.release(handle)
    lab.assert_refused(1, lab.api.cuMemMap, base + lab.unit, lab.unit, 0, handle, 0)


@pytest.mark.row("3.6 flags other than 0")
@pytest.mark.unknown("3.6 flags")
def test_map_takes_no_flags(lab):
    lab.assert_refused(1, lab.api.cuMemMap, lab.reserve(1), lab.unit, 0, lab.create(), 1)


@pytest.mark.row("3.6 the same handle at several addresses")
def test_memory_may_have_several_addresses(lab):
    base = lab.reserve(3)
    handle = lab.create()
    free = lab.free()
    for index in range(3):
        lab.map(base + index * lab.unit, handle)
    assert free - lab.free() < lab.unit
    lab.release(handle)
    lab.unmap(base, 2)
    assert lab.free() < free + lab.unit
    lab.unmap(base + 2 * lab.unit)
    assert lab.free() == free + lab.unit


@pytest.mark.row("3.6 the same handle in thousands of slots")
def test_one_page_may_fill_a_range(lab):
    base = lab.reserve(2000)
    handle = lab.create()
    for index in range(2000):
        lab.map(base + index * lab.unit, handle)
    assert int(lab.ok(lab.api.cuMemRetainAllocationHandle(base + 1999 * lab.unit))) == handle
    lab.ok(lab.api.cuMemRelease(handle))


@pytest.mark.row("3.7 exactly one mapping")
def test_unmap_leaves_a_plain_reservation(lab):
    base = lab.mapped(1)
    lab.unmap(base)
    assert not lab.attribute("MAPPED", base)
    assert int(lab.attribute("RANGE_SIZE", base)) == lab.unit
    lab.map(base, lab.handles[0])
    assert lab.access(base) == 0  # access is forgotten


@pytest.mark.row("3.7 several whole adjacent mappings")
def test_adjacent_mappings_are_unmapped_in_one_call(lab):
    base = lab.reserve(6)
    for at, units in ((0, 1), (1, 3), (4, 2)):
        lab.map(base + at * lab.unit, lab.create(units), units)
    lab.unmap(base + lab.unit, 5)
    assert [bool(lab.attribute("MAPPED", base + i * lab.unit)) for i in range(6)] == [True] + [False] * 5


@pytest.mark.row("3.7 part of one mapping")
@pytest.mark.parametrize(("at", "units"), [(0, 1), (1, 1), (1, 2), (0, 2)])
def test_a_part_of_a_mapping_is_not_unmapped(lab, at, units):
    base = lab.reserve(3)
    lab.map(base, lab.create(3), 3)
    lab.allow(base, 3)
    lab.assert_refused(1, lab.api.cuMemUnmap, base + at * lab.unit, units * lab.unit)


@pytest.mark.row("3.7 a range that ends inside a mapping")
@pytest.mark.parametrize("less", [1, 4096])
def test_an_unmap_ends_with_a_mapping(lab, less):
    base = lab.mapped(2)
    lab.assert_refused(1, lab.api.cuMemUnmap, base, 2 * lab.unit - less)


@pytest.mark.row("3.7 a hole, or a tail that was never mapped")
@pytest.mark.unknown("3.7 holes")
def test_a_run_with_a_hole_is_not_unmapped(lab):
    base = lab.mapped(3, spare=1)
    lab.unmap(base + lab.unit)
    lab.assert_refused(1, lab.api.cuMemUnmap, base, 3 * lab.unit)
    lab.assert_refused(1, lab.api.cuMemUnmap, base + 2 * lab.unit, 2 * lab.unit)
    lab.assert_refused(1, lab.api.cuMemUnmap, base + lab.unit, 2 * lab.unit)


@pytest.mark.row("3.7 unmapped range, double unmap")
@pytest.mark.unknown("3.7 double unmap")
def test_what_is_not_mapped_is_not_unmapped(lab):
    base = lab.mapped(1, spare=1)
    lab.assert_refused(1, lab.api.cuMemUnmap, base + lab.unit, lab.unit)
    lab.unmap(base)
    lab.assert_refused(1, lab.api.cuMemUnmap, base, lab.unit)


@pytest.mark.row("3.7 spanning two reservations")
@pytest.mark.unknown("3.7 spanning two reservations")
def test_an_unmap_stays_in_one_reservation(lab):
    first, second = lab.reserve_adjacent()
    for base in (first, second):
        for index in range(2):
            lab.map(base + index * lab.unit, lab.create())
    lab.assert_refused(1, lab.api.cuMemUnmap, first, 4 * lab.unit)
    lab.assert_refused(1, lab.api.cuMemUnmap, first + lab.unit, 2 * lab.unit)


@pytest.mark.row("3.7 ptr 0, size 0")
def test_nothing_is_not_unmapped(lab):
    base = lab.mapped(1)
    lab.assert_refused(1, lab.api.cuMemUnmap, 0, 0)
    lab.assert_refused(1, lab.api.cuMemUnmap, base, 0)
    lab.assert_refused(1, lab.api.cuMemUnmap, 0, lab.unit)


@pytest.mark.row("2 pointers as ints and as the bindings' own types")
def test_the_bindings_types_and_ints_are_equally_good(lab):
    status, base = lab.api.cuMemAddressReserve(lab.unit, 0, 0, 0)
    assert int(status) == 0
    status, handle = lab.api.cuMemCreate(lab.unit, lab.prop, 0)
    assert int(status) == 0
    assert (type(base).__name__, type(handle).__name__) == ("CUdeviceptr", "CUmemGenericAllocationHandle")
    assert base != int(base)  # compare ints, never these objects
    lab.ok(lab.api.cuMemMap(base, lab.unit, 0, handle, 0))
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant()], 1))
    assert lab.access(int(base)) == lab.access(base) == 3
    lab.ok(lab.api.cuMemUnmap(int(base), lab.unit))
    lab.ok(lab.api.cuMemRelease(handle))
    lab.ok(lab.api.cuMemAddressFree(base, lab.unit))
