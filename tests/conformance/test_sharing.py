"""Export and import of file descriptors, and the legacy handles that virtual memory does not have."""

import os
import subprocess
import sys
import textwrap

import pytest
from cuda.bindings import driver as cuda

NONE, READWRITE = 0, 3
DESCRIPTOR = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
WIN32 = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_WIN32
FABRIC = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC


def exportable(lab, units=1):
    """A handle that can be exported."""
    prop = lab.property_of(handle_types=int(DESCRIPTOR))
    handle = int(lab.ok(lab.api.cuMemCreate(units * lab.unit, prop, 0)))
    lab.handles.append(handle)
    return handle


def export(lab, handle):
    """A descriptor, which the caller closes."""
    return lab.ok(lab.api.cuMemExportToShareableHandle(handle, DESCRIPTOR, 0))


def bring_in(lab, descriptor):
    """A handle for what a descriptor is of."""
    handle = int(lab.ok(lab.api.cuMemImportFromShareableHandle(descriptor, DESCRIPTOR)))
    lab.handles.append(handle)
    return handle


@pytest.fixture
def shared(lab):
    """(handle, descriptor) of one exportable granule."""
    handle = exportable(lab)
    descriptor = export(lab, handle)
    yield handle, descriptor
    os.close(descriptor)


@pytest.mark.row("3.14 attributes: POSIX file descriptors, 103")
def test_the_device_says_that_it_can_export(lab):
    assert lab.ok(lab.api.cuDeviceGetAttribute(cuda.CUdevice_attribute(103), 0)) == 1


@pytest.mark.row("3.12 ALLOWED_HANDLE_TYPES")
def test_a_pointer_tells_how_its_memory_can_be_shared(lab):
    base, handle = lab.reserve(2), exportable(lab)
    lab.map(base, handle)
    lab.map(base + lab.unit, lab.create())
    assert [lab.attribute("ALLOWED_HANDLE_TYPES", base + i * lab.unit) for i in (0, 1)] == [1, 0]


@pytest.mark.row("3.11 properties of a good handle: the types that were asked for")
def test_properties_tell_the_handle_types(lab):
    found = lab.ok(lab.api.cuMemGetAllocationPropertiesFromHandle(exportable(lab)))
    assert int(found.requestedHandleTypes) == int(DESCRIPTOR)


@pytest.mark.row("3.10 export type not requested")
@pytest.mark.parametrize("kind", [DESCRIPTOR, WIN32, FABRIC])
def test_what_was_not_made_for_it_is_not_exported(lab, kind):
    lab.assert_refused(1, lab.api.cuMemExportToShareableHandle, lab.create(), kind, 0)


@pytest.mark.row("3.10 export type not in requestedHandleTypes")
@pytest.mark.parametrize("kind", [WIN32, FABRIC])
def test_a_type_that_was_not_asked_for_is_not_exported(lab, kind):
    lab.assert_refused(1, lab.api.cuMemExportToShareableHandle, exportable(lab), kind, 0)


@pytest.mark.row("3.10 export flags other than 0")
def test_export_takes_no_flags(lab):
    lab.assert_refused(1, lab.api.cuMemExportToShareableHandle, exportable(lab), DESCRIPTOR, 1)


@pytest.mark.row("3.10 export of a stale handle")
@pytest.mark.host_only("the real driver may crash on a stale handle")
def test_a_stale_handle_is_not_exported(lab):
    handle = exportable(lab)
    lab.release(handle)
    lab.assert_refused(1, lab.api.cuMemExportToShareableHandle, handle, DESCRIPTOR, 0)
    lab.assert_refused(1, lab.api.cuMemExportToShareableHandle, 0, DESCRIPTOR, 0)


@pytest.mark.row("3.10 export twice")
def test_each_export_is_a_descriptor_of_its_own(lab, shared):
    handle, first = shared
    second = export(lab, handle)
    assert first != second
    os.close(second)
    os.fstat(first)  # still open


