"""Each call of vmm's driver through the real bindings, and the bytes that a libcuda is given.

What they must be is in the driver API's reference: the order of the arguments, their widths, and the structs.
"""

import ctypes
import struct

import pytest

import vmm
from vmm.choice import open_driver

UNIT = 2 << 20
PINNED_MEMORY, DEVICE = 1, 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
STREAM = 0x57E4_1234_5670  # streams are pointers: wider than 32 bits


def u64(*values):
    return tuple(struct.pack("=Q", value) for value in values)


def i32(*values):
    return tuple(struct.pack("=i", value) for value in values)


def prop(device, handle_types=0):
    """CUmemAllocationProp: type, handle types, location (type, id), Windows' pointer, flags and reserved bytes."""
    return struct.pack("=iiiiQBBH4x", PINNED_MEMORY, handle_types, DEVICE, device, 0, 0, 0, 0)


def grant(device, access):
    """CUmemAccessDesc: location (type, id), flags."""
    return struct.pack("=iii", DEVICE, device, access)


def ask_device():
    driver = open_driver("cuda")
    facts = driver.version(), driver.device_count(), driver.device_name(1), driver.device_total(1)
    return *facts, driver.device_attribute(1, 75), driver.can_access_peer(1, 0)


def test_questions_about_a_device(stub):
    answers, calls = stub(ask_device, STUB_DEVICES=2)
    assert answers == (13040, 2, "Stub GPU", 8 << 30, 9, True)
    assert calls.args("cuInit") == [i32(0)]
    assert calls.args("cuDriverGetVersion") == calls.args("cuDeviceGetCount")[:1] == [()]
    assert set(calls.args("cuDeviceGet")) == {i32(0), i32(1)}
    assert calls.args("cuDeviceGetName")[-1] == i32(256, 1)
    assert calls.args("cuDeviceTotalMem") == [i32(1)]
    assert calls.args("cuDeviceGetAttribute")[-1] == i32(75, 1)
    assert calls.args("cuDeviceCanAccessPeer") == [i32(1, 0)]


def enter_context():
    driver = open_driver("cuda")
    context = driver.context_retain(1)
    with driver.context(context):
        driver.synchronize()
        info = driver.memory_info()
    driver.context_release(1)
    return context, info


def test_the_context_is_a_pointer_and_is_released_by_device(stub):
    (context, info), calls = stub(enter_context, STUB_DEVICES=2)
    assert context > 1 << 32
    assert info == (8 << 30, 8 << 30)
    assert calls.args("cuDevicePrimaryCtxRetain") == calls.args("cuDevicePrimaryCtxRelease") == [i32(1)]
    assert calls.args("cuCtxPushCurrent") == [u64(context)]
    assert [call.out for call in calls.of("cuCtxPopCurrent")] == [context]
    inside = ["cuCtxPushCurrent", "cuCtxSynchronize", "cuMemGetInfo", "cuCtxPopCurrent"]
    assert calls.names(*inside) == inside


def map_and_unmap():
    driver = open_driver("cuda")
    units = driver.granularity(1), driver.granularity(1, recommended=True)
    base = driver.reserve(4 * UNIT, alignment=8 * UNIT, hint=0x7000_0000_0000)
    handles = driver.create(1, 2 * UNIT), driver.create(0, UNIT, exportable=True)
    driver.map(base, 2 * UNIT, handles[0])
    driver.set_access(base, 2 * UNIT, [(1, vmm.Access.READWRITE), (0, vmm.Access.READ)])
    driver.set_access(base, 2 * UNIT, [(0, vmm.Access.NONE)])
    seen = driver.get_access(1, base + UNIT)
    driver.unmap(base, 2 * UNIT)
    for handle in handles:
        driver.release(handle)
    driver.free(base, 4 * UNIT)
    return units, base, handles, seen


