"""Python values as the bindings accept them: ints, the bindings' own pointer and handle types, buffers."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from cuda.bindings import driver as cuda

_WRAPPED = (
    cuda.CUdeviceptr,
    cuda.CUmemGenericAllocationHandle,
    cuda.CUcontext,
    cuda.CUstream,
    cuda.CUevent,
    cuda.CUdevice,
    cuda.CUresult,
)
_LIMIT = 1 << 64

T = TypeVar("T")


def number(value: Any) -> int:
    """An address, handle or size as an int; None is 0. TypeError or OverflowError as from the bindings."""
    if value.__class__ is not int:
        if value is None:
            return 0
        value = int(value) if isinstance(value, _WRAPPED) else operator.index(value)
    if not 0 <= value < _LIMIT:
        raise OverflowError(f"{value} does not fit an unsigned 64-bit argument")
    return int(value)


def host_address(value: Any, size: int) -> int:
    """The address of host memory given as an int or a buffer object; 0 where a buffer is shorter than ``size``."""
    if value is None or isinstance(value, (int, *_WRAPPED)):
        return number(value)
    try:
        view = np.frombuffer(value, dtype=np.uint8)
    except (TypeError, AttributeError):
        raise TypeError(f"expected an address or a buffer, not {type(value).__name__}") from None
    return int(view.__array_interface__["data"][0]) if view.size >= size else 0


class StructReader(Generic[T]):
    """Reads structs of the bindings by their bytes, as the driver does.

    Reading one field through the bindings costs more than the rest of a call, and fails for a value that is in no
    enum, such as an OR of handle types. Programs pass the same few structs again and again: a struct's memory is
    looked up by its identity, and what the bytes mean by the bytes.
    """

    def __init__(self, size: int, read: Callable[[bytes], T]) -> None:
        self._size = size
        self._read = read
        self._windows: dict[int, tuple[Any, Any]] = {}
        self._meanings: dict[bytes, T] = {}

    def __call__(self, struct: Any) -> T:
        """The meaning of ``struct``."""
        found = self._windows.get(id(struct)) or self._open(struct)
        raw = found[1].raw
        meaning = self._meanings.get(raw)
        if meaning is None:
            meaning = self._meanings[raw] = self._read(raw)
        return meaning

    def _open(self, struct: Any) -> tuple[Any, Any]:
        if len(self._windows) >= 64:  # each entry keeps its struct alive
            self._windows.clear()
        window = (ctypes.c_char * self._size).from_address(struct.getPtr())
        self._windows[id(struct)] = entry = (struct, window)
        return entry
