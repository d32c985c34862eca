"""A MemoryResource of cuda.core: the true library where it is installed, on the host driver and over the stub."""

import importlib.util

import numpy as np
import pytest

import vmm

MISSING = importlib.util.find_spec("cuda.core") is None
pytestmark = pytest.mark.skipif(MISSING, reason="needs cuda.core: python -m pip install 'pagewalk[interop]'")


def cuda_core():
    """cuda.core; before 0.5 its classes were in cuda.core.experimental."""
    from cuda import core

    return core if hasattr(core, "MemoryResource") else importlib.import_module("cuda.core.experimental")


@pytest.fixture
def heap(device):
    with vmm.Heap(device, "1 GiB") as made:
        yield made


@pytest.fixture
def resource(heap):
    return vmm.interop.cuda_core.memory_resource(heap)


def test_it_is_a_memory_resource_of_the_host(resource):
    assert isinstance(resource, cuda_core().MemoryResource)
    assert (resource.is_device_accessible, resource.is_host_accessible, resource.device_id) == (False, True, -1)


def test_a_buffer_is_a_block_and_goes_back_when_it_is_closed(heap, resource):
    buffer = resource.allocate(1000, stream=None)
    assert (buffer.size, int(buffer.handle) - heap.range.base, heap.allocated) == (1000, 0, 1024)
    assert buffer.memory_resource is resource
    buffer.close()
    assert heap.allocated == 0


def test_a_buffer_that_nobody_has_goes_back(heap, resource):
    buffer = resource.allocate(1000, stream=None)
    del buffer
    assert heap.allocated == 0


def test_a_buffer_keeps_the_heap_open(heap, resource):
    buffer = resource.allocate(1000, stream=None)
    with pytest.raises(vmm.StateError, match="given to another library"):
        heap.close()
    buffer.close()
    heap.close()


def test_numpy_takes_a_buffer_by_dlpack_and_keeps_it(heap, resource):
    array = np.from_dlpack(resource.allocate(64, stream=None))
    array[:] = 5
    assert (heap.range.array("uint8", 64) == 5).all()
    assert heap.allocated == 512
    del array
    assert heap.allocated == 0


def test_out_of_memory_leaves_nothing(heap, resource):
    with pytest.raises(vmm.OutOfMemoryError):
        resource.allocate(1 << 29, stream=None)
    assert heap.allocated == 0


# -- on a GPU, as far as the real bindings over the stub show it ---------------------------------------------------


class Foreign:
    """A stream of another library."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def on_a_gpu():
    core = cuda_core()
    with vmm.Device(0, driver="cuda") as device, device.current(), vmm.Heap(device, "64 MiB") as heap:
        resource = vmm.interop.cuda_core.memory_resource(heap)
        own = core.Stream.from_handle(0x57E400001230)
        freed, inside = [], vmm.Block.free
        vmm.Block.free = lambda block, *, after=None: (freed.append((block.stream, after)), inside(block, after=after))
        buffers = [resource.allocate(4096, stream=stream) for stream in (own, Foreign(0x57E400004560))]
        seen = [(heap.range.base <= int(one.handle), one.size, one.is_device_accessible) for one in buffers]
        properties = resource.device_id, resource.is_device_accessible, resource.is_host_accessible
        for buffer in buffers:
            buffer.close(own)
        return seen, properties, freed


def test_on_a_gpu_streams_of_any_library_order_it(stub):
    (seen, properties, freed), _calls = stub(on_a_gpu)
    assert seen == [(True, 4096, True)] * 2
    assert properties == (0, True, False)
    own, foreign = 0x57E400001230, 0x57E400004560
    assert freed == [(own, own), (foreign, own)]  # where it was allocated, and the stream that close() names
