"""Whose memory is an address: attributes, ranges, and plain and pinned memory in the same address space."""

import pytest
from cuda.bindings import driver as cuda

HOST_MEMORY, DEVICE_MEMORY = 1, 2


def which(name):
    return getattr(cuda.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")


@pytest.fixture
def plain(lab):
    """1000 bytes of plain device memory."""
    address = int(lab.ok(lab.api.cuMemAlloc(1000)))
    yield address
    lab.ok(lab.api.cuMemFree(address))


@pytest.fixture
def pinned(lab):
    """1000 bytes of pinned host memory."""
    address = int(lab.ok(lab.api.cuMemHostAlloc(1000, 0)))
    yield address
    lab.ok(lab.api.cuMemFreeHost(address))


@pytest.mark.row("3.12 RANGE_START_ADDR, RANGE_SIZE")
def test_the_range_is_the_whole_reservation(lab):
    base = lab.mapped(1, spare=3)
    for address in (base, base + lab.unit - 1, base + lab.unit, base + 4 * lab.unit - 1):
        assert int(lab.attribute("RANGE_START_ADDR", address)) == base
        assert lab.attribute("RANGE_SIZE", address) == 4 * lab.unit


@pytest.mark.row("3.12 MAPPED")
def test_mapped_is_false_without_an_error_where_only_addresses_are(lab):
    base = lab.mapped(1, spare=1)
    assert lab.attribute("MAPPED", base) is True
    assert lab.attribute("MAPPED", base + lab.unit) is False


@pytest.mark.row("3.12 cuMemGetAddressRange: the single mapping")
def test_the_address_range_is_one_mapping(lab):
    base = lab.reserve(4)
    lab.map(base, lab.create())
    lab.map(base + lab.unit, lab.create(2), 2)
    found, size = lab.ok(lab.api.cuMemGetAddressRange(base + 2 * lab.unit + 5))
    assert (int(found), size) == (base + lab.unit, 2 * lab.unit)
    found, size = lab.ok(lab.api.cuMemGetAddressRange(base))
    assert (int(found), size) == (base, lab.unit)


@pytest.mark.row("3.12 MAPPING_BASE_ADDR, MAPPING_SIZE")
@pytest.mark.unknown("3.12 MAPPING attributes")
def test_the_mapping_attributes_are_of_one_mapping(lab):
    base = lab.mapped(3)
    assert int(lab.attribute("MAPPING_BASE_ADDR", base + 2 * lab.unit - 1)) == base + lab.unit
    assert lab.attribute("MAPPING_SIZE", base + 2 * lab.unit - 1) == lab.unit


@pytest.mark.row("3.12 cuMemGetAddressRange where nothing is mapped")
@pytest.mark.unknown("3.12 address range of unmapped or foreign")
def test_the_address_range_of_unmapped_and_foreign_addresses(lab):
    base = lab.reserve(1)
    lab.assert_refused(1, lab.api.cuMemGetAddressRange, base)
    lab.assert_refused(500, lab.api.cuMemGetAddressRange, 64)


@pytest.mark.row("3.12 cuPointerGetAttribute, invalid ptr")
def test_one_attribute_of_a_foreign_address_is_refused(lab):
    lab.assert_refused(1, lab.api.cuPointerGetAttribute, which("RANGE_SIZE"), 64)


@pytest.mark.row("3.12 cuPointerGetAttributes, invalid ptr")
def test_several_attributes_of_a_foreign_address_are_null(lab):
    names = [which(name) for name in ("RANGE_SIZE", "RANGE_START_ADDR", "MEMORY_TYPE", "CONTEXT", "MAPPED")]
    values = lab.ok(lab.api.cuPointerGetAttributes(len(names), names, 64))
    assert [int(value) for value in values] == [0, 0, 0, 0, 0]


@pytest.mark.row("2 cuPointerGetAttributes: a list as long as said")
def test_the_plural_form_reads_as_many_as_it_is_told(lab):
    base = lab.mapped(1)
    names = [which("RANGE_SIZE"), which("MAPPED")]
    assert lab.ok(lab.api.cuPointerGetAttributes(1, names, base)) == [lab.unit]
    with pytest.raises(RuntimeError):
        lab.api.cuPointerGetAttributes(3, names, base)


@pytest.mark.row("3.12 CONTEXT of mapped memory")
@pytest.mark.unknown("3.12 CONTEXT")
def test_mapped_memory_belongs_to_no_context(lab):
    assert int(lab.attribute("CONTEXT", lab.mapped(1))) == 0


@pytest.mark.row("3.12 DEVICE_ORDINAL, MEMORY_TYPE")
def test_mapped_memory_is_the_devices(lab):
    base = lab.mapped(1)
    assert lab.attribute("DEVICE_ORDINAL", base) == 0
    assert lab.attribute("MEMORY_TYPE", base) == DEVICE_MEMORY


@pytest.mark.row("3.12 IS_LEGACY_CUDA_IPC_CAPABLE")
def test_mapped_memory_has_no_legacy_handle(lab):
    assert not lab.attribute("IS_LEGACY_CUDA_IPC_CAPABLE", lab.mapped(1))


@pytest.mark.row("3.12 ALLOWED_HANDLE_TYPES")
def test_the_handle_types_are_those_that_were_asked_for(lab):
    assert lab.attribute("ALLOWED_HANDLE_TYPES", lab.mapped(1)) == 0


@pytest.mark.row("3.12 ACCESS_FLAGS")
@pytest.mark.parametrize("access", [0, 1, 3])
def test_the_access_flags_are_those_that_were_set(lab, access):
    assert lab.attribute("ACCESS_FLAGS", lab.mapped(1, access=access)) == access


@pytest.mark.row("3.12 BUFFER_ID")
@pytest.mark.unknown("3.12 BUFFER_ID")
def test_aliases_share_a_buffer_id_and_others_do_not(lab):
    base = lab.mapped(2, spare=1)
    lab.map(base + 2 * lab.unit, lab.handles[0])
    first, second, alias = (lab.attribute("BUFFER_ID", base + i * lab.unit) for i in range(3))
    assert first == alias != second


@pytest.mark.row("2b plain memory in the one address space")
def test_plain_memory_answers_for_itself(lab, plain):
    assert (int(lab.attribute("RANGE_START_ADDR", plain + 999)), lab.attribute("RANGE_SIZE", plain + 999)) == (
        plain,
        1000,
    )
    assert lab.attribute("MEMORY_TYPE", plain) == DEVICE_MEMORY
    assert int(lab.attribute("CONTEXT", plain)) == int(lab.context)
    found, size = lab.ok(lab.api.cuMemGetAddressRange(plain + 999))
    assert (int(found), size) == (plain, 1000)


@pytest.mark.row("2b pinned host memory in the one address space")
def test_pinned_memory_answers_as_the_hosts(lab, pinned):
    assert lab.attribute("MEMORY_TYPE", pinned + 999) == HOST_MEMORY
    assert int(lab.attribute("HOST_POINTER", pinned)) == pinned
    assert int(lab.attribute("DEVICE_POINTER", pinned)) == pinned


@pytest.mark.row("2b nothing overlaps")
def test_reservations_plain_and_pinned_memory_never_overlap(lab, plain, pinned):
    base = lab.reserve(8)
    for start in (plain, pinned):
        assert start + 1000 <= base or start >= base + 8 * lab.unit
        lab.assert_refused(1, lab.api.cuMemMap, start // lab.unit * lab.unit, lab.unit, 0, lab.create(), 0)


@pytest.mark.row("2b cuMemAlloc: counts, size 0")
def test_plain_memory_counts_and_comes_back(lab):
    before = lab.free()
    address = int(lab.ok(lab.api.cuMemAlloc(3 * lab.unit)))
    assert lab.free() <= before - 3 * lab.unit
    lab.ok(lab.api.cuMemFree(address))
    assert lab.free() == before
    lab.assert_refused(1, lab.api.cuMemAlloc, 0)


@pytest.mark.row("2b cuMemAlloc: no memory")
def test_plain_memory_runs_out(lab):
    lab.assert_refused(2, lab.api.cuMemAlloc, lab.free() + lab.unit)


@pytest.mark.row("2b cuMemFree of a foreign or interior pointer")
@pytest.mark.host_only("an invalid free may poison the real context")
def test_plain_memory_is_freed_by_its_first_address(lab, plain, pinned):
    base = lab.mapped(1)
    for address in (plain + 1, 64, base, pinned):
        lab.assert_refused(1, lab.api.cuMemFree, address)
    for address in (pinned + 1, 64, base, plain):
        lab.assert_refused(1, lab.api.cuMemFreeHost, address)


@pytest.mark.row("2b cuMemFree twice")
@pytest.mark.host_only("an invalid free may poison the real context")
def test_plain_memory_is_freed_once(lab):
    address = int(lab.ok(lab.api.cuMemAlloc(16)))
    lab.ok(lab.api.cuMemFree(address))
    lab.assert_refused(1, lab.api.cuMemFree, address)


@pytest.mark.row("2b plain memory is not unmapped, given access, or freed as addresses")
def test_virtual_memory_calls_refuse_plain_memory(lab, plain):
    lab.assert_refused(1, lab.api.cuMemUnmap, plain, lab.unit)
    lab.assert_refused(1, lab.api.cuMemSetAccess, plain, lab.unit, [lab.grant()], 1)
    lab.assert_refused(1, lab.api.cuMemAddressFree, plain, 1000)


@pytest.mark.row("2b cuMemHostAlloc: size 0, flags")
def test_pinned_memory_needs_a_size(lab):
    lab.assert_refused(1, lab.api.cuMemHostAlloc, 0, 0)
    lab.assert_refused(1, lab.api.cuMemAllocHost, 0)
    lab.assert_refused(1, lab.api.cuMemHostAlloc, 16, 1 << 20)


@pytest.mark.row("2b pinned host memory is not the device's")
def test_pinned_memory_is_not_taken_from_the_device(lab):
    before = lab.free()
    address = lab.ok(lab.api.cuMemAllocHost(lab.unit))
    assert before - lab.free() < lab.unit
    lab.ok(lab.api.cuMemFreeHost(address))


@pytest.mark.row("2b plain memory needs a context")
@pytest.mark.parametrize("call", ["cuMemAlloc", "cuMemAllocHost"])
def test_plain_memory_needs_a_context(lab, call):
    result = lab.elsewhere(lambda: getattr(lab.api, call)(16))
    assert (int(result[0]), result[1]) == (201, None)
