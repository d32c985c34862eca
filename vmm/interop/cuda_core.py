"""cuda.core: a memory resource whose buffers are blocks of a heap."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..allocator import Allocator
from ..streams import Stream, stream_handle
from . import malloc
from .missing import library

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["memory_resource"]

_REMEDY = "'pagewalk[interop]'"


def memory_resource(heap: Allocator) -> Any:
    """A ``cuda.core.MemoryResource`` over ``heap``: ``allocate(size, stream=)`` gives a Buffer.

    ``stream`` is one of cuda.core or any object with ``__cuda_stream__``; a buffer is freed behind the work of the
    stream that its ``close`` names, else of the one that it was allocated for. On the host driver its buffers are the
    host's: NumPy and PyTorch take them by DLPack. The heap cannot be closed while a buffer lives.
    Raises DriverMissingError without cuda.core.
    """
    return _resource_class()(heap)


def _core() -> Any:
    """cuda.core; before 0.5 its classes were in cuda.core.experimental."""
    core = library("cuda.core", _REMEDY)
    return core if hasattr(core, "MemoryResource") else library("cuda.core.experimental", _REMEDY)


@functools.cache
def _resource_class() -> Any:
    core = _core()
    base: Any = core.MemoryResource

    class HeapMemoryResource(base):  # type: ignore[misc]  # cuda.core's class is there once cuda.core is
        """Buffers of a heap of Pagewalk; made by ``vmm.interop.cuda_core.memory_resource``."""

        def __init__(self, heap: Allocator) -> None:
            self.heap = heap
            self._malloc = malloc.of(heap)

        def __repr__(self) -> str:
            return f"HeapMemoryResource({self.heap!r})"

        def allocate(self, size: int, stream: Stream | None = None) -> Any:
            """A Buffer of ``size`` bytes. Raises OutOfMemoryError as ``Heap.allocate``."""
            address = self._malloc.allocate(size, stream)
            try:
                return _buffer(core, address, size, self, stream)
            except BaseException:
                self._malloc.free(address, stream)
                raise

        def deallocate(self, ptr: Any, size: int, stream: Stream | None = None) -> None:  # noqa: ARG002
            """Give a buffer's block back; ``Buffer.close`` calls it."""
            on_gpu = _on_gpu(self.heap.range.device)
            self._malloc.free(int(ptr), stream if on_gpu else None)  # a buffer of the host has no stream

        @property
        def device_id(self) -> int:
            """The GPU's ordinal; -1 on the host driver."""
            device = self.heap.range.device
            return device.ordinal if _on_gpu(device) else -1

        @property
        def is_device_accessible(self) -> bool:
            """Whether kernels of a GPU may use the buffers."""
            return _on_gpu(self.heap.range.device)

        @property
        def is_host_accessible(self) -> bool:
            """Whether the host may look at the buffers: on the host driver."""
            return not _on_gpu(self.heap.range.device)

        @property
        def is_managed(self) -> bool:
            """Never managed memory."""
            return False

    return HeapMemoryResource


def _on_gpu(device: Device) -> bool:
    return device.backing == "device"


def _buffer(core: Any, address: int, size: int, resource: Any, stream: Stream | None) -> Any:
    """A Buffer that gives its block back to ``resource``, on ``stream`` where cuda.core keeps one for that (1.2)."""
    make = core.Buffer.from_handle
    if stream is None or not resource.is_device_accessible:
        return make(address, size, mr=resource)
    own = isinstance(stream, tuple(getattr(core, name) for name in ("Stream", "GraphBuilder") if hasattr(core, name)))
    try:
        return make(
            address, size, mr=resource, stream=stream if own else core.Stream.from_handle(stream_handle(stream))
        )
    except TypeError:  # cuda.core before 1.2
        return make(address, size, mr=resource)