@pytest.mark.row("3.10 export takes no memory")
def test_an_export_costs_no_device_memory(lab):
    handle = exportable(lab)
    before = lab.free()
    os.close(export(lab, handle))
    assert lab.free() == before


@pytest.mark.row("3.10 import: who closes the descriptor")
def test_the_descriptor_stays_the_callers(lab):
    descriptor = export(lab, exportable(lab))
    imported = bring_in(lab, descriptor)
    os.close(descriptor)  # closing right after the import is normal
    base = lab.reserve(1)
    lab.map(base, imported)
    assert lab.attribute("MAPPED", base)


@pytest.mark.row("3.10 import twice, and in the exporter's process")
def test_the_same_descriptor_can_be_imported_again(lab, shared):
    before = lab.free()
    handles = {shared[0], bring_in(lab, shared[1]), bring_in(lab, shared[1])}
    if lab.backing != "device":  # values need not differ on a real one
        assert len(handles) == 3
    assert lab.free() == before  # the same memory, counted once


@pytest.mark.row("3.10 import: an alias at another address")
def test_both_handles_show_the_same_bytes(bytes_lab):
    lab = bytes_lab
    handle = exportable(lab)
    descriptor = export(lab, handle)
    base, imported = lab.reserve(2), bring_in(lab, descriptor)
    os.close(descriptor)
    lab.map(base, handle)
    lab.map(base + lab.unit, imported)
    lab.allow(base, 2)
    lab.write(base + 5, b"the same bytes")
    assert lab.read(base + lab.unit + 5, 14) == b"the same bytes"


@pytest.mark.row("3.10 each import: one reference")
@pytest.mark.host_only("the real driver may crash on a stale handle")
def test_an_import_is_released_once(lab, shared):
    imported = bring_in(lab, shared[1])
    lab.release(imported)
    lab.assert_refused(1, lab.api.cuMemRelease, imported)
    lab.ok(lab.api.cuMemGetAllocationPropertiesFromHandle(shared[0]))


@pytest.mark.row("3.10 access rights of the exporter do not travel")
def test_imported_memory_has_no_access_at_first(lab, shared):
    base, imported = lab.reserve(2), bring_in(lab, shared[1])
    lab.map(base, shared[0])
    lab.allow(base)
    lab.map(base + lab.unit, imported)
    assert [lab.access(base), lab.access(base + lab.unit)] == [READWRITE, NONE]


@pytest.mark.row("3.10 size is not carried by the descriptor")
def test_a_wrong_size_fails_at_the_map(lab):
    descriptor = export(lab, exportable(lab, 2))
    base, imported = lab.reserve(4), bring_in(lab, descriptor)
    os.close(descriptor)
    for units in (1, 3):
        lab.assert_refused(1, lab.api.cuMemMap, base, units * lab.unit, 0, imported, 0)
    lab.map(base, imported, 2)


@pytest.mark.row("3.10 the descriptor keeps memory alive after release")
def test_memory_outlives_its_handle(lab):
    before = lab.free()
    handle = exportable(lab)
    descriptor = export(lab, handle)
    lab.release(handle)
    assert lab.free() == before - lab.unit
    imported = bring_in(lab, descriptor)
    os.close(descriptor)
    assert lab.free() == before - lab.unit
    lab.release(imported)
    assert lab.free() == before


@pytest.mark.row("3.10 memory goes when its last descriptor does")
def test_the_last_descriptor_gives_the_memory_back(lab):
    before = lab.free()
    handle = exportable(lab)
    descriptors = [export(lab, handle), export(lab, handle)]
    lab.release(handle)
    os.close(descriptors.pop())
    assert lab.free() == before - lab.unit
    os.close(descriptors.pop())
    assert lab.free() == before


@pytest.mark.row("3.10 bytes outlive their maker")
def test_bytes_outlive_the_handle_and_the_mapping(bytes_lab):
    lab = bytes_lab
    handle, base = exportable(lab), lab.reserve(1)
    lab.map(base, handle)
    lab.allow(base)
    lab.write(base, b"left behind")
    descriptor = export(lab, handle)
    lab.unmap(base)
    lab.release(handle)
    imported = bring_in(lab, descriptor)
    os.close(descriptor)
    lab.map(base, imported)
    lab.allow(base)
    assert lab.read(base, 11) == b"left behind"


