"""The adapters against what the libraries' documentation says of them, where the libraries are not installed.

The stand-ins hold no more than the documented calls: a use of anything else is an AttributeError here.
"""

import sys
import types

import pytest

import vmm

STREAM = 0x57E400001230


class CoreResource:
    """cuda.core.MemoryResource: an abstract base."""


class CoreBuffer:
    """cuda.core.Buffer, made by from_handle; its resource gets the memory back once."""

    @classmethod
    def from_handle(cls, ptr, size, mr=None, owner=None, *, stream=None):
        made = cls()
        made.handle, made.size, made.memory_resource, made.owner, made.stream = ptr, size, mr, owner, stream
        return made

    def close(self, stream=None):
        mr, self.memory_resource = self.memory_resource, None
        if mr is not None:
            mr.deallocate(self.handle, self.size, stream=stream or self.stream)


class OldCoreBuffer(CoreBuffer):
    """As it was before cuda.core 1.2: no stream is kept."""

    @classmethod
    def from_handle(cls, ptr, size, mr=None, owner=None):
        return super().from_handle(ptr, size, mr, owner)


class CoreStream:
    """cuda.core.Stream."""

    def __init__(self, handle):
        self.handle = handle

    from_handle = classmethod(lambda cls, handle: cls(handle))

    def __cuda_stream__(self):
        return 0, self.handle


class RmmCallback:
    """rmm.mr.CallbackMemoryResource: calls the two functions."""

    def __init__(self, allocate_func, deallocate_func):
        self.allocate, self.deallocate = allocate_func, deallocate_func


def put(name, **members):
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(members)


def by_cuda_core(buffer_class, package):
    put("cuda.core", **({} if package != "cuda.core" else members(buffer_class)))
    if package != "cuda.core":
        put(package, **members(buffer_class))
    freed, inside = [], vmm.Block.free
    vmm.Block.free = lambda block, *, after=None: (freed.append((block.stream, after)), inside(block, after=after))
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        resource = vmm.interop.cuda_core.memory_resource(heap)
        buffers = [resource.allocate(4096, stream=CoreStream(STREAM)), resource.allocate(4096, CoreStream(16))]
        buffers[0].close()
        buffers[1].close(CoreStream(STREAM))
        return isinstance(resource, CoreResource), freed


def members(buffer_class):
    return {
        "MemoryResource": CoreResource,
        "Buffer": {"new": CoreBuffer, "old": OldCoreBuffer}[buffer_class],
        "Stream": CoreStream,
    }


@pytest.mark.parametrize(
    ("buffer_class", "package", "first"),
    [("new", "cuda.core", STREAM), ("old", "cuda.core.experimental", None)],
)
def test_cuda_cores_documented_interface_is_enough(stub, buffer_class, package, first):
    """Before 1.2 a buffer kept no stream: without one at close, all that the block was allocated for counts."""
    (is_resource, freed), _calls = stub(by_cuda_core, buffer_class, package)
    assert is_resource
    assert freed == [(STREAM, first), (16, STREAM)]


def by_rmm():
    put("rmm")
    put("rmm.mr", CallbackMemoryResource=RmmCallback)
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        resource = vmm.interop.rmm.memory_resource(heap)
        address = resource.allocate(3000, CoreStream(STREAM))
        seen = address % 512, heap.allocated
        resource.deallocate(address, 3000, CoreStream(STREAM))
        with pytest.raises(MemoryError):
            resource.allocate(1 << 40, CoreStream(STREAM))
        return seen, heap.allocated


def test_rmms_documented_interface_is_enough(stub):
    (seen, left), _calls = stub(by_rmm)
    assert seen == (0, 3072)
    assert left == 0
