"""Physical memory: granularity, create, release, retain, properties."""

import ctypes

import pytest

PINNED, MANAGED = 1, 2
DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT = 1, 2, 3, 4
POSIX_FILE_DESCRIPTOR, FABRIC = 1, 8


@pytest.mark.row("3.1 minimum")
def test_the_minimum_is_a_power_of_two_of_pages(lab):
    minimum = lab.ok(lab.api.cuMemGetAllocationGranularity(lab.prop, 0))
    assert minimum % 4096 == 0
    assert minimum & (minimum - 1) == 0


@pytest.mark.row("3.1 recommended")
def test_the_recommended_granularity_is_a_multiple_of_the_minimum(lab):
    assert lab.ok(lab.api.cuMemGetAllocationGranularity(lab.prop, 1)) % lab.unit == 0


@pytest.mark.row("3.1 invalid option")
def test_an_unknown_option_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemGetAllocationGranularity, lab.prop, 0xFF)


@pytest.mark.row("3.1 location id and types are not looked at")
@pytest.mark.parametrize(
    ("kind", "ordinal", "allocation"), [(DEVICE, 99, 1), (DEVICE, -1, 1), (0, 0, 1), (DEVICE, 0, 0)]
)
def test_granularity_does_not_judge_the_property(lab, kind, ordinal, allocation):
    found = lab.api.cuMemGetAllocationGranularity(lab.property_of(kind, ordinal, allocation=allocation), 0)
    assert lab.ok(found) == lab.unit


@pytest.mark.row("3.1 no property")
@pytest.mark.host_only("a null property crashes the real driver")
def test_no_property_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemGetAllocationGranularity, None, 0)
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, None, 0)


@pytest.mark.row("3.4 physical memory is taken at create")
def test_memory_is_counted_at_create_and_at_release(lab):
    before = lab.free()
    handle = lab.create(4)
    assert lab.free() == before - 4 * lab.unit
    lab.release(handle)
    assert lab.free() == before


@pytest.mark.row("3.4 size 0")
def test_no_size_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemCreate, 0, lab.prop, 0)


@pytest.mark.row("3.4 size not a multiple of the granularity")
@pytest.mark.parametrize("extra", [1, -1, 4096])
def test_a_size_in_parts_of_a_granule_is_refused(lab, extra):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit + extra, lab.prop, 0)


@pytest.mark.row("3.4 allocation type invalid")
def test_an_invalid_allocation_type_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.property_of(allocation=0), 0)


@pytest.mark.row("3.4 location type invalid")
@pytest.mark.parametrize("kind", [0, 5])
def test_an_invalid_location_is_refused(lab, kind):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.property_of(kind), 0)


@pytest.mark.row("3.4 a device that is not there")
@pytest.mark.unknown("3.4 device id")
@pytest.mark.parametrize("ordinal", [-1, 99])
def test_memory_of_a_device_that_is_not_there_is_refused(lab, ordinal):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.property_of(ordinal=ordinal), 0)


@pytest.mark.row("3.4 flags other than 0")
@pytest.mark.unknown("3.4 flags")
def test_create_takes_no_flags(lab):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.prop, 1)


@pytest.mark.row("3.4 no memory")
def test_memory_runs_out_and_comes_back(lab):
    units = lab.free() // lab.unit
    lab.assert_refused(2, lab.api.cuMemCreate, (units + 1) * lab.unit, lab.prop, 0)
    handle = lab.create(1)
    lab.release(handle)


@pytest.mark.row("3.4 fabric without a channel")
@pytest.mark.host_only("depends on the machine's fabric")
def test_fabric_handles_are_not_permitted(lab):
    lab.assert_refused(800, lab.api.cuMemCreate, lab.unit, lab.property_of(handle_types=FABRIC), 0)
    lab.assert_refused(
        800, lab.api.cuMemCreate, lab.unit, lab.property_of(handle_types=FABRIC | POSIX_FILE_DESCRIPTOR), 0
    )


@pytest.mark.row("3.4 compression and direct access are requests")
@pytest.mark.parametrize("requests", [b"\1\0", b"\0\1", b"\1\1"])
def test_requests_that_may_not_be_granted_are_no_error(lab, requests):
    handle = int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(requests=requests), 0)))
    assert handle
    lab.ok(lab.api.cuMemRelease(handle))


@pytest.mark.row("3.4 compression is reported as granted")
@pytest.mark.host_only("a real device may grant it")
def test_compression_is_never_granted(lab):
    handle = int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(requests=b"\1\1"), 0)))
    lab.handles.append(handle)
    granted = lab.ok(lab.api.cuMemGetAllocationPropertiesFromHandle(handle))
    assert ctypes.string_at(granted.getPtr() + 24, 2) == b"\0\0"


@pytest.mark.row("3.4 host memory cannot be exported")
def test_exportable_host_memory_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.property_of(HOST, handle_types=POSIX_FILE_DESCRIPTOR), 0)


@pytest.mark.row("3.4 HOST_NUMA_CURRENT")
@pytest.mark.parametrize("ordinal", [0, 1, -1])
def test_the_current_numa_node_is_no_place(lab, ordinal):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.property_of(HOST_NUMA_CURRENT, ordinal), 0)