def test_the_virtual_memory_calls(stub):
    (units, base, handles, seen), calls = stub(map_and_unmap, STUB_DEVICES=2)
    assert units == (UNIT, 2 * UNIT)
    assert min(base, *handles) > 1 << 32
    assert base % (8 * UNIT) == 0
    assert seen is vmm.Access.READWRITE
    assert calls.args("cuMemGetAllocationGranularity") == [(prop(1), *i32(0)), (prop(1), *i32(1))]
    assert calls.args("cuMemAddressReserve") == [u64(4 * UNIT, 8 * UNIT, 0x7000_0000_0000, 0)]
    assert calls.args("cuMemCreate") == [
        (*u64(2 * UNIT), prop(1), *u64(0)),
        (*u64(UNIT), prop(0, handle_types=1), *u64(0)),
    ]
    assert calls.args("cuMemMap") == [u64(base, 2 * UNIT, 0, handles[0], 0)]
    assert calls.args("cuMemSetAccess") == [
        (*u64(base, 2 * UNIT), grant(1, 3) + grant(0, 1), *u64(2)),
        (*u64(base, 2 * UNIT), grant(0, 0), *u64(1)),
    ]
    assert calls.args("cuMemGetAccess") == [(struct.pack("=ii", DEVICE, 1), *u64(base + UNIT))]
    assert calls.args("cuMemUnmap") == [u64(base, 2 * UNIT)]
    assert calls.args("cuMemRelease") == [u64(handles[0]), u64(handles[1])]
    assert calls.args("cuMemAddressFree") == [u64(base, 4 * UNIT)]


def allocate_plainly():
    driver = open_driver("cuda")
    with driver.context(driver.context_retain(0)):
        addresses = driver.alloc(3 * 4096), driver.host_alloc(4096)
        free = driver.memory_info()[0]
        driver.alloc_free(addresses[0])
        driver.host_free(addresses[1])
    driver.context_release(0)
    return addresses, free


def test_plain_and_pinned_memory(stub):
    ((device, host), free), calls = stub(allocate_plainly)
    assert free == (8 << 30) - 3 * 4096
    assert calls.args("cuMemAlloc") == [u64(3 * 4096)]
    assert calls.args("cuMemHostAlloc") == [(*u64(4096), *i32(0))]
    assert (calls.args("cuMemFree"), calls.args("cuMemFreeHost")) == ([u64(device)], [u64(host)])


def move_bytes():
    driver = open_driver("cuda")
    found, array = bytearray(8), (ctypes.c_char * 8)(*b"from C. ")
    with driver.context(driver.context_retain(0)):
        at = driver.alloc(4096)
        driver.copy_in(at, b"buffer, ", 8)
        driver.copy_in(at + 8, ctypes.addressof(array), 8)
        driver.copy_async(at + 4096 - 16, at, 16, STREAM)
        driver.copy_out(found, at + 4096 - 8, 8)
        driver.copy_out(ctypes.addressof(array), at + 4096 - 16, 8)
        driver.fill_async(at, 0xA5, 4000, STREAM)
        driver.fill_async(at, 0, 1)
        filled = bytearray(2)
        driver.copy_out(filled, at, 2)
        driver.alloc_free(at)
    driver.context_release(0)
    return at, ctypes.addressof(array), bytes(found), array.raw, bytes(filled)


def test_copies_and_fills(stub):
    (at, array, found, changed, filled), calls = stub(move_bytes)
    assert (found, changed, filled) == (b"from C. ", b"buffer, ", b"\0\xa5")
    buffered, plain = calls.args("cuMemcpyHtoD")
    assert (buffered[0], buffered[2]) == u64(at, 8)
    assert plain == u64(at + 8, array, 8)
    assert calls.args("cuMemcpyDtoDAsync") == [u64(at + 4096 - 16, at, 16, STREAM)]
    assert calls.args("cuMemcpyDtoH")[0][1:] == u64(at + 4096 - 8, 8)
    assert calls.args("cuMemcpyDtoH")[1] == u64(array, at + 4096 - 16, 8)
    assert calls.args("cuMemsetD8Async") == [
        (*u64(at), b"\xa5", *u64(4000, STREAM)),
        (*u64(at), b"\0", *u64(1, 0)),
    ]


def move_pinned_bytes():
    driver = open_driver("cuda")
    with driver.context(driver.context_retain(0)):
        device, host = driver.alloc(4096), driver.host_alloc(4096)
        driver.fill_async(device, 0x5A, 4096)
        driver.copy_out_async(host, device, 64, STREAM)
        driver.fill_async(device, 0, 4096)
        driver.copy_in_async(device + 128, host, 32, STREAM)
        found = bytearray(33)
        driver.copy_out(found, device + 128, 33)
        driver.host_free(host)
        driver.alloc_free(device)
    driver.context_release(0)
    return device, host, bytes(found)


def test_copies_to_pinned_memory_and_back(stub):
    (device, host, found), calls = stub(move_pinned_bytes)
    assert found == b"\x5a" * 32 + b"\0"
    assert calls.args("cuMemcpyDtoHAsync") == [u64(host, device, 64, STREAM)]
    assert calls.args("cuMemcpyHtoDAsync") == [u64(device + 128, host, 32, STREAM)]


