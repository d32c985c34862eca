"""RMM: a memory resource over a heap, which cuDF and the other libraries of RAPIDS can allocate from."""

from __future__ import annotations

from typing import Any

from ..allocator import Allocator
from . import malloc
from .missing import check_gpu, library

__all__ = ["memory_resource"]

_REMEDY = "rmm-cu13 (or rmm-cu12)"


def memory_resource(heap: Allocator) -> Any:
    """A ``rmm.mr.CallbackMemoryResource`` over ``heap``: for ``rmm.mr.set_current_device_resource``, or as upstream.

    Memory is ordered by the stream that RMM names. Each allocation is a call into Python, so a
    ``rmm.mr.PoolMemoryResource`` above it pays where allocations are many; it gives nothing back while it lives. The
    heap cannot be closed while any memory is out. RMM turns OutOfMemoryError into its ``std::bad_alloc``.
    Raises DriverMissingError without RMM, StateError for a heap on the host driver.
    """
    rmm_mr = library("rmm.mr", _REMEDY)
    check_gpu(heap.range.device, "RMM")
    held = malloc.of(heap)

    def allocate(size: int, stream: Any) -> int:
        return held.allocate(size, stream)

    def deallocate(address: int, size: int, stream: Any) -> None:  # noqa: ARG001
        held.free(address, stream)

    return rmm_mr.CallbackMemoryResource(allocate, deallocate)
