"""RMM's CallbackMemoryResource over a heap: the true library where it is installed, over the stub of a GPU's driver."""

import importlib.util

import pytest

import vmm

MIB = 1 << 20
MISSING = importlib.util.find_spec("rmm") is None
needs_rmm = pytest.mark.skipif(MISSING, reason="needs RMM: python -m pip install rmm-cu13")


class Stream:
    """A stream that is not RMM's own."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def allocated_and_freed():
    import rmm.mr
    from rmm.pylibrmm.stream import DEFAULT_STREAM
    from rmm.pylibrmm.stream import Stream as RmmStream

    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        resource = vmm.interop.rmm.memory_resource(heap)
        with_limit = rmm.mr.LimitingResourceAdaptor(resource, 4 * MIB)
        streams = DEFAULT_STREAM, RmmStream(obj=Stream(0x57E400001230))
        places = [resource.allocate(3000, streams[0]), with_limit.allocate(2 * MIB, streams[1])]
        seen = (
            [place - heap.range.base for place in places],
            heap.allocated,
            isinstance(resource, rmm.mr.DeviceMemoryResource),
        )
        with pytest.raises(MemoryError):
            with_limit.allocate(4 * MIB, streams[1])
        with pytest.raises(vmm.StateError, match="given to another library"):
            heap.close()
        resource.deallocate(places[0], 3000, streams[0])
        with_limit.deallocate(places[1], 2 * MIB, streams[1])
        return seen, heap.allocated


@needs_rmm
def test_rmm_allocates_blocks_of_the_heap(stub):
    ((offsets, allocated, is_resource), left), _calls = stub(allocated_and_freed)
    assert offsets[0] == 0
    assert allocated == 3072 + 2 * MIB
    assert is_resource
    assert left == 0


def out_of_memory():
    import rmm.mr

    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "4 MiB") as heap:
        resource = vmm.interop.rmm.memory_resource(heap)
        asked, kept = [], [resource.allocate(3 * MIB)]

        def give_up_some(size):
            asked.append(size)
            resource.deallocate(kept.pop(), 3 * MIB)
            return True  # try again

        retrying = rmm.mr.FailureCallbackResourceAdaptor(resource, give_up_some)
        retrying.deallocate(retrying.allocate(2 * MIB), 2 * MIB)
        kept.append(resource.allocate(3 * MIB))
        with pytest.raises(MemoryError) as caught:
            resource.allocate(2 * MIB)
        resource.deallocate(kept.pop(), 3 * MIB)
        return asked, str(caught.value)


@needs_rmm
def test_a_full_heap_is_a_bad_alloc_that_rmms_adaptors_act_on(stub):
    (asked, text), _calls = stub(out_of_memory)
    assert asked == [2 * MIB]
    assert text


def test_a_heap_of_the_host_driver_is_refused(device):
    pytest.importorskip("rmm", reason="needs RMM: python -m pip install rmm-cu13")
    with vmm.Heap(device, "4 MiB") as heap, pytest.raises(vmm.StateError, match="RMM allocates memory of GPUs"):
        vmm.interop.rmm.memory_resource(heap)
