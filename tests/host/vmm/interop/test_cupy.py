"""CuPy's arrays on blocks of a heap. CuPy is the true one; its current device and stream are set by hand."""

import importlib.util
import pickle

import pytest

import vmm

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="needs CuPy: python -m pip install 'pagewalk[cuda13]'"
)
STREAM, OTHER = 0x57E400001230, 0x57E400004560
MIB = 1 << 20


class Stream:
    """What cupy.cuda.get_current_stream() returns, as far as an allocator looks at it."""

    def __init__(self, handle):
        self.ptr = handle

    def __cuda_stream__(self):
        return 0, self.ptr


def set_current(cupy, device=0, stream=STREAM):
    cupy.cuda.runtime.getDevice = lambda: device
    cupy.cuda.get_current_stream = lambda: Stream(stream)


def arrays():
    import cupy

    set_current(cupy)
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        cupy.cuda.set_allocator(vmm.interop.cupy.allocator(heap))
        first = cupy.ndarray((1000,), "float32")
        second = cupy.ndarray((3 * MIB,), "uint8")
        empty = cupy.ndarray((0, 4), "float32")
        seen = [
            heap.allocated,
            first.data.ptr - heap.range.base,
            (first.data.mem.size, first.data.device_id, first.data.mem.device_id),
            empty.data.ptr,
        ]
        part = second[MIB:].reshape(2, -1).T
        del second
        seen.append(heap.allocated)  # a view of a view keeps the block
        with pytest.raises(vmm.StateError, match="given to another library"):
            heap.close()
        del part
        seen.append(heap.allocated)
        del first, empty
        cupy.cuda.set_allocator(None)
        return [*seen, heap.allocated]


def test_an_array_is_a_block_until_its_last_view_goes(stub):
    seen, _calls = stub(arrays)
    both = 4096 + 3 * MIB
    assert seen == [both, 0, (4000, 0, 0), 0, both, 4096, 0]


def in_streams():
    import cupy

    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        freed = []
        inside = vmm.Block.free
        vmm.Block.free = lambda block, *, after=None: (freed.append(after), inside(block, after=after))
        with cupy.cuda.using_allocator(vmm.interop.cupy.allocator(heap)):
            set_current(cupy, stream=STREAM)
            first = cupy.ndarray((1000,), "float32")
            set_current(cupy, stream=OTHER)
            second = cupy.ndarray((1000,), "float32")
            del first, second
        return freed


def test_a_block_is_freed_on_the_stream_of_its_array(stub):
    freed, _calls = stub(in_streams)
    assert freed == [STREAM, OTHER]


def on_two_devices():
    import cupy

    with vmm.Device(0, driver="cuda") as one, vmm.Device(1, driver="cuda") as other:
        with vmm.Heap(one, "8 MiB") as first, vmm.Heap(other, "8 MiB") as second:
            with cupy.cuda.using_allocator(vmm.interop.cupy.allocator(first, second)):
                set_current(cupy, device=1)
                array = cupy.ndarray((8,), "uint8")
                seen = first.allocated, second.allocated, array.data.device_id
                del array
            with cupy.cuda.using_allocator(vmm.interop.cupy.allocator(first)), pytest.raises(vmm.StateError) as caught:
                cupy.ndarray((8,), "uint8")
        return seen, str(caught.value)


@pytest.mark.exhaustive
def test_each_device_has_its_heap(stub):
    (seen, text), _calls = stub(on_two_devices, STUB_DEVICES=2)
    assert seen == (0, 512, 1)
    assert text.startswith("CuPy's current device is 1, and there is a heap for 0")


def out_of_memory():
    import cupy

    set_current(cupy)
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "2 MiB") as heap:
        cupys = cupy.cuda.memory.OutOfMemoryError
        with cupy.cuda.using_allocator(vmm.interop.cupy.allocator(heap)), pytest.raises(cupys) as caught:
            cupy.ndarray((3 * MIB,), "uint8")
        error = caught.value
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is vmm.OutOfMemoryError
        assert (str(again), again.report) == (str(error), error.report)
        return isinstance(error, vmm.OutOfMemoryError), str(error), error.report.asked, heap.allocated


@pytest.mark.exhaustive
def test_out_of_memory_is_the_error_of_both(stub):
    (both, text, asked, left), _calls = stub(out_of_memory)
    assert both
    assert "3 MiB" in text
    assert (asked, left) == (3 * MIB, 0)


def test_a_heap_of_the_host_driver_is_refused(device):
    with vmm.Heap(device, "4 MiB") as heap, pytest.raises(vmm.StateError, match="CuPy allocates memory of GPUs"):
        vmm.interop.cupy.allocator(heap)
