"""Numba: device arrays on memory of a range, and Numba's own allocations on a heap."""

from __future__ import annotations

import ctypes
from typing import Any, SupportsIndex

from ..allocator import Allocator
from ..memory_range import MemoryRange
from ..streams import Stream
from ..views import Shape
from . import malloc
from .missing import check_gpu, library

__all__ = ["array", "memory_manager"]

_REMEDY = "'numba-cuda[cu13]' (or [cu12])"


def array(
    memory: MemoryRange, dtype: Any, shape: Shape, offset: SupportsIndex = 0, *, stream: Stream | None = None
) -> Any:
    """A device array of Numba on committed memory, without a copy; on the host driver NumPy's, for ``numba.njit``.

    ``stream`` is where the work was queued that fills the memory: Numba waits for it. The array keeps the memory.
    Raises as ``MemoryRange.array``, DriverMissingError without Numba, ValueError for a type that Numba does not have,
    such as bfloat16.
    """
    tensor = memory.tensor(dtype, shape, offset, stream=stream)
    if memory.device.backing != "device":
        return tensor.__array__()
    if not hasattr(tensor, "__cuda_array_interface__"):
        raise ValueError(f"Numba has no {tensor.dtype}; take the memory as uint{8 * tensor.dtype.itemsize}")
    return library("numba.cuda", _REMEDY).as_cuda_array(tensor)


def memory_manager(heap: Allocator) -> Any:
    """The class of an EMM plugin that allocates from ``heap``: for ``numba.cuda.set_memory_manager``, before any use.

    Numba names no stream, and may use an array on any: a free waits for the device, as cuMemFree does. Pinned and
    managed memory stay Numba's own. For one device: in the context of another an allocation is a RuntimeError. Legacy
    IPC handles are a NotImplementedError: mapped memory has none. Raises DriverMissingError without Numba, StateError
    for a heap on the host driver.
    """
    cuda = library("numba.cuda", _REMEDY)
    check_gpu(heap.range.device, "Numba")
    held, device = malloc.of(heap), heap.range.device

    base: Any = cuda.HostOnlyCUDAMemoryManager

    class HeapMemoryManager(base):  # type: ignore[misc]  # Numba's class is there once Numba is
        """Numba's device memory on a heap of Pagewalk; made by ``vmm.interop.numba.memory_manager``."""

        @property
        def interface_version(self) -> int:
            """The version of the EMM interface."""
            return 1

        def initialize(self) -> None:
            """Nothing to prepare."""

        def memalloc(self, size: int) -> Any:
            """A MemoryPointer of ``size`` bytes; they are freed with it, or with a reset of its context."""
            if self.context.device.id != device.ordinal:
                what = f"Numba allocates on device {self.context.device.id} and the heap lies on {device.ordinal}"
                raise RuntimeError(f"{what}; select that device, or set the memory manager of Numba back")
            address = held.allocate(size)
            self.allocations[address] = _Allocation(held, address)
            return cuda.MemoryPointer(
                self.context, ctypes.c_void_p(address), size, finalizer=_Forget(self.allocations, address)
            )

        def get_memory_info(self) -> Any:
            """What the device has: the heap takes its memory from that."""
            info = device.memory_info()
            return cuda.MemoryInfo(info.free, info.total)

        def get_ipc_handle(self, memory: Any) -> Any:
            """Refused: memory that was mapped has no such handle."""
            raise NotImplementedError("memory of a heap has no legacy IPC handle; share it by vmm.sharing")

    return HeapMemoryManager


class _Allocation(malloc.Held):
    """Freed when the device has done its work: nobody knows on which streams Numba used it."""

    __slots__ = ()

    def __init__(self, held: malloc.Malloc, address: int) -> None:
        super().__init__(held, address, None)

    def __del__(self) -> None:
        try:
            self.malloc.device.synchronize()
        finally:
            super().__del__()


class _Forget:
    """The finalizer of one MemoryPointer. A reset of the context may have forgotten its allocation before."""

    def __init__(self, allocations: dict[int, Any], address: int) -> None:
        self._allocations, self._address = allocations, address

    def __call__(self) -> None:
        self._allocations.pop(self._address, None)
