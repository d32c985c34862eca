"""Status codes and the tuples that carry them, as ``cuda.bindings.driver`` returns them."""

from __future__ import annotations

import logging
from typing import Any

from cuda.bindings import driver as cuda

SUCCESS = cuda.CUresult.CUDA_SUCCESS
INVALID_VALUE = cuda.CUresult.CUDA_ERROR_INVALID_VALUE
OUT_OF_MEMORY = cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
NOT_INITIALIZED = cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED
DEINITIALIZED = cuda.CUresult.CUDA_ERROR_DEINITIALIZED
INVALID_DEVICE = cuda.CUresult.CUDA_ERROR_INVALID_DEVICE
INVALID_CONTEXT = cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT
PEER_ACCESS_UNSUPPORTED = cuda.CUresult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
NOT_READY = cuda.CUresult.CUDA_ERROR_NOT_READY
ILLEGAL_ADDRESS = cuda.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
INVALID_HANDLE = cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
NOT_FOUND = cuda.CUresult.CUDA_ERROR_NOT_FOUND
NOT_PERMITTED = cuda.CUresult.CUDA_ERROR_NOT_PERMITTED
NOT_SUPPORTED = cuda.CUresult.CUDA_ERROR_NOT_SUPPORTED

Result = tuple[Any, ...]
"""A status, then the outputs; None for each output of a refused call."""

OK: Result = (SUCCESS,)
INVALID: Result = (INVALID_VALUE,)
INVALID_1: Result = (INVALID_VALUE, None)
INVALID_2: Result = (INVALID_VALUE, None, None)
EXHAUSTED: Result = (OUT_OF_MEMORY,)
EXHAUSTED_1: Result = (OUT_OF_MEMORY, None)
NO_CONTEXT: Result = (INVALID_CONTEXT,)
NO_CONTEXT_1: Result = (INVALID_CONTEXT, None)

log = logging.getLogger("vmm")
"""Where the host driver reports what a program should not do although the driver only refuses it."""
