"""DLPack capsules: how array libraries hand each other memory (https://dmlc.github.io/dlpack/latest/c_api.html).

NumPy makes the capsule and its deleter, which is right about the interpreter's lock and its end; what NumPy cannot say,
a GPU's memory or bfloat16, is written into the capsule's struct before anybody has it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU, CUDA = 1, 2
"""DLDeviceType: kDLCPU and kDLCUDA."""

_FLOAT8 = {  # DLDataTypeCode of DLPack 1.1
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat16": 4, "complex": 5, "bool": 6, **_FLOAT8}
_VERSIONED = (1, 0)
"""The first version whose capsules say which version they are of, and whether their memory may be written."""


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned. The older DLManagedTensor begins with its DLTensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether a type is one of NumPy's own numbers. Those of ml_dtypes are not, whatever kind they say they are of."""
    return dtype.isbuiltin == 1 and dtype.kind in "biufc"


def type_code(dtype: np.dtype[Any]) -> int:
    """DLPack's code of a type. Raises BufferError for one that it does not have."""
    name = dtype.name.rstrip("0123456789") if is_numpys(dtype) else dtype.name
    if name not in _CODES or not dtype.isnative:
        raise BufferError(f"DLPack has no type for {dtype}; view the memory as uint{8 * dtype.itemsize} instead")
    return _CODES[name]


def capsule(
    numbers: NDArray[Any], dtype: np.dtype[Any], device: tuple[int, int], max_version: tuple[int, int] | None
) -> object:
    """A capsule of ``numbers``, integers as wide as ``dtype`` that are ``dtype`` in truth and lie on ``device``.

    It keeps ``numbers`` alive until its consumer is done. No byte is looked at, so the address may be a GPU's.
    ``max_version`` is what the consumer understands; None, and NumPy before 2.1, give the capsule of before 1.0.
    Raises BufferError for memory that may not be written in that capsule, which could not say so.
    """
    code = type_code(dtype)
    versioned = max_version is not None and max_version >= _VERSIONED and _numpy_makes_versioned()
    if not (versioned or numbers.flags.writeable):
        raise BufferError("this memory may only be read, which a DLPack capsule older than 1.0 cannot say; ask for 1.0")
    made = numbers.__dlpack__(max_version=_VERSIONED) if versioned else numbers.__dlpack__()
    tensor = _tensor_of(made, versioned)
    tensor.device_type, tensor.device_id = device
    tensor.dtype.code = code
    return made


def _numpy_makes_versioned() -> bool:
    return np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def _tensor_of(made: object, versioned: bool) -> _Tensor:
    if not versioned:
        return _Tensor.from_address(_pointer(made, b"dltensor"))
    tensor: _Tensor = _Versioned.from_address(_pointer(made, b"dltensor_versioned")).tensor
    return tensor
