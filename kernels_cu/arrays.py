"""What a launch needs to know of an array, NumPy or CuPy, and the checks that every array passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .errors import LaunchError

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}
Array = Any
"""A numpy.ndarray on the CPU, a cupy.ndarray on a GPU."""


@dataclass(frozen=True, slots=True)
class ArrayView:
    """Address, shape, and strides in elements of an array that has passed the checks."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def row_stride(self) -> int:
        """Elements from one index of the first axis to the next."""
        return self.strides[0]


NULL = ArrayView(0, (0,), (0,))
"""Of an optional array that is not there: kernels get a null pointer."""


def dtype_of(name: str, array: Array, allowed: tuple[str, ...]) -> str:
    """The name in DTYPES of an array's type. Raises LaunchError unless it is one of ``allowed``."""
    found = next((dtype for dtype in allowed if getattr(array, "dtype", None) == DTYPES[dtype]), None)
    if found is None:
        dtype = getattr(array, "dtype", type(array).__name__)
        raise LaunchError(f"{name} must be one of {', '.join(allowed)}, not {dtype}; convert it with astype")
    return found


def view(
    name: str,
    array: Array,
    arch: str,
    dtype: str,
    shape: tuple[int | None, ...],
    *,
    writable: bool = False,
    packed: bool = False,
) -> ArrayView:
    """Check an array and return what a kernel needs of it.

    ``dtype`` and ``shape`` are what it must have (None: any extent); rows may lie apart unless ``packed``, but every
    axis behind the first must be packed, because kernels step over it as one. Raises LaunchError that names ``name``.
    """
    _check_device(name, array, arch)
    if array.dtype != DTYPES[dtype]:
        raise LaunchError(f"{name} must be {dtype}, not {array.dtype.name}; convert it with astype")
    if not _fits(array.shape, shape):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise LaunchError(f"{name} must have shape [{wanted}], not {list(array.shape)}")
    strides = _packed(array.shape) if array.flags.c_contiguous else _strides(name, array)
    checked = ArrayView(_address(array), array.shape, strides)
    if checked.address % array.itemsize:
        raise LaunchError(f"{name} begins at {checked.address:#x}, not at a multiple of {array.itemsize}; copy it")
    if writable:
        _check_writable(name, array, checked)
    if packed and array.shape[0] > 1 and checked.row_stride != math.prod(array.shape[1:]):
        raise LaunchError(f"{name} must be packed, but its rows lie {checked.row_stride} elements apart; copy it")
    return checked


def optional_view(
    name: str,
    array: Array | None,
    arch: str,
    dtype: str,
    shape: tuple[int | None, ...],
    *,
    writable: bool = False,
    packed: bool = False,
) -> ArrayView:
    """What ``view`` gives, or NULL for None."""
    return NULL if array is None else view(name, array, arch, dtype, shape, writable=writable, packed=packed)


def _check_device(name: str, array: Array, arch: str) -> None:
    if arch == "host" and not isinstance(array, np.ndarray):
        raise LaunchError(f"{name} must be a NumPy array where kernels run on the CPU, not {type(array).__name__}")
    if arch != "host" and not hasattr(getattr(array, "data", None), "ptr"):  # its __cuda_array_interface__ would wait
        raise LaunchError(f"{name} must be a CuPy array where kernels run on a GPU, not {type(array).__name__}")


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    if shape == wanted:  # most often, and quickly seen
        return True
    if len(shape) != len(wanted):
        return False
    return all(want is None or have == want for have, want in zip(shape, wanted, strict=True))


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array whose elements lie side by side."""
    strides, packed = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = packed
        packed *= shape[axis]
    return tuple(strides)


def _address(array: Array) -> int:
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.data.ptr)


def _strides(name: str, array: Array) -> tuple[int, ...]:
    """Strides in elements. Those of an empty array, or of an axis with one entry, mean nothing: taken as packed."""
    packed, strides = 1, []
    for axis in reversed(range(array.ndim)):
        stride, left = divmod(array.strides[axis], array.itemsize)
        extent, may_lie_apart = array.shape[axis], axis == 0 and array.ndim > 1
        if extent <= 1 or array.size == 0:
            stride = packed
        elif left or (stride != packed and not may_lie_apart):
            raise LaunchError(
                f"{name} must be packed{' behind its first axis' if array.ndim > 1 else ''}, but axis {axis} has "
                f"a stride of {array.strides[axis]} bytes; copy it with ascontiguousarray"
            )
        strides.append(stride)
        packed *= extent
    return tuple(reversed(strides))


def _check_writable(name: str, array: Array, checked: ArrayView) -> None:
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise LaunchError(f"{name} is read-only; pass an array that may be written")
    row = math.prod(array.shape[1:])
    if array.shape[0] > 1 and abs(checked.row_stride) < row:
        raise LaunchError(f"{name} has rows of {row} elements that overlap: they lie {checked.row_stride} apart")
