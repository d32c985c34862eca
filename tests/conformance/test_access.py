"""Access belongs to a mapping, location by location, and is set for whole mappings."""

import pytest

DEVICE, HOST, HOST_NUMA = 1, 2, 3
NONE, READ, READWRITE = 0, 1, 3


@pytest.mark.row("3.8 several adjacent mappings in one call")
def test_one_call_covers_adjacent_mappings(lab):
    base = lab.reserve(6)
    for at, units in ((0, 2), (2, 1), (3, 3)):
        lab.map(base + at * lab.unit, lab.create(units), units)
    lab.allow(base, 6)
    assert [lab.access(base + i * lab.unit) for i in range(6)] == [READWRITE] * 6


@pytest.mark.row("3.8 raised and lowered repeatedly")
def test_access_is_raised_and_lowered(lab):
    base = lab.mapped(2)
    for access in (READ, READWRITE, NONE, READWRITE, READ, NONE):
        lab.allow(base, 2, access)
        assert lab.access(base + lab.unit) == access


@pytest.mark.row("3.8 mappings with different access")
def test_one_call_may_change_mappings_that_differ(lab):
    base = lab.mapped(3, access=NONE)
    lab.allow(base + lab.unit, 1, READ)
    lab.allow(base, 3, READWRITE)
    assert [lab.access(base + i * lab.unit) for i in range(3)] == [READWRITE] * 3


@pytest.mark.row("1 two aliases have separate access")
def test_aliases_have_access_of_their_own(lab):
    base = lab.reserve(2)
    handle = lab.create()
    lab.map(base, handle)
    lab.map(base + lab.unit, handle)
    lab.allow(base, 1, READWRITE)
    lab.allow(base + lab.unit, 1, READ)
    assert (lab.access(base), lab.access(base + lab.unit)) == (READWRITE, READ)


@pytest.mark.row("3.8 aligned part of a mapping")
@pytest.mark.unknown("3.8 sub-range at granularity")
@pytest.mark.parametrize(("at", "units"), [(0, 2), (2, 3), (1, 2)])
def test_a_part_of_a_mapping_has_no_access_of_its_own(lab, at, units):
    base = lab.reserve(5)
    lab.map(base, lab.create(5), 5)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base + at * lab.unit, units * lab.unit, [lab.grant()], 1)


@pytest.mark.row("3.8 a range that ends inside a mapping")
def test_a_range_ends_with_a_mapping(lab):
    base = lab.mapped(2, access=READ)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, 2 * lab.unit - 4096, [lab.grant()], 1)


@pytest.mark.row("3.8 range with a hole")
@pytest.mark.unknown("3.8 hole, code")
def test_a_run_with_a_hole_is_refused_and_unchanged(lab):
    base = lab.mapped(3, access=READ)
    lab.unmap(base + lab.unit)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, 3 * lab.unit, [lab.grant()], 1)
    assert lab.access(base) == READ


@pytest.mark.row("3.8 reserved but unmapped")
def test_unmapped_addresses_have_no_access(lab):
    lab.assert_refused(1, lab.api.cuMemSetAccess, lab.reserve(1), lab.unit, [lab.grant()], 1)


@pytest.mark.row("3.8 two reservations")
@pytest.mark.unknown("3.8 spanning two reservations")
def test_access_stays_in_one_reservation(lab):
    first, second = lab.reserve_adjacent()
    lab.map(first + lab.unit, lab.create())
    lab.map(second, lab.create())
    lab.assert_refused(1, lab.api.cuMemSetAccess, first + lab.unit, 2 * lab.unit, [lab.grant()], 1)


@pytest.mark.row("3.8 size 0, count 0, no descriptor")
def test_an_empty_request_is_refused(lab):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, 0, [lab.grant()], 1)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant()], 0)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, lab.unit, [], 0)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, lab.unit, None, 0)


@pytest.mark.row("2 count above the list, or a bare struct")
def test_the_bindings_check_the_list(lab):
    base = lab.mapped(1)
    with pytest.raises(RuntimeError):
        lab.api.cuMemSetAccess(base, lab.unit, [lab.grant()], 2)
    with pytest.raises(TypeError):
        lab.api.cuMemSetAccess(base, lab.unit, lab.grant(), 1)


@pytest.mark.row("3.8 location type invalid")
@pytest.mark.parametrize("kind", [0, 4, 5])
def test_an_invalid_location_is_refused(lab, kind):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant(kind=kind)], 1)


@pytest.mark.row("3.8 flags invalid")
@pytest.mark.parametrize("flags", [2, 4, 0xFF])
def test_invalid_flags_are_refused(lab, flags):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant(flags)], 1)


@pytest.mark.row("3.8 a device that is not there")
@pytest.mark.unknown("3.8 device id")
def test_a_device_that_is_not_there_is_refused(lab):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(101, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant(ordinal=99)], 1)


@pytest.mark.row("3.8 partial failure")
@pytest.mark.unknown("3.8 earlier descriptors of a refused list")
def test_a_refused_list_changes_nothing(lab):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(101, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant(), lab.grant(ordinal=99)], 2)
    assert lab.access(base) == READ


@pytest.mark.row("3.8 HOST on device memory")
@pytest.mark.unknown("3.8 HOST on device memory")
def test_the_host_is_given_no_device_memory(lab):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(801, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant(kind=HOST)], 1)


@pytest.mark.row("3.8 HOST_NUMA on memory that is not the host's")
@pytest.mark.unknown("3.8 HOST_NUMA on device memory")
def test_a_numa_node_is_given_no_device_memory(lab):
    base = lab.mapped(1, access=READ)
    lab.assert_refused(1, lab.api.cuMemSetAccess, base, lab.unit, [lab.grant(kind=HOST_NUMA)], 1)


@pytest.mark.row("3.8 locations not listed keep their setting")
@pytest.mark.host_only("support for host memory depends on the machine")
def test_locations_that_are_not_listed_keep_their_access(lab):
    base = lab.reserve(1)
    handle = int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(HOST), 0)))
    lab.handles.append(handle)
    lab.map(base, handle)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(READ), lab.grant(READWRITE, HOST)], 2))
    lab.allow(base, 1, NONE)
    assert lab.access(base) == NONE
    assert lab.ok(lab.api.cuMemGetAccess(lab.location(HOST), base)) == READWRITE


@pytest.mark.row("3.9 any address inside a mapping")
def test_access_is_known_up_to_the_last_byte(lab):
    base = lab.mapped(2, access=READ)
    assert [lab.access(at) for at in (base, base + 1, base + 2 * lab.unit - 1)] == [READ] * 3


@pytest.mark.row("3.9 mapped, access never set")
@pytest.mark.unknown("3.9 before set")
def test_access_that_was_never_set_is_none(lab):
    assert lab.access(lab.mapped(1, access=None)) == NONE


@pytest.mark.row("3.9 first byte past the range")
def test_access_ends_with_the_range(lab):
    base = lab.mapped(1)
    lab.assert_refused(1, lab.api.cuMemGetAccess, lab.location(), base + lab.unit)


@pytest.mark.row("3.9 reserved, unmapped")
@pytest.mark.unknown("3.9 reserved, unmapped")
def test_unmapped_addresses_have_no_access_to_ask_for(lab):
    lab.assert_refused(1, lab.api.cuMemGetAccess, lab.location(), lab.reserve(1))


@pytest.mark.row("3.9 no address")
def test_address_0_has_no_access_to_ask_for(lab):
    lab.assert_refused(1, lab.api.cuMemGetAccess, lab.location(), 0)
