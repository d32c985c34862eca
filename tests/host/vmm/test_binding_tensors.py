"""The same view on a GPU, as far as the real bindings over the stub show it: device, streams, no look at a byte."""

import ctypes
import struct

import numpy as np
import pytest

import vmm

STREAM, OTHER = 0x57E400001230, 0x57E400004560


def described(ordinal):
    """What DLPack and the CUDA array interface say of two tensors in memory of GPU ``ordinal``."""
    with vmm.Device(ordinal, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB", name="kv") as memory:
        memory.grow("4 MiB")
        tensor = memory.tensor("float32", (3, 8), 4096, strides=(64, 4), stream=0)
        interface = dict(tensor.__cuda_array_interface__)
        interface["data"] = (interface["data"][0] - memory.base, interface["data"][1])
        capsule = tensor.__dlpack__(stream=-1, max_version=(1, 0), dl_device=(2, ordinal))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        at = pointer(capsule, b"dltensor_versioned")
        data, *place = struct.unpack("=Qii", ctypes.string_at(at + 32, 16))
        with pytest.raises(vmm.StateError, match="lies on a GPU"):
            np.asarray(tensor)
        half = memory.tensor("bfloat16", 8)
        plain = memory.tensor("int8", 0)
        seen = (
            tensor.__dlpack_device__(),
            (data - memory.base, tuple(place)),
            interface,
            hasattr(half, "__cuda_array_interface__"),
            plain.__cuda_array_interface__["data"][0],
        )
        with pytest.raises(vmm.StateError, match="still views them"):
            memory.shrink("4 MiB")
        del tensor, half, capsule, plain
        memory.shrink("4 MiB")
        return seen


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 makes no versioned capsule")
@pytest.mark.parametrize("ordinal", [0, 1])
def test_it_says_which_gpu_it_lies_on(stub, ordinal):
    (device, in_capsule, interface, half, empty), _calls = stub(described, ordinal, STUB_DEVICES=2)
    assert device == (2, ordinal)
    assert in_capsule == (4096, (2, ordinal))
    assert interface == {
        "version": 3,
        "shape": (3, 8),
        "typestr": "<f4",
        "data": (4096, False),
        "strides": (64, 4),
        "stream": 1,  # the interface's number of the legacy default stream
    }
    assert not half  # the interface has no name for bfloat16
    assert empty == 0


def exported(producer, consumer):
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB") as memory:
        memory.grow("2 MiB")
        memory.tensor("uint8", 8, stream=producer).__dlpack__(stream=consumer)


def waits(calls):
    """(stream that waits, stream whose work it waits for) of each wait."""
    recorded = dict(calls.args("cuEventRecord"))
    asked = calls.args("cuStreamWaitEvent")
    number = lambda field: struct.unpack("=Q", field)[0]
    return [(number(stream), number(recorded[event])) for stream, event, _flags in asked]


LATER = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("producer", "consumer", "expected"),
    [
        (STREAM, OTHER, [(OTHER, STREAM)]),
        (STREAM, None, [(1, STREAM)]),  # None is the legacy default stream
        pytest.param(STREAM, 2, [(2, STREAM)], marks=LATER),
        pytest.param(0, OTHER, [(OTHER, 0)], marks=LATER),
        pytest.param(STREAM, STREAM, [], marks=LATER),
        pytest.param(0, 1, [], marks=LATER),  # both are the legacy default stream
        pytest.param(0, None, [], marks=LATER),
        (STREAM, -1, []),  # the consumer asks for no order
        pytest.param(None, OTHER, [], marks=LATER),  # no work is known
    ],
)
def test_the_consumers_stream_waits_for_the_producers(stub, producer, consumer, expected):
    _none, calls = stub(exported, producer, consumer)
    assert waits(calls) == expected


def refused(consumer):
    with pytest.raises(BufferError) as caught:
        exported(STREAM, consumer)
    return str(caught.value)


@pytest.mark.parametrize("consumer", [0, -2])
def test_a_stream_that_dlpack_forbids_is_refused(stub, consumer):
    text, _calls = stub(refused, consumer)
    assert f"stream {consumer} is not one of DLPack's" in text
