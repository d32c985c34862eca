"""interop: Pagewalk inside programs of CuPy, PyTorch, cuda.core, RMM and Numba. One file a library.

Nothing here is imported before it is used: a library that is missing is one line with the pip command that brings it.

    cupy       an allocator for cupy.cuda.set_allocator
    cuda_core  a MemoryResource whose Buffers are blocks of a heap
    rmm        a CallbackMemoryResource
    numba      device arrays, and a memory manager (EMM plugin)
    torch      tensors, a tensor that grows in place, and a pool for torch.cuda.MemPool
    malloc     what the allocators share: blocks of a heap by address, from any thread

Memory of a range goes to a library without these by ``MemoryRange.tensor``.
"""

from . import cuda_core, cupy, malloc, numba, rmm, torch

__all__ = ["cuda_core", "cupy", "malloc", "numba", "rmm", "torch"]
