"""The host driver as an object: its options, its gate, its calls against those of the bindings, what it counts."""

import ctypes
import inspect
import re

import pytest
from cuda.bindings import driver as cuda

from vmm.driver import Access, Driver
from vmm.errors import SizeError
from vmm.host import HostDriver, properties
from vmm.host.gate import OPEN_FUNCTIONS, OUTPUTS

UNIT = 2 << 20
CALLS = sorted(name for name in dir(HostDriver) if name.startswith("cu"))
GRANT = [(0, Access.READWRITE)]


@pytest.fixture(params=["memory", "none"])
def api(request):
    made = HostDriver(memory="64 MiB", backing=request.param)
    made.cuInit(0)
    return made


def test_it_looks_like_a_driver(api):
    assert api.driver_name == "host"
    assert api.backing in repr(api)
    assert api.granularity == UNIT


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"memory": 0}, SizeError, "memory"),
        ({"memory": "1 MiB"}, SizeError, "granularity of 2 MiB"),
        ({"memory": "plenty"}, SizeError, "'plenty'"),
        ({"granularity": "3 MiB"}, SizeError, "power of two"),
        ({"granularity": 2048}, SizeError, "at least a page"),
        ({"backing": "disk"}, ValueError, "'disk'"),
        ({"streams": "lazy"}, ValueError, "'lazy'"),
        ({"poison": 256}, ValueError, "256"),
        ({"poison": -1}, ValueError, "-1"),
    ],
)
def test_options_that_it_does_not_have_are_refused(options, error, said):
    with pytest.raises(error, match=re.escape(said)):
        HostDriver(**options)


def test_memory_is_whole_granules():
    driver = Driver(HostDriver(memory=5 * UNIT + 4096, backing="none"), "host")
    assert driver.device_total(0) == 5 * UNIT


@pytest.mark.parametrize("granularity", ["64 KiB", "2 MiB", "16 MiB"])
def test_the_granularity_is_an_option(granularity):
    api = HostDriver(memory="64 MiB", granularity=granularity)
    driver = Driver(api, "host")
    unit = driver.granularity(0)
    assert unit == api.granularity
    base = driver.reserve(2 * unit)
    assert base % unit == 0
    handle = driver.create(0, unit)
    driver.map(base + unit, unit, handle)
    driver.set_access(base + unit, unit, GRANT)
    ctypes.memset(base + unit, 1, unit)
    driver.unmap(base + unit, unit)
    driver.release(handle)
    driver.free(base, 2 * unit)


# -- its calls against those of the bindings --------------------------------------------------------------------


def test_the_gate_knows_every_call():
    assert set(CALLS) == set(OUTPUTS) | OPEN_FUNCTIONS


@pytest.mark.parametrize("call", [c for c in CALLS if not c.startswith(("cuMulticast", "cuMemMapArray"))])
def test_arguments_have_the_bindings_names_and_order(call):
    documented = re.match(r"\w+\((.*?)\)\n", (getattr(cuda, call).__doc__ or "") + "\n", re.DOTALL)[1]
    bare = re.sub(r"\[[^\]]*\]", "", documented)  # types may have commas of their own
    theirs = [re.sub(r"[:=].*", "", part).split()[-1] for part in bare.split(",") if part.strip()]
    ours = [n for n in inspect.signature(getattr(HostDriver, call)).parameters if n not in ("self", "_self")]
    if ours != ["args", "kwargs"]:
        assert ours == theirs


@pytest.mark.parametrize("call", sorted(OUTPUTS))
def test_before_init_every_call_is_refused(call):
    api = HostDriver(memory="16 MiB", backing="none")
    assert getattr(api, call)() == (cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED, *(None,) * OUTPUTS[call])
    assert int(api.cuInit(1)[0]) == 1
    assert int(getattr(api, call)()[0]) == 3


def test_some_questions_need_no_init():
    api = HostDriver(backing="none")
    assert int(api.cuDriverGetVersion()[0]) == 0
    assert api.cuGetErrorName(cuda.CUresult.CUDA_SUCCESS)[1] == b"CUDA_SUCCESS"


@pytest.mark.parametrize(
    "call",
    [
        "cuMemGetHandleForAddressRange",
        "cuMemMapArrayAsync",
        "cuMulticastCreate",
        "cuMulticastBindMem",
        "cuMulticastGetGranularity",
    ],
)
def test_what_is_not_there_says_so(api, call):
    assert getattr(api, call)(0, 0, 0) == (cuda.CUresult.CUDA_ERROR_NOT_SUPPORTED, *(None,) * OUTPUTS[call])


def test_its_attributes_claim_no_more_than_it_can(api):
    """Descriptors, but no fabric, no multicast, no compression: what programs ask before they use them."""
    assert api.cuDeviceGetAttribute(cuda.CUdevice_attribute(103), 0)[1] == 1
    for attribute in (104, 105, 107, 110, 128, 132):
        assert api.cuDeviceGetAttribute(cuda.CUdevice_attribute(attribute), 0)[1] == 0
    assert int(api.cuDeviceGetAttribute(100_000, 0)[0]) == 1


def test_a_null_stays_null_under_the_plain_free(api):
    Driver(api, "host").context_retain(0)
    api.cuCtxPushCurrent(api.cuDevicePrimaryCtxRetain(0)[1])
    assert int(api.cuMemFree(0)[0]) == 0
    api.cuCtxPopCurrent()
    api.cuDevicePrimaryCtxRelease(0)
    api.cuDevicePrimaryCtxRelease(0)


@pytest.mark.parametrize("value", [1.5, "0x1000", [1]])
def test_values_that_are_no_addresses_are_type_errors(api, value):
    with pytest.raises(TypeError):
        api.cuMemAddressFree(value, UNIT)


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_values_beyond_64_bits_are_overflow_errors(api, value):
    base, handle = int(api.cuMemAddressReserve(UNIT, 0, 0, 0)[1]), int(api.cuMemCreate(UNIT, prop(), 0)[1])
    for call, arguments in (
        (api.cuMemAddressFree, (value, UNIT)),
        (api.cuMemCreate, (value, prop(), 0)),
        (api.cuMemMap, (value, UNIT, 0, handle, 0)),
        (api.cuMemMap, (base, UNIT, value, handle, 0)),
        (api.cuMemMap, (base, value, 0, handle, 0)),
        (api.cuMemUnmap, (base, value)),
        (api.cuMemUnmap, (value, UNIT)),
        (api.cuMemRelease, (value,)),
    ):
        with pytest.raises(OverflowError):
            call(*arguments)
    api.cuMemRelease(handle)
    api.cuMemAddressFree(base, UNIT)


def prop(ordinal=0):
    made = cuda.CUmemAllocationProp()
    (ctypes.c_int * 4).from_address(made.getPtr())[:] = 1, 0, 1, ordinal
    return made


def test_a_property_that_changes_is_read_again(api):
    changing = prop()
    handle = api.cuMemCreate(UNIT, changing, 0)[1]
    changing.location.id = 7
    assert int(api.cuMemCreate(UNIT, changing, 0)[0]) == 1
    changing.location.id = 0
    other = api.cuMemCreate(UNIT, changing, 0)[1]
    for held in (handle, other):
        api.cuMemRelease(held)


def test_many_properties_are_not_confused(api):
    """More structs than are remembered, good and bad in turn, each dropped at once."""
    for index in range(300):
        status, handle = api.cuMemCreate(UNIT, prop(index % 2), 0)
        assert int(status) == index % 2
        if handle is not None:
            api.cuMemRelease(handle)
    assert len(properties.property_bytes._windows) <= 64  # each of them keeps a struct alive