@pytest.mark.row("3.10 import NULL")
def test_nothing_is_not_imported(lab):
    lab.assert_refused(1, lab.api.cuMemImportFromShareableHandle, None, DESCRIPTOR)


@pytest.mark.row("3.10 import of a random descriptor")
@pytest.mark.unknown("3.10 random fd")
def test_a_file_that_is_no_export_is_not_imported(lab, tmp_path):
    (tmp_path / "file").write_bytes(bytes(4096))
    for descriptor in (os.open(tmp_path / "file", os.O_RDWR), os.memfd_create("other")):
        lab.assert_refused(1, lab.api.cuMemImportFromShareableHandle, descriptor, DESCRIPTOR)
        os.close(descriptor)


@pytest.mark.row("3.10 import of an invalid descriptor")
@pytest.mark.host_only("undefined on the real driver")
def test_a_number_that_is_no_descriptor_is_not_imported(lab):
    lab.assert_refused(1, lab.api.cuMemImportFromShareableHandle, 1 << 20, DESCRIPTOR)


@pytest.mark.row("3.10 FABRIC on the wrong channel")
@pytest.mark.host_only("depends on the machine's fabric")
def test_fabric_is_not_imported(lab):
    lab.assert_refused(800, lab.api.cuMemImportFromShareableHandle, None, FABRIC)


@pytest.mark.row("3.4 HOST_NUMA may be exportable, HOST not")
@pytest.mark.host_only("support for host memory depends on the machine")
def test_memory_of_a_numa_node_is_exported_too(lab):
    handle = int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(3, handle_types=1), 0)))
    lab.handles.append(handle)
    descriptor = export(lab, handle)
    found = lab.ok(lab.api.cuMemGetAllocationPropertiesFromHandle(bring_in(lab, descriptor)))
    os.close(descriptor)
    assert int(found.location.type) == 3


@pytest.mark.row("3.10 legacy handles of virtual memory")
def test_virtual_memory_has_no_legacy_handle(lab, caplog):
    base = lab.mapped(1)
    lab.assert_refused(1, lab.api.cuIpcGetMemHandle, base)
    if lab.backing != "device":
        assert "cuMemExportToShareableHandle" in caplog.text
    assert lab.attribute("IS_LEGACY_CUDA_IPC_CAPABLE", base) == 0


CHILD = """
    import sys
    import vmm
    from vmm.choice import open_driver
    from vmm.driver import Driver
    driver, descriptor = open_driver(sys.argv[1]), int(sys.argv[2])
    context = driver.context_retain(0)
    unit = driver.granularity(0)
    handle, base = driver.import_descriptor(descriptor), driver.reserve(unit)
    driver.map(base, unit, handle)
    driver.set_access(base, unit, [(0, vmm.Access.READWRITE)])
    found = bytearray(6)
    with driver.context(context):
        driver.copy_out(found, base, 6)
        driver.copy_in(base + 100, b"child", 5)
        driver.synchronize()
    driver.unmap(base, unit); driver.release(handle); driver.free(base, unit)
    print(found.decode())
"""


@pytest.mark.row("3.10 transport to another process")
def test_another_process_sees_the_bytes_and_answers(bytes_lab):
    lab = bytes_lab
    handle, base = exportable(lab), lab.reserve(1)
    lab.map(base, handle)
    lab.allow(base)
    lab.write(base, b"parent")
    descriptor = export(lab, handle)
    name = "cuda" if lab.backing == "device" else "host"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), name, str(descriptor)],
        pass_fds=[descriptor], capture_output=True, text=True, check=False,
    )  # fmt: skip
    os.close(descriptor)
    assert (done.returncode, done.stdout.strip()) == (0, "parent"), done.stderr
    assert lab.read(base + 100, 5) == b"child"
