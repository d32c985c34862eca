"""Which driver a Device gets when a libcuda is there, why it does not get it, and whose context is current."""

import gc
import os
import warnings

import pytest
from cuda.bindings import driver as cuda

import vmm


def open_device(driver=None):
    """What a user who asks for a device sees: (driver or error, its text, warnings)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with vmm.Device(0, driver=driver) as device:
                found = device.driver.name, repr(device)
        except vmm.VmmError as error:
            found = type(error).__name__, str(error)
    return *found, [(warning.category.__name__, str(warning.message)) for warning in caught]


def test_a_device_with_vmm_is_used_without_being_asked_for(stub):
    for driver in (None, "cuda"):
        found, calls = stub(open_device, driver)
        text = "Device(0: Stub GPU, driver cuda, backing device, 8 GiB, granularity 2 MiB)"
        assert found == ("cuda", text, [])
        assert calls.names()[-1] == "cuDevicePrimaryCtxRelease"


def test_a_device_without_vmm_is_left_for_the_host_driver_with_the_reason(stub):
    reason = "device 0 Stub GPU does not support virtual memory management (attribute 102 is 0); use driver='host'"
    (name, _, warned), calls = stub(open_device, STUB_VMM=0)
    assert (name, warned) == ("host", [("RuntimeWarning", f"falling back to the host driver: {reason}")])
    assert "cuDevicePrimaryCtxRetain" not in calls.names()
    assert stub(open_device, "cuda", STUB_VMM=0)[0] == ("DriverMissingError", reason, [])


def open_second():
    with pytest.raises(vmm.DriverMissingError) as caught:
        vmm.Device(1)
    return str(caught.value)


def test_the_device_that_is_asked_for_is_the_one_that_is_checked(stub):
    text, calls = stub(open_second, STUB_DEVICES=2, STUB_VMM=1)
    assert "device 1 Stub GPU does not support" in text
    assert "cuMemGetAllocationGranularity" not in calls.names()


@pytest.mark.parametrize("settings", [{"STUB_DEVICES": 0}, {"STUB_FAIL": "cuInit:1:100"}], ids=["none", "NO_DEVICE"])
def test_without_a_gpu_the_host_driver_is_taken_silently(stub, settings):
    (name, _, warned), _ = stub(open_device, **settings)
    assert (name, warned) == ("host", [])
    name, text, warned = stub(open_device, "cuda", **settings)[0]
    assert (name, warned) == ("NoGpuError", [])
    assert text.startswith("driver 'cuda' finds no GPU")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("fails", "name"),
    [("cuInit:1:803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), ("cuDeviceGetCount:1:999", "CUDA_ERROR_UNKNOWN")],
)
def test_a_gpu_that_cannot_be_used_is_named_in_a_warning(stub, fails, name):
    (driver, _, warned), _ = stub(open_device, STUB_FAIL=fails)
    assert driver == "host"
    [(kind, text)] = warned
    assert kind == "RuntimeWarning"
    assert text.startswith("falling back to the host driver: driver 'cuda' cannot be used: ")
    assert name in text
    kind, text, _ = stub(open_device, "cuda", STUB_FAIL=fails)[0]
    assert (kind, name in text, "\n" in text) == ("DriverMissingError", True, False)


def test_a_library_that_lacks_a_call_is_named_too(stub):
    (driver, _, [(_, text)]), _ = stub(open_device, STUB_MISSING="cuInit")
    assert driver == "host"
    assert "the NVIDIA driver here has no cuInit; update it, or use driver='host'" in text


def hold_contexts(other):
    """Use all of vmm while the caller's own context is current: which was current after each step, and before."""
    cuda.cuInit(0)
    if other is not None:
        context = cuda.cuDevicePrimaryCtxRetain(other)[1]
        cuda.cuCtxSetCurrent(context)
    seen = [int(cuda.cuCtxGetCurrent()[1])]
    note = lambda: seen.append(int(cuda.cuCtxGetCurrent()[1]))
    device = vmm.Device(0, driver="cuda")
    note()
    memory = vmm.GrowableRange(device, "64 MiB")
    memory.grow("6 MiB")
    note()
    memory.remap(0)
    memory.protect(0, "2 MiB", "r")
    note()
    device.memory_info(), vmm.describe(device, memory.base)
    note()
    device.submit(0, lambda: None, keepalive=None)
    note()
    memory.shrink("4 MiB")
    memory.close()
    note()
    with pytest.raises(vmm.AlignmentError):
        vmm.GrowableRange(device, "64 MiB", chunk="3 MiB")
    device.close()
    note()
    if other is not None:
        cuda.cuDevicePrimaryCtxRelease(other)
    return seen


@pytest.mark.parametrize("other", [None, 0, 1])
def test_case_34_the_callers_current_context_stays(stub, other):
    """None is current, vmm's own device's (another library retained it first), or another device's."""
    seen, calls = stub(hold_contexts, other, STUB_DEVICES=2)
    assert len(set(seen)) == 1
    assert bool(seen[0]) == (other is not None)
    assert len(calls.of("cuDevicePrimaryCtxRetain")) == 1 + (other is not None)
    assert "cuDevicePrimaryCtxReset" not in calls.names()
    assert "cuCtxSetCurrent" not in calls.names()[2 + 2 * (other is not None) :]


def fail_inside_the_context():
    cuda.cuInit(0)
    device = vmm.Device(0, driver="cuda")
    os.environ["STUB_FAIL"] = "cuCtxSynchronize:1:700,cuMemGetInfo:1:999"
    with pytest.raises(vmm.DriverError, match="CUDA_ERROR_UNKNOWN"):
        device.memory_info()
    with pytest.raises(vmm.DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        device.close()
    device.close()
    return int(cuda.cuCtxGetCurrent()[1])


def test_an_error_inside_leaves_the_context_as_it_was_and_close_releases_it(stub):
    current, calls = stub(fail_inside_the_context)
    assert current == 0
    assert calls.names()[-2:] == ["cuDevicePrimaryCtxRelease", "cuCtxGetCurrent"]  # by close, not by the end


def drop_a_device():
    vmm.Device(0, driver="cuda")
    gc.collect()


def test_a_dropped_device_gives_its_context_back(stub):
    _, calls = stub(drop_a_device)
    assert calls.names()[-1] == "cuDevicePrimaryCtxRelease"


def first_and_second(first):
    """Two libraries use the device, vmm and another that retained the context too; one ends before the other."""
    cuda.cuInit(0)
    other = lambda: cuda.cuDevicePrimaryCtxRetain(0)
    if first == "other":
        other()
    device = vmm.Device(0, driver="cuda")
    if first == "vmm":
        other()
    device.close()
    cuda.cuDevicePrimaryCtxRelease(0)


@pytest.mark.parametrize("first", ["other", "vmm"])
def test_case_34_whichever_library_was_first(stub, first):
    _, calls = stub(first_and_second, first)
    pair = ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease")
    assert calls.names(*pair) == [pair[0]] * 2 + [pair[1]] * 2
    assert [call.code for call in calls.of(pair[1])] == [0, 0]
