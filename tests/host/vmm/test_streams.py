"""A stream of any library, wherever a stream is taken."""

from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as cuda

import paged
import vmm

STREAMS = ("deferred",)


class Protocol:
    """What cuda.core, CuPy 14, PyTorch and Numba give today."""

    def __init__(self, handle, version=0):
        self.handle, self.version = handle, version

    def __cuda_stream__(self):
        return self.version, self.handle


class Torch:
    def __init__(self, handle):
        self.cuda_stream = handle


class OldCupy:
    """CuPy's stream before it had the protocol."""

    def __init__(self, handle):
        self.ptr = handle

    def wait_event(self, event):
        raise NotImplementedError


class OldCore:
    """cuda.core's before 0.2: the protocol is an attribute."""

    def __init__(self, handle):
        self.__cuda_stream__ = (0, handle)


KINDS = [int, np.int64, cuda.CUstream, Protocol, Torch, OldCupy, OldCore]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_any_library_gives_its_handle(kind):
    handle = vmm.stream_handle(kind(0x57E400000010))
    assert type(handle) is int
    assert handle == 0x57E400000010


@pytest.mark.parametrize("what", [None, True, 1.5, "0", object()])
def test_what_is_no_stream_is_refused(what):
    with pytest.raises(TypeError, match="is no stream"):
        vmm.stream_handle(what)


@pytest.mark.parametrize(
    "event",
    [
        cuda.CUevent(16),
        SimpleNamespace(handle=cuda.CUevent(16)),  # cuda.core, Numba
        SimpleNamespace(ptr=16),  # CuPy
        SimpleNamespace(cuda_event=16),  # PyTorch
    ],
)
def test_an_event_is_not_taken_for_a_stream(event):
    with pytest.raises(TypeError, match="is an event and no stream"):
        vmm.stream_handle(event)


def test_another_version_of_the_protocol_is_refused():
    with pytest.raises(TypeError, match="version 1 of __cuda_stream__"):
        vmm.stream_handle(Protocol(16, version=1))


def test_an_answer_that_is_not_the_protocols_is_refused():
    stream = OldCore(16)
    stream.__cuda_stream__ = 16
    with pytest.raises(TypeError, match=r"not \(version, handle\)"):
        vmm.stream_handle(stream)


@pytest.fixture
def handle(streams):
    return streams[0]


@pytest.mark.parametrize("kind", [Protocol, Torch, OldCupy, OldCore])
def test_work_enters_the_stream_of_a_librarys_object(device, handle, kind):
    """Deferred: nothing has run until that very stream is waited for."""
    ran = []
    device.submit(kind(handle), lambda: ran.append(True), None)
    assert ran == []
    with device.current():
        device.driver.stream_synchronize(handle)
    assert ran == [True]


@pytest.mark.parametrize("kind", [Protocol, Torch, OldCupy, OldCore])
def test_a_decommit_waits_for_a_librarys_stream(device, handle, kind):
    with vmm.GrowableRange(device, "16 MiB") as memory:
        memory.grow("2 MiB")
        device.submit(handle, lambda: None, None)
        memory.shrink("2 MiB", after=kind(handle))
        assert memory.retiring == 2 << 20
        with device.current():
            device.driver.stream_synchronize(handle)
        assert memory.collect() == 2 << 20


@pytest.mark.parametrize("order", ["block", "layer"])
def test_a_pool_and_its_tables_take_a_librarys_stream(device, handle, order):
    layout = paged.KVLayout(paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16"), 16, order=order)
    stream = Protocol(handle)
    with paged.KVPool(device, layout, budget="16 MiB") as pool, paged.SwapSpace(device, "4 MiB") as space:
        first = pool.sequence()
        first.append(20, stream=stream)
        pool.view(first.table[1], 1)[:] = 3
        batch = paged.Batch(pool, [first, first.fork()])
        batch.append(stream=stream)  # copies the shared tail, in the stream
        with device.current():
            device.driver.stream_synchronize(stream.handle)
        kept = first.table[1]
        assert (pool.view(kept, 1) == 3).all()
        swapped = space.put(first, stream=stream)
        again = space.restore(swapped, stream=stream)
        device.synchronize()
        assert (pool.view(again.table[1], 1) == 3).all()
        pool.compact(stream=stream)
