"""A heap under PyTorch's caching allocator: the segments of a ``torch.cuda.MemPool`` are blocks of the heap."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import re
import warnings
from typing import Any

from ..allocator import Allocator
from ..errors import StateError, VmmError
from . import malloc
from .c_library import compiled
from .missing import check_gpu, library

_log = logging.getLogger("vmm")
_REMEDY = "torch"
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_OPTION = "release_lock_on_cudamalloc:True"
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class _Note(ctypes.Structure):
    """``struct note`` of torch_allocator.c."""

    _fields_ = (("next", ctypes.c_void_p), ("address", ctypes.c_uint64), ("stream", ctypes.c_void_p))


class HeapAllocator:
    """The C functions by which PyTorch allocates from ``heap``. ``pluggable`` is PyTorch's object of them.

    PyTorch asks for whole segments (2 MiB, 20 MiB or more) and cuts them itself, so a call into Python is rare.
    An allocation takes Python's lock. PyTorch makes it under a lock of its own, which another thread may wait for with
    Python's lock in its hand: set PYTORCH_ALLOC_CONF=release_lock_on_cudamalloc:True in a program of several threads.
    A free takes no lock: its block goes to the heap when the main thread next runs Python, or at ``collect``.
    Pools and tensors may outlive this object; the heap cannot be closed before they are gone.
    """

    def __init__(self, heap: Allocator) -> None:
        torch = library("torch", _REMEDY)
        self.heap = heap
        self._held = malloc.of(heap)
        with compiled("torch_allocator.c") as path:
            self._library = _load(str(path))
            self._allocate, self._read = _ALLOCATE(self._asked), _READ(self._told)
            self._library.pagewalk_connect(self._allocate, self._read)
            atexit.register(self._library.pagewalk_disconnect)  # what PyTorch frees later would meet no interpreter
            names = "pagewalk_allocate", "pagewalk_free"
            self.pluggable = torch.cuda.memory.CUDAPluggableAllocator(str(path), *names)
        _keep.append(self)  # PyTorch may call the functions as long as the process lives

    def _asked(self, size: int, device: int, stream: int | None) -> int:
        """An address for PyTorch, or 0 where there is none, which it answers with its own error.

        Nothing can be raised into C, so what goes wrong is logged.
        """
        try:
            if device != self.heap.range.device.ordinal:
                raise StateError(f"PyTorch wants memory of device {device} from {self.heap!r} of another")
            self.collect()
            return self._held.allocate(size, stream or 0)
        except VmmError as error:
            _log.error("PyTorch gets no memory from the heap: %s", error)
        except Exception:
            _log.exception("an allocation for PyTorch failed")
        return 0

    def _told(self, _argument: int | None) -> int:
        """PyTorch has freed something, and the main thread runs Python again."""
        try:
            self.collect()
        except Exception:
            _log.exception("what PyTorch freed could not be given back")
        return 0

    def collect(self) -> int:
        """Give back what PyTorch has freed; how many blocks."""
        count, at = 0, self._library.pagewalk_take_notes()
        while at:
            note = _Note.from_address(at)
            address, stream, following = note.address, note.stream or 0, note.next
            self._library.pagewalk_drop_note(at)
            self._held.free(address, stream)
            count, at = count + 1, following
        return count


_keep: list[HeapAllocator] = []


def allocator(heap: Allocator) -> HeapAllocator:
    """PyTorch's way to allocate from ``heap``; needs a C compiler, once. ``mem_pool`` makes a pool of it.

    Raises DriverMissingError without PyTorch or a compiler, StateError for a heap on the host driver.
    """
    check_gpu(heap.range.device, "PyTorch's MemPool")
    found = next((one for one in _keep if one.heap is heap), None)
    return found or HeapAllocator(heap)


def mem_pool(heap: Allocator) -> Any:
    """A ``torch.cuda.MemPool`` on ``heap``: ``with torch.cuda.use_mem_pool(pool): ...`` makes tensors in it.

    Its segments go back to the heap when the pool and its tensors are gone, or at ``torch.cuda.empty_cache()``.
    Warns in a program that may have threads (RuntimeWarning) where PyTorch would hold its lock; see ``HeapAllocator``.
    Raises as ``allocator``.
    """
    made = allocator(heap)
    if not any(_OPTION in re.sub(r"\s", "", os.environ.get(name, "")) for name in _VARIABLES):
        text = f"several threads of PyTorch may wait for each other for ever; set PYTORCH_ALLOC_CONF={_OPTION} before"
        warnings.warn(f"{text} 'import torch', or use one thread", RuntimeWarning, stacklevel=2)
    torch = library("torch", _REMEDY)
    return torch.cuda.MemPool(made.pluggable.allocator())


def _load(path: str) -> ctypes.CDLL:
    found = ctypes.CDLL(path)
    found.pagewalk_connect.argtypes, found.pagewalk_connect.restype = (_ALLOCATE, _READ), None
    found.pagewalk_disconnect.argtypes, found.pagewalk_disconnect.restype = (), None
    found.pagewalk_take_notes.argtypes, found.pagewalk_take_notes.restype = (), ctypes.c_void_p
    found.pagewalk_drop_note.argtypes, found.pagewalk_drop_note.restype = (ctypes.c_void_p,), None
    return found
