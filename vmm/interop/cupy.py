"""CuPy: its arrays on blocks of a heap. ``cupy.cuda.set_allocator(vmm.interop.cupy.allocator(heap))``."""

from __future__ import annotations

import functools
from typing import Any

from ..allocator import Allocator as HeapLike
from ..errors import OutOfMemoryError, StateError
from ..shortage import Shortage
from . import malloc
from .missing import check_gpu, library

__all__ = ["Allocator", "allocator"]

_REMEDY = "'pagewalk[cuda13]' (or [cuda12])"


class Allocator:
    """What CuPy calls for the memory of an array: a block of the heap of its current device, for its current stream.

    A block lives as long as its array and the views of it, and is freed behind the work of the stream that was current
    when it was made, as with CuPy's own pool; order work of other streams behind that before the array goes.
    """

    def __init__(self, heaps: tuple[HeapLike, ...]) -> None:
        self._cupy = library("cupy", _REMEDY)
        for heap in heaps:
            check_gpu(heap.range.device, "CuPy")
        self._mallocs = {heap.range.device.ordinal: malloc.of(heap) for heap in heaps}

    def __call__(self, size: int) -> Any:
        """The MemoryPointer of ``size`` bytes.

        Raises StateError where the current device has no heap here, and OutOfMemoryError, which is CuPy's too.
        """
        cuda = self._cupy.cuda
        device = cuda.runtime.getDevice()
        found = self._mallocs.get(device)
        if found is None:
            there = ", ".join(map(str, self._mallocs))
            raise StateError(
                f"CuPy's current device is {device}, and there is a heap for {there}; give allocator() more"
            )
        stream = cuda.get_current_stream()
        try:
            address = found.allocate(size, stream)
        except OutOfMemoryError as error:
            raise _out_of_memory(cuda.memory.OutOfMemoryError)(str(error), error.report) from error
        held = malloc.Held(found, address, stream)
        return cuda.MemoryPointer(cuda.UnownedMemory(address, size, held, device), 0)


def allocator(*heaps: HeapLike) -> Allocator:
    """An allocator for ``cupy.cuda.set_allocator`` and ``using_allocator``: one heap for each device that is used.

    It needs no MemoryPool around it: the heap is one. Raises DriverMissingError without CuPy, StateError for a heap on
    the host driver.
    """
    return Allocator(heaps)


@functools.cache
def _out_of_memory(cupys: type[MemoryError]) -> type[OutOfMemoryError]:
    """Our error, caught by who catches CuPy's."""
    base: Any = cupys

    class CupyOutOfMemoryError(OutOfMemoryError, base):  # type: ignore[misc]  # CuPy's class is there once CuPy is
        def __init__(self, text: str, report: Shortage) -> None:
            MemoryError.__init__(self, text)  # CuPy's take two sizes, and no text
            self.report = report

        __str__ = MemoryError.__str__

        def __reduce__(self) -> tuple[Any, ...]:
            return OutOfMemoryError, (str(self), self.report)  # another process may have no CuPy

    return CupyOutOfMemoryError
