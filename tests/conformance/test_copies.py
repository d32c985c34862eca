"""Copies and fills: every byte that is touched must be mapped with enough access, else nothing is written."""

import ctypes
from array import array

import pytest

NONE, READ, READWRITE = 0, 1, 3


@pytest.mark.row("3.13 copy over several adjacent mappings")
def test_a_copy_crosses_mappings(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(3)
    data = bytes(range(256)) * 16
    at = base + lab.unit - 100
    lab.write(at, data)
    assert lab.read(at, len(data)) == data
    assert lab.read(base + lab.unit, 50) == data[100:150]


@pytest.mark.row("2b host side as an address or a buffer")
def test_the_host_side_is_an_address_or_a_buffer(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1)
    source = array("i", range(100))
    lab.ok(lab.api.cuMemcpyHtoD(base, source, 400))
    target = (ctypes.c_int * 100)()
    lab.ok(lab.api.cuMemcpyDtoH(ctypes.addressof(target), base, 400))
    assert list(target) == list(range(100))
    lab.ok(lab.api.cuMemcpyHtoD(base, memoryview(b"abcd"), 4))
    assert lab.read(base, 4) == b"abcd"


@pytest.mark.row("2 no buffer")
def test_what_is_no_buffer_is_a_type_error(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1)
    with pytest.raises(TypeError):
        lab.api.cuMemcpyHtoD(base, [1, 2], 2)


@pytest.mark.row("1 contents survive an unmap and a map")
def test_memory_keeps_its_bytes_while_it_has_no_address(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1, spare=1)
    lab.write(base, b"kept")
    lab.unmap(base)
    lab.map(base + lab.unit, lab.handles[0])
    lab.allow(base + lab.unit)
    assert lab.read(base + lab.unit, 4) == b"kept"


@pytest.mark.row("3.6 aliases show the same bytes")
def test_aliases_show_the_same_bytes(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1, spare=1)
    lab.map(base + lab.unit, lab.handles[0])
    lab.allow(base + lab.unit, 1, READ)
    lab.write(base + 77, b"alias")
    assert lab.read(base + lab.unit + 77, 5) == b"alias"


@pytest.mark.row("3.5 released memory keeps its bytes while it is mapped")
def test_released_memory_is_still_there(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1)
    lab.write(base, b"alive")
    lab.release(lab.handles[0])
    lab.create()
    assert lab.read(base, 5) == b"alive"


@pytest.mark.row("2b copies in every form")
@pytest.mark.parametrize("form", ["cuMemcpy", "cuMemcpyAsync", "cuMemcpyDtoD", "cuMemcpyDtoDAsync"])
def test_device_copies_in_every_form(bytes_lab, form):
    lab = bytes_lab
    base = lab.mapped(2)
    lab.write(base, b"from here")
    stream = (0,) if form.endswith("Async") else ()
    lab.ok(getattr(lab.api, form)(base + lab.unit, base, 9, *stream))
    lab.ok(lab.api.cuCtxSynchronize())
    assert lab.read(base + lab.unit, 9) == b"from here"


@pytest.mark.row("2b copies on a stream of one's own")
def test_asynchronous_copies_run_in_the_order_of_a_stream(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1)
    stream = lab.ok(lab.api.cuStreamCreate(0))
    source, target = lab.ok(lab.api.cuMemAllocHost(8)), lab.ok(lab.api.cuMemAllocHost(8))
    ctypes.memmove(source, b"12345678", 8)
    lab.ok(lab.api.cuMemcpyHtoDAsync(base, source, 8, stream))
    lab.ok(lab.api.cuMemcpyDtoDAsync(base + 8, base, 8, stream))
    lab.ok(lab.api.cuMemcpyDtoHAsync(target, base + 8, 8, stream))
    lab.ok(lab.api.cuStreamSynchronize(stream))
    assert ctypes.string_at(target, 8) == b"12345678"
    for address in (source, target):
        lab.ok(lab.api.cuMemFreeHost(address))
    lab.ok(lab.api.cuStreamDestroy(stream))


@pytest.mark.row("2b cuMemcpy: the side follows from the address")
def test_a_copy_knows_the_side_of_each_address(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1)
    pinned = lab.ok(lab.api.cuMemHostAlloc(4, 0))
    plain = int(lab.ok(lab.api.cuMemAlloc(4)))
    ctypes.memmove(pinned, b"side", 4)
    lab.ok(lab.api.cuMemcpy(base, pinned, 4))
    lab.ok(lab.api.cuMemcpy(plain, base, 4))
    assert lab.read(plain, 4) == b"side"
    lab.ok(lab.api.cuMemFree(plain))
    lab.ok(lab.api.cuMemFreeHost(pinned))


@pytest.mark.row("2b overlapping device copy")
@pytest.mark.host_only("undefined on the real driver")
def test_an_overlapping_copy_is_as_by_memmove(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1)
    lab.write(base, b"abcdef")
    lab.ok(lab.api.cuMemcpyDtoD(base + 2, base, 4))
    assert lab.read(base, 6) == b"ababcd"


@pytest.mark.row("2b n = 0")
def test_copying_nothing_succeeds(lab):
    base = lab.mapped(1)
    for result in (
        lab.api.cuMemcpyHtoD(base, b"", 0),
        lab.api.cuMemcpyDtoD(base, base, 0),
        lab.api.cuMemsetD8(base, 0, 0),
    ):
        assert int(result[0]) == 0


@pytest.mark.row("3.13 HtoD into a READ or NONE mapping")
@pytest.mark.parametrize("access", [NONE, READ])
def test_memory_that_must_not_be_written_is_not_written(lab, access):
    base = lab.mapped(1, access=access)
    lab.assert_refused(1, lab.api.cuMemcpyHtoD, base, b"data", 4)
    lab.allow(base, 1, READWRITE)
    lab.ok(lab.api.cuMemcpyHtoD(base, b"data", 4))  # the context is still usable


@pytest.mark.row("3.13 DtoH from NONE; memset on NONE or READ")
@pytest.mark.unknown("3.13 DtoH from NONE; memset on NONE or READ")
def test_reads_and_fills_need_access_too(lab):
    base = lab.mapped(2, access=NONE)
    lab.assert_refused(1, lab.api.cuMemcpyDtoH, bytearray(4), base, 4)
    lab.assert_refused(1, lab.api.cuMemsetD8, base, 0, 4)
    lab.allow(base, 2, READ)
    lab.ok(lab.api.cuMemcpyDtoH(bytearray(4), base, 4))
    lab.assert_refused(1, lab.api.cuMemsetD8, base, 0, 4)
    lab.assert_refused(1, lab.api.cuMemcpyDtoD, base + lab.unit, base, 4)


@pytest.mark.row("3.13 reserved-unmapped or freed addresses")
@pytest.mark.unknown("3.13 unmapped addresses")
def test_unmapped_addresses_are_not_touched(lab):
    base = lab.reserve(1)
    lab.assert_refused(1, lab.api.cuMemcpyHtoD, base, b"data", 4)
    lab.assert_refused(1, lab.api.cuMemcpyDtoH, bytearray(4), base, 4)
    lab.assert_refused(1, lab.api.cuMemsetD32, base, 0, 4)
    lab.give_back(base)
    lab.assert_refused(1, lab.api.cuMemcpyHtoD, base, b"data", 4)


@pytest.mark.row("3.13 a copy that runs off the mapped end")
@pytest.mark.unknown("3.13 running off the end")
def test_a_copy_that_runs_off_the_end_writes_nothing(bytes_lab):
    lab = bytes_lab
    base = lab.mapped(1, spare=1)
    lab.write(base + lab.unit - 4, b"same")
    lab.assert_refused(1, lab.api.cuMemcpyHtoD, base + lab.unit - 4, b"12345678", 8)
    lab.assert_refused(1, lab.api.cuMemsetD8, base + lab.unit - 4, 0, 5)
    assert lab.read(base + lab.unit - 4, 4) == b"same"


@pytest.mark.row("3.13 asynchronous forms are checked at the call")
@pytest.mark.unknown("3.13 async checks")
def test_asynchronous_forms_are_checked_at_the_call(lab):
    base = lab.mapped(1, access=READ, spare=1)
    lab.assert_refused(1, lab.api.cuMemcpyHtoDAsync, base, b"data", 4, 0)
    lab.assert_refused(1, lab.api.cuMemcpyDtoDAsync, base + lab.unit, base, 4, 0)
    lab.assert_refused(1, lab.api.cuMemsetD8Async, base + lab.unit, 0, 4, 0)


@pytest.mark.row("2b plain memory ends where it was asked to end")
@pytest.mark.host_only("a real allocation may be rounded up")
def test_a_copy_past_plain_memory_is_refused(lab):
    address = int(lab.ok(lab.api.cuMemAlloc(100)))
    lab.ok(lab.api.cuMemsetD8(address, 1, 100))
    lab.assert_refused(1, lab.api.cuMemsetD8, address, 1, 101)
    lab.assert_refused(1, lab.api.cuMemcpyHtoD, address + 99, b"ab", 2)
    lab.ok(lab.api.cuMemFree(address))


@pytest.mark.row("2b a buffer shorter than the copy")
@pytest.mark.host_only("the real driver reads past the buffer")
def test_a_short_buffer_is_refused(lab):
    base = lab.mapped(1)
    lab.assert_refused(1, lab.api.cuMemcpyHtoD, base, b"abc", 4)
    lab.assert_refused(1, lab.api.cuMemcpyDtoH, bytearray(3), base, 4)


@pytest.mark.row("2b memset: N counts elements")
@pytest.mark.parametrize(("form", "value", "expected"), [
    ("cuMemsetD8", 0xAB, b"\xab" * 3), ("cuMemsetD16", 0x1234, b"\x34\x12" * 3),
    ("cuMemsetD32", 0xDEADBEEF, b"\xef\xbe\xad\xde" * 3),
])  # fmt: skip
@pytest.mark.parametrize("later", [False, True])
def test_fills_count_elements(bytes_lab, form, value, expected, later):
    lab = bytes_lab
    base = lab.mapped(1)
    lab.write(base, bytes(16))
    lab.ok(getattr(lab.api, form + "Async")(base, value, 3, 0) if later else getattr(lab.api, form)(base, value, 3))
    assert lab.read(base, 16) == expected.ljust(16, b"\0")


@pytest.mark.row("2b memset: misaligned")
@pytest.mark.parametrize(("form", "by"), [("cuMemsetD16", 1), ("cuMemsetD32", 1), ("cuMemsetD32", 2)])
def test_a_fill_is_aligned_to_its_element(lab, form, by):
    base = lab.mapped(1)
    lab.assert_refused(1, getattr(lab.api, form), base + by, 0, 1)


@pytest.mark.row("2 a value beyond its element")
def test_a_value_beyond_its_element_never_reaches_the_driver(lab):
    base = lab.mapped(1)
    with pytest.raises(OverflowError):
        lab.api.cuMemsetD8(base, 256, 1)


@pytest.mark.row("2b copies need a context")
def test_copies_need_a_context(lab):
    base = lab.mapped(1)
    assert int(lab.elsewhere(lambda: lab.api.cuMemsetD8(base, 0, 4))[0]) == 201
    assert int(lab.elsewhere(lambda: lab.api.cuMemcpyHtoD(base, b"data", 4))[0]) == 201
