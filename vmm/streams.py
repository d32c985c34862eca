"""Streams: the handle that the driver knows, of a stream or an event of any library."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from .driver import EventHandle, StreamHandle
from .errors import RangeError

Stream = Any
"""A stream's handle as an int (0: the default stream), CUstream of cuda.bindings, or a stream of CuPy, PyTorch,
cuda.core, Numba or RMM: any object with ``__cuda_stream__()``, or with its handle as ``cuda_stream`` or ``ptr``."""

PER_THREAD = 2
"""CU_STREAM_PER_THREAD: one handle, and another stream in every thread."""
_PROTOCOL = 0
"""The version of ``__cuda_stream__`` that is known: https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html"""


def stream_handle(stream: Stream) -> int:
    """The handle of ``stream`` as an int.

    Raises TypeError for what is no stream: None is none either, for libraries do not agree on what it would name; and
    RangeError for a number that can be no handle.
    """
    if type(stream) is int:
        return _checked(stream)
    if isinstance(stream, StreamHandle):
        return int(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return _protocol_handle(stream, protocol() if callable(protocol) else protocol)
    if event_handle(stream) is not None:
        raise TypeError(f"{stream!r} is an event and no stream; give the stream that it was recorded in")
    for name in ("cuda_stream", "ptr"):  # PyTorch; CuPy before it had the protocol
        handle = getattr(stream, name, None)
        if isinstance(handle, SupportsIndex):
            return _checked(operator.index(handle))
    if isinstance(stream, SupportsIndex) and not isinstance(stream, bool):
        return _checked(operator.index(stream))
    raise TypeError(f"{stream!r} is no stream; give a handle (0 is the default stream), or an object of a library")


def event_handle(event: Any) -> int | None:
    """The handle of an event, CUevent or one of cuda.core, CuPy, PyTorch or Numba; None of anything else."""
    if isinstance(event, EventHandle):
        return int(event)
    if isinstance(event, int) or hasattr(event, "__cuda_stream__"):
        return None
    if hasattr(event, "cuda_event"):  # PyTorch
        return int(event.cuda_event)
    if isinstance(getattr(event, "handle", None), EventHandle):  # cuda.core, Numba
        return int(event.handle)
    if hasattr(event, "ptr") and not hasattr(event, "wait_event"):  # CuPy; only its streams can wait for an event
        return int(event.ptr)
    return None


def _checked(handle: int) -> int:
    """A handle that fits the driver's 64 bits."""
    if not 0 <= handle < 1 << 64:
        raise RangeError(f"stream {handle} is no handle: those are 0 (the default stream) to 2**64 - 1")
    return handle


def _protocol_handle(stream: object, answer: Any) -> int:
    """The handle in what ``__cuda_stream__`` answers: (version, handle)."""
    try:
        version, handle = answer
    except (TypeError, ValueError):
        raise TypeError(f"{stream!r}.__cuda_stream__() gave {answer!r}, not (version, handle)") from None
    if version != _PROTOCOL:
        raise TypeError(f"{stream!r} speaks version {version} of __cuda_stream__; version {_PROTOCOL} is known here")
    return _checked(int(handle))
