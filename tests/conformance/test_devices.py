"""Initialisation, devices, contexts, error names."""

import pytest
from cuda.bindings import driver as cuda

VMM_SUPPORTED = 102


@pytest.mark.row("2b cuInit: flags other than 0")
def test_init_takes_no_flags(lab):
    lab.assert_refused(1, lab.api.cuInit, 1)
    assert int(lab.api.cuInit(0)[0]) == 0


@pytest.mark.row("2b cuDriverGetVersion")
def test_the_version_is_a_number_such_as_13040(lab):
    version = lab.ok(lab.api.cuDriverGetVersion())
    assert 11000 <= version < 100000
    assert version % 10 == 0


@pytest.mark.row("2b cuDeviceGet: an ordinal beyond the last")
def test_devices_are_numbered_from_0(lab):
    count = lab.ok(lab.api.cuDeviceGetCount())
    assert [int(lab.ok(lab.api.cuDeviceGet(ordinal))) for ordinal in range(count)] == list(range(count))
    lab.assert_refused(101, lab.api.cuDeviceGet, count)
    lab.assert_refused(101, lab.api.cuDeviceGet, -1)


@pytest.mark.row("2b cuDeviceGetName: padded with NUL")
def test_a_name_fills_the_length_with_nul(lab):
    name = lab.ok(lab.api.cuDeviceGetName(64, 0))
    assert len(name) == 64
    text, _, rest = name.partition(b"\0")
    assert text
    assert not rest.strip(b"\0")


@pytest.mark.row("2b cuDeviceGetName: a device that is not there")
def test_questions_about_a_device_that_is_not_there(lab):
    for call, *arguments in (
        (lab.api.cuDeviceGetName, 64),
        (lab.api.cuDeviceTotalMem,),
        (lab.api.cuDeviceGetAttribute, cuda.CUdevice_attribute(VMM_SUPPORTED)),
        (lab.api.cuDevicePrimaryCtxRetain,),
        (lab.api.cuDevicePrimaryCtxRelease,),
    ):
        lab.assert_refused(101, call, *arguments, 99)
    lab.assert_refused(101, lab.api.cuDeviceCanAccessPeer, 0, 99)


@pytest.mark.row("3 common: attribute 102")
def test_the_device_supports_virtual_memory(lab):
    assert lab.ok(lab.api.cuDeviceGetAttribute(cuda.CUdevice_attribute(VMM_SUPPORTED), 0)) == 1


@pytest.mark.row("2b cuDeviceTotalMem agrees with cuMemGetInfo")
def test_total_memory_is_one_number(lab):
    free, total = lab.ok(lab.api.cuMemGetInfo())
    assert 0 < free <= total
    assert total <= lab.ok(lab.api.cuDeviceTotalMem(0))


@pytest.mark.row("2b cuDevicePrimaryCtxRetain: one context a device, counted")
def test_the_primary_context_is_one_and_counted(lab):
    again = lab.ok(lab.api.cuDevicePrimaryCtxRetain(0))
    assert int(again) == int(lab.context) != 0
    lab.ok(lab.api.cuDevicePrimaryCtxRelease(0))
    assert lab.free() > 0  # the first reference holds it


@pytest.mark.row("2b cuDevicePrimaryCtxRelease: below zero")
@pytest.mark.host_only("other libraries may hold the primary context of a real device")
def test_the_primary_context_is_not_released_twice(lab):
    lab.ok(lab.api.cuDevicePrimaryCtxRelease(0))
    assert int(lab.api.cuDevicePrimaryCtxRelease(0)[0]) == 201
    assert int(lab.api.cuMemGetInfo()[0]) == 201
    lab.ok(lab.api.cuDevicePrimaryCtxRetain(0))
    assert lab.free() > 0


@pytest.mark.row("2b cuCtxPushCurrent, cuCtxPopCurrent: a stack a thread")
def test_contexts_are_a_stack(lab):
    assert int(lab.ok(lab.api.cuCtxGetCurrent())) == int(lab.context)
    lab.ok(lab.api.cuCtxPushCurrent(lab.context))
    assert int(lab.ok(lab.api.cuCtxPopCurrent())) == int(lab.context)
    assert int(lab.ok(lab.api.cuCtxGetDevice())) == 0


@pytest.mark.row("2b cuCtxGetCurrent: 0 where there is none")
def test_another_thread_has_no_context(lab):
    assert int(lab.ok(lab.elsewhere(lab.api.cuCtxGetCurrent))) == 0


@pytest.mark.row("2b cuCtxPopCurrent, GetDevice, Synchronize: without a context")
@pytest.mark.parametrize("call", ["cuCtxPopCurrent", "cuCtxGetDevice", "cuCtxSynchronize"])
def test_calls_on_the_current_context_need_one(lab, call):
    result = lab.elsewhere(getattr(lab.api, call))
    assert int(result[0]) == 201
    assert all(output is None for output in result[1:])


@pytest.mark.row("2b cuCtxSetCurrent: replaces the top")
def test_set_current_replaces_the_top(lab):
    def there_and_back():
        lab.ok(lab.api.cuCtxSetCurrent(lab.context))
        held = int(lab.ok(lab.api.cuCtxGetCurrent()))
        lab.ok(lab.api.cuCtxSetCurrent(0))
        return held, int(lab.ok(lab.api.cuCtxGetCurrent()))

    assert lab.elsewhere(there_and_back) == (int(lab.context), 0)


@pytest.mark.row("3 common: cuMemGetInfo without a context")
def test_memory_info_needs_a_context(lab):
    result = lab.elsewhere(lab.api.cuMemGetInfo)
    assert (int(result[0]), *result[1:]) == (201, None, None)


@pytest.mark.row("3 common: no virtual memory call needs a context")
def test_virtual_memory_calls_need_no_context(lab):
    def whole_life():
        base = lab.mapped(2)
        lab.unmap(base, 2)
        while lab.handles:
            lab.release(lab.handles[0])
        lab.give_back(base)
        return base

    assert lab.elsewhere(whole_life) > 0
    assert not lab.mappings
    assert not lab.reservations


@pytest.mark.row("2b cuGetErrorName, cuGetErrorString")
def test_errors_have_names(lab):
    assert lab.ok(lab.api.cuGetErrorName(cuda.CUresult(2))) == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert lab.ok(lab.api.cuGetErrorName(cuda.CUresult(0))) == b"CUDA_SUCCESS"
    assert b"memory" in lab.ok(lab.api.cuGetErrorString(cuda.CUresult(2)))