@pytest.mark.row("3.4 HOST_NUMA id -1")
def test_a_numa_node_needs_a_number(lab):
    lab.assert_refused(1, lab.api.cuMemCreate, lab.unit, lab.property_of(HOST_NUMA, -1), 0)


@pytest.mark.row("3.4 type MANAGED")
@pytest.mark.unknown("3.4 managed")
def test_managed_memory_is_not_supported(lab):
    lab.assert_refused(801, lab.api.cuMemCreate, lab.unit, lab.property_of(allocation=MANAGED), 0)


@pytest.mark.row("3.4 host memory does not count as the device's")
@pytest.mark.host_only("support depends on the machine")
@pytest.mark.parametrize("kind", [HOST, HOST_NUMA])
def test_host_memory_is_not_taken_from_the_device(lab, kind):
    before = lab.free()
    handle = int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(kind), 0)))
    lab.handles.append(handle)
    assert lab.free() == before
    assert lab.api.live().allocations == 1


@pytest.mark.row("3.5 once per create")
def test_handles_are_not_zero_and_not_used_again(lab):
    seen = set()
    for _ in range(20):
        handle = lab.create()
        lab.release(handle)
        seen.add(handle)
    assert 0 not in seen
    if lab.backing != "device":  # the real driver may use a value again
        assert len(seen) == 20


@pytest.mark.row("3.5 handle 0")
def test_handle_0_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemRelease, 0)


@pytest.mark.row("3.5 over-release, stale handle")
@pytest.mark.host_only("undefined on the real driver")
def test_a_handle_is_released_once_and_a_stale_one_is_named(lab, caplog):
    handle = lab.create()
    lab.release(handle)
    lab.assert_refused(1, lab.api.cuMemRelease, handle)
    assert f"{handle:#x}" in caplog.text
    lab.assert_refused(1, lab.api.cuMemRelease, 1 << 60)


@pytest.mark.row("3.5 valid, still mapped")
def test_released_memory_lives_while_it_is_mapped(lab):
    before = lab.free()
    base = lab.mapped(1)
    lab.release(lab.handles[0])
    assert lab.free() == before - lab.unit
    assert lab.access(base) == 3
    lab.unmap(base)
    assert lab.free() == before


@pytest.mark.row("3.5 release between retain and unmap")
def test_references_and_mappings_hold_memory_alike(lab):
    before = lab.free()
    base = lab.mapped(1)
    handle = lab.handles[0]
    assert int(lab.ok(lab.api.cuMemRetainAllocationHandle(base))) == handle
    lab.ok(lab.api.cuMemRelease(handle))
    lab.unmap(base)
    assert lab.free() == before - lab.unit
    lab.release(handle)
    assert lab.free() == before


@pytest.mark.row("3.11 retain at any address of a mapping")
def test_retain_gives_the_handle_that_was_mapped(lab):
    base = lab.mapped(2)
    for address, handle in (
        (base, lab.handles[0]),
        (base + lab.unit - 1, lab.handles[0]),
        (base + lab.unit, lab.handles[1]),
    ):
        assert int(lab.ok(lab.api.cuMemRetainAllocationHandle(address))) == handle
        lab.ok(lab.api.cuMemRelease(handle))


@pytest.mark.row("3.11 retain where nothing is mapped")
def test_retain_needs_a_mapping(lab):
    base = lab.mapped(1, spare=1)
    lab.assert_refused(1, lab.api.cuMemRetainAllocationHandle, 0)
    lab.assert_refused(1, lab.api.cuMemRetainAllocationHandle, base + lab.unit)


@pytest.mark.row("3.11 retain after the creator released")
def test_retain_revives_a_released_handle(lab):
    base = lab.mapped(1)
    handle = lab.handles[0]
    lab.release(handle)
    assert int(lab.ok(lab.api.cuMemRetainAllocationHandle(base))) == handle
    lab.handles.append(handle)
    other = lab.reserve(1)
    lab.map(other, handle)
    assert lab.attribute("MAPPED", other)


@pytest.mark.row("3.11 retain on plain memory")
@pytest.mark.unknown("3.11 cudaMalloc memory")
def test_plain_memory_has_no_handle(lab):
    address = int(lab.ok(lab.api.cuMemAlloc(lab.unit)))
    lab.assert_refused(1, lab.api.cuMemRetainAllocationHandle, address)
    lab.ok(lab.api.cuMemFree(address))


@pytest.mark.row("3.11 properties of a good handle")
def test_properties_say_where_memory_lies(lab):
    found = lab.ok(lab.api.cuMemGetAllocationPropertiesFromHandle(lab.create()))
    assert (int(found.type), int(found.location.type), int(found.location.id)) == (PINNED, DEVICE, 0)


@pytest.mark.row("3.11 properties of a bad handle")
@pytest.mark.host_only("the real driver may crash on a stale handle")
def test_properties_of_a_stale_handle_are_refused(lab):
    handle = lab.create()
    lab.release(handle)
    lab.assert_refused(1, lab.api.cuMemGetAllocationPropertiesFromHandle, handle)
    lab.assert_refused(1, lab.api.cuMemGetAllocationPropertiesFromHandle, 0)