def wait_for_work():
    driver = open_driver("cuda")
    with driver.context(driver.context_retain(0)):
        event = driver.event_record(STREAM)
        done = driver.event_done(event), driver.event_done(event)
        driver.event_synchronize(event)
        driver.stream_synchronize(STREAM)
        driver.stream_synchronize(0)
        driver.event_destroy(event)
    driver.context_release(0)
    return event, done


def test_events_and_streams(stub):
    (event, done), calls = stub(wait_for_work, STUB_PENDING=1)
    assert event > 1 << 32
    assert done == (False, True)  # the first query found the work pending
    assert calls.args("cuEventCreate") == [i32(2)]  # CU_EVENT_DISABLE_TIMING
    assert calls.args("cuEventRecord") == [u64(event, STREAM)]
    assert [(call.args, call.code) for call in calls.of("cuEventQuery")] == [(u64(event), 600), (u64(event), 0)]
    assert calls.args("cuEventSynchronize") == [u64(event)]
    assert calls.args("cuStreamSynchronize") == [u64(STREAM), u64(0)]
    assert calls.args("cuEventDestroy") == [u64(event)]


def share_memory():
    driver = open_driver("cuda")
    base, handle = driver.reserve(UNIT), driver.create(0, UNIT, exportable=True)
    driver.map(base, UNIT, handle)
    descriptor = driver.export_descriptor(handle)
    handles = handle, driver.retain(base), driver.import_descriptor(descriptor)
    driver.unmap(base, UNIT)
    for each in handles:
        driver.release(each)
    driver.free(base, UNIT)
    return base, handles, descriptor


def test_a_descriptor_is_exported_as_an_int_and_imported_by_value(stub):
    (base, handles, descriptor), calls = stub(share_memory)
    assert len(set(handles)) == 1  # one allocation, three references
    assert calls.of("cuMemExportToShareableHandle")[0].out == descriptor
    assert calls.args("cuMemExportToShareableHandle") == [(*u64(handles[0]), *i32(1), *u64(0))]
    assert calls.args("cuMemImportFromShareableHandle") == [(*u64(descriptor), *i32(1))]
    assert calls.args("cuMemRetainAllocationHandle") == [u64(base)]
    assert calls.args("cuMemRelease") == [u64(handles[0])] * 3


def ask_for_legacy_handles():
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, UNIT) as memory:
        memory.commit([0])
        with device.current():
            plain = device.driver.alloc(4096)
            handle = device.driver.legacy_ipc_handle(plain)
            device.driver.alloc_free(plain)
        with pytest.raises(vmm.DriverError, match="mapped memory has no legacy handle"):
            device.driver.legacy_ipc_handle(memory.base)
        return handle, plain, memory.base


def test_a_legacy_handle_is_64_bytes_and_only_plain_memory_has_one(stub):
    (handle, plain, base), calls = stub(ask_for_legacy_handles)
    assert handle == b"\x5a" * 64
    assert calls.args("cuIpcGetMemHandle") == [u64(plain), u64(base)]


def describe_memory():
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, 4 * UNIT) as memory:
        memory.commit([1])
        with device.current():
            plain, host = device.driver.alloc(4096), device.driver.host_alloc(8192)
        asked = memory.base, memory.base + UNIT + 5, plain + 7, host, 4096
        owners = [vmm.describe(device, address) for address in asked]
        with device.current():
            device.driver.alloc_free(plain)
            device.driver.host_free(host)
        return asked, owners


def test_pointer_attributes(stub):
    ((base, inside, plain, host, foreign), owners), calls = stub(describe_memory)
    assert owners == [
        vmm.Owner(base, "vmm", base, 4 * UNIT),
        vmm.Owner(inside, "vmm", base, 4 * UNIT, True, 0, vmm.Access.READWRITE, base + UNIT, UNIT),
        vmm.Owner(plain, "device", plain - 7, 4096, True, 0, vmm.Access.READWRITE, plain - 7, 4096),
        vmm.Owner(host, "host", host, 8192, True, 0, vmm.Access.READWRITE, host, 8192),
        vmm.Owner(foreign, "foreign"),
    ]
    # MEMORY_TYPE, CONTEXT, RANGE_START_ADDR, RANGE_SIZE, MAPPED, DEVICE_ORDINAL, ACCESS_FLAGS, MAPPING_BASE_ADDR,
    # MAPPING_SIZE, MEMPOOL_HANDLE, by cuda.h's numbers
    attributes = b"".join(i32(2, 1, 11, 12, 13, 9, 16, 19, 18, 17))
    assert calls.args("cuPointerGetAttributes")[1] == (*i32(10), attributes, *u64(inside))
