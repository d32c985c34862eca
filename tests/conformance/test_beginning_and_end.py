"""Before cuInit, after the driver has gone, in a forked child; and what a driver without a feature says."""

import ctypes
import os

import pytest
from cuda.bindings import driver as cuda

from vmm.host import HostDriver
from vmm.host.gate import OPEN_FUNCTIONS, OUTPUTS

NOT_SUPPORTED = 801
ABSENT = {
    "cuMulticastCreate": (None,),
    "cuMulticastAddDevice": (0, 0),
    "cuMulticastBindMem": (0, 0, 0, 0, 0, 0),
    "cuMulticastBindAddr": (0, 0, 0, 0, 0),
    "cuMulticastUnbind": (0, 0, 0, 0),
    "cuMulticastGetGranularity": (None, 0),
    "cuMemMapArrayAsync": (None, 0, 0),
    "cuMemGetHandleForAddressRange": (0, 0, 1, 0),
}


@pytest.fixture
def fresh():
    """A driver that was not initialised yet."""
    return HostDriver(memory="16 MiB", backing="none")


@pytest.mark.row("3 common: before cuInit")
@pytest.mark.parametrize("call", ["cuMemAddressReserve", "cuMemCreate", "cuCtxGetCurrent", "cuMemGetInfo"])
def test_before_init_nothing_is_there(fresh, call):
    assert getattr(fresh, call)(0) == (3, *(None,) * OUTPUTS[call])


@pytest.mark.row("3 common: at driver teardown")
@pytest.mark.parametrize("call", ["cuInit", "cuMemAddressReserve", "cuMemUnmap", "cuDevicePrimaryCtxRelease"])
def test_a_driver_that_has_gone_says_so(fresh, call):
    fresh.cuInit(0)
    fresh.shut_down()
    assert int(getattr(fresh, call)(0)[0]) == 4


@pytest.mark.row("2b cuDriverGetVersion needs no cuInit")
def test_some_questions_are_always_answered(fresh):
    fresh.cuInit(0)
    fresh.shut_down()
    assert "cuDriverGetVersion" in OPEN_FUNCTIONS
    assert int(fresh.cuDriverGetVersion()[0]) == 0
    assert fresh.cuGetErrorName(cuda.CUresult(4)) == (0, b"CUDA_ERROR_DEINITIALIZED")


@pytest.mark.row("3 common: in a child forked after the parent initialised")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.host_only("a forked child of a GPU's process may not end cleanly")
def test_a_forked_child_has_no_driver(fresh):
    fresh.cuInit(0)
    child = os.fork()
    if not child:
        codes = {int(call(0)[0]) for call in (fresh.cuInit, fresh.cuMemCreate, fresh.cuMemRelease)}
        os._exit(0 if codes == {3} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert int(fresh.cuDeviceGetCount()[0]) == 0


@pytest.mark.row("3.14 out of scope: 801, never hang")
@pytest.mark.host_only("a GPU may have them")
@pytest.mark.parametrize("call", ABSENT)
def test_what_is_not_there_is_not_supported(lab, call):
    lab.assert_refused(NOT_SUPPORTED, getattr(lab.api, call), *ABSENT[call])


@pytest.mark.row("3.14 attributes: multicast 132, compression 107, RDMA 110, fabric 128")
@pytest.mark.host_only("a GPU may have them")
@pytest.mark.parametrize("attribute", [107, 110, 128, 132])
def test_no_attribute_promises_what_is_not_there(lab, attribute):
    assert lab.ok(lab.api.cuDeviceGetAttribute(cuda.CUdevice_attribute(attribute), 0)) == 0


@pytest.mark.row("2b cuDeviceGetAttribute: unknown attribute")
@pytest.mark.host_only("the bindings take no number that is in no enum")
def test_an_unknown_attribute_is_refused(lab):
    lab.assert_refused(1, lab.api.cuDeviceGetAttribute, 100_000, 0)


@pytest.mark.row("3.14 DEVICE_LOCALITY_DOMAIN is the device")
@pytest.mark.host_only("added in 13.4")
def test_a_locality_domain_is_its_device(lab):
    before = lab.free()
    handle = int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(6), 0)))
    lab.handles.append(handle)
    assert lab.free() == before - lab.unit
    base = lab.reserve(1)
    lab.map(base, handle)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(kind=6)], 1))
    assert lab.access(base) == 3


@pytest.mark.row("3.14 HOST memory: the host is given access by a descriptor")
@pytest.mark.host_only("support for host memory depends on the machine")
def test_the_cpu_touches_host_memory_that_it_was_given(bytes_lab):
    lab = bytes_lab
    base, handle = lab.reserve(1), int(lab.ok(lab.api.cuMemCreate(lab.unit, lab.property_of(2), 0)))
    lab.handles.append(handle)
    lab.map(base, handle)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(kind=2), lab.grant()], 2))
    ctypes.memmove(base, b"by the CPU", 10)
    assert lab.read(base, 10) == b"by the CPU"


@pytest.mark.row("3.3 still mapped: an option to accept")
@pytest.mark.parametrize("backing", ["memory", "none"])
def test_a_driver_may_accept_the_free_of_mapped_addresses(lab, backing):
    if lab.backing == "device":
        pytest.skip("an option of the host driver")
    api = HostDriver(memory="16 MiB", backing=backing, free_mapped=True)
    api.cuInit(0)
    base = int(api.cuMemAddressReserve(2 * api.granularity, 0, 0, 0)[1])
    handles = [int(api.cuMemCreate(api.granularity, lab.property_of(), 0)[1]) for _ in range(2)]
    for index, handle in enumerate(handles):
        assert int(api.cuMemMap(base + index * api.granularity, api.granularity, 0, handle, 0)[0]) == 0
    api.cuMemRelease(handles[0])
    assert api.live().allocations == 2
    assert int(api.cuMemAddressFree(base, api.granularity)[0]) == 1  # still only the whole of it
    assert int(api.cuMemAddressFree(base, 2 * api.granularity)[0]) == 0
    assert (api.live().mappings, api.live().allocations) == (0, 1)  # the released one went with its mapping
    api.cuMemRelease(handles[1])
    assert api.live().total == 0
