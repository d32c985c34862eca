"""Numba on memory of a range and of a heap: the true library over the stub of a GPU's driver."""

import importlib.util

import numpy as np
import pytest

import vmm

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="needs Numba: python -m pip install 'numba-cuda[cu13]'"
)
MIB = 1 << 20


def test_on_the_host_driver_it_is_numpys_array(device):
    with vmm.GrowableRange(device, "16 MiB") as memory:
        memory.grow("2 MiB")
        array = vmm.interop.numba.array(memory, "float32", (4, 8), 64)
        array[:] = 2
        assert isinstance(array, np.ndarray)
        assert (memory.array("float32", 32, 64) == 2).all()
        del array


def arrays():
    from numba import cuda

    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB", name="kv") as memory:
        memory.grow("2 MiB")
        array = vmm.interop.numba.array(memory, "float32", (4, 8), 64)
        strided = cuda.as_cuda_array(memory.tensor("int16", (3, 5), 0, strides=(64, 2)))
        seen = (
            type(array).__name__,
            array.device_ctypes_pointer.value - memory.base,
            (array.shape, str(array.dtype), array.strides),
            (strided.shape, strided.strides),
        )
        part = array[1:]
        del array, strided
        with pytest.raises(vmm.StateError, match="still views them"):
            memory.shrink("2 MiB")
        del part
        memory.shrink("2 MiB")
        with pytest.raises(ValueError, match="Numba has no bfloat16; take the memory as uint16"):
            memory.grow("2 MiB")
            vmm.interop.numba.array(memory, "bfloat16", 8)
        return seen


@needs_numba
def test_a_device_array_lies_where_the_memory_does(stub):
    seen, _calls = stub(arrays, leaves=True)  # Numba keeps the context
    assert seen == ("DeviceNDArray", 64, ((4, 8), "float32", (32, 4)), ((3, 5), (64, 2)))


class Context:
    """What an EMM plugin is given: a context of one device."""

    def __init__(self, ordinal):
        self.device = type("Device", (), {"id": ordinal})


def managed():
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        manager = vmm.interop.numba.memory_manager(heap)(context=Context(0))
        manager.initialize()
        first, second = manager.memalloc(1000), manager.memalloc(3 * MIB)
        seen = [int(first.handle) - heap.range.base, first.size, heap.allocated, manager.interface_version]
        waited = device.waited
        del first
        assert device.waited > waited  # nobody knows where Numba used it
        seen.append(heap.allocated)
        seen.append(tuple(manager.get_memory_info()))
        manager.reset()  # its context ends: what is allocated goes, and the pointer's own end finds nothing
        seen.append(heap.allocated)
        del second
        with pytest.raises(RuntimeError, match="Numba allocates on device 1 and the heap lies on 0"):
            vmm.interop.numba.memory_manager(heap)(context=Context(1)).memalloc(64)
        return seen


@needs_numba
def test_the_memory_manager_allocates_blocks_and_waits_before_it_frees(stub):
    seen, _calls = stub(managed, leaves=True)
    assert "Traceback" not in stub.stderr  # of a finalizer
    both = 1024 + 3 * MIB
    assert seen[:5] == [0, 1000, both, 1, 3 * MIB]
    assert seen[5][1] == 8 << 30
    assert seen[6] == 0


def allocated_by_numba():
    from numba import cuda

    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        cuda.set_memory_manager(vmm.interop.numba.memory_manager(heap))
        array = cuda.device_array((256, 4), "float32")
        seen = array.device_ctypes_pointer.value - heap.range.base, heap.allocated
        part = array[8:]
        del array
        kept = heap.allocated
        del part
        return seen, kept, heap.allocated


@needs_numba
def test_numbas_device_arrays_are_blocks(stub):
    (seen, kept, left), _calls = stub(allocated_by_numba, leaves=True)
    assert seen == (0, 4096)
    assert (kept, left) == (4096, 0)


@needs_numba
def test_a_heap_of_the_host_driver_is_refused(device):
    with vmm.Heap(device, "4 MiB") as heap, pytest.raises(vmm.StateError, match="Numba allocates memory of GPUs"):
        vmm.interop.numba.memory_manager(heap)
