"""Python values as the bindings accept them: ints, the bindings' own pointer and handle types, buffers."""

from __future__ import annotations

import ctypes
import operator
from typing import Any

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
    if isinstance(value, np.ndarray) and value.flags.f_contiguous:
        value = value.T  # contiguous memory in either order will do
    try:
        view = np.frombuffer(value, dtype=np.uint8)
    except TypeError:
        raise TypeError(f"expected an address or a buffer, not {type(value).__name__}") from None
    except ValueError:
        raise RuntimeError(f"{type(value).__name__} is not contiguous; pass a contiguous buffer") from None
    return int(view.__array_interface__["data"][0]) if view.size >= size else 0


class StructBytes:
    """Gives structs of the bindings as bytes, as the driver sees them.

    Reading one field through the bindings costs more than the rest of a call, and fails for a value that is in no
    enum, such as an OR of handle types. Programs pass the same few structs again and again, so each one's memory is
    found by its identity. The bytes are a key for what they mean.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._windows: dict[int, tuple[Any, Any]] = {}

    def __call__(self, struct: Any) -> bytes:
        """The bytes of ``struct`` now. TypeError for what is no struct."""
        found = self._windows.get(id(struct)) or self._open(struct)
        raw: bytes = found[1].raw
        return raw

    def _open(self, struct: Any) -> tuple[Any, Any]:
        if not hasattr(struct, "getPtr"):
            raise TypeError(f"expected a struct of cuda.bindings.driver, not {type(struct).__name__}")
        if len(self._windows) >= 64:  # each entry keeps its struct alive
            self._windows.clear()
        window = (ctypes.c_char * self._size).from_address(struct.getPtr())
        self._windows[id(struct)] = entry = (struct, window)
        return entry
