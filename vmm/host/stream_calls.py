"""Streams and events of the eager kind: work runs when it is submitted, so nothing ever waits."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from .arguments import number
from .execution import Context, Event
from .launch_view import LaunchView
from .results import (
    INVALID,
    INVALID_1,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    NO_CONTEXT_1,
    OK,
    SUCCESS,
    Result,
)

_DEFAULT_STREAMS = (0, 1, 2)  # legacy by two names, per thread
_STREAM_FLAGS = 0x1  # non-blocking
_EVENT_FLAGS = 0x7  # blocking sync, disable timing, interprocess
_DISABLE_TIMING = 0x2
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class StreamCalls(LaunchView):
    """Streams keep order, and an order in which everything has run already is kept by itself."""

    def cuStreamCreate(self, Flags: int) -> Result:
        """A stream of the current context."""
        current = self._current()
        if current is None:
            return NO_CONTEXT_1
        if number(Flags) & ~_STREAM_FLAGS:
            return INVALID_1
        handle = next(self._identities)
        self._streams[handle] = current
        return SUCCESS, cuda.CUstream(handle)

    def _context_for(self, stream: Any) -> Context | Any:
        """The context that a stream's work runs in, or the status that refuses it.

        A default stream is that of the current context, which must be there; its handle is the same for all devices.
        """
        handle = number(stream)
        if handle in _DEFAULT_STREAMS:
            return self._current() or INVALID_CONTEXT
        return self._streams.get(handle, INVALID_HANDLE)

    def cuStreamDestroy(self, hStream: Any) -> Result:
        """Destroy a stream; the default ones cannot be."""
        return OK if self._streams.pop(number(hStream), None) is not None else (INVALID_HANDLE,)

    def cuStreamSynchronize(self, hStream: Any) -> Result:
        """Wait for a stream's work: there is none."""
        context = self._context_for(hStream)
        return OK if isinstance(context, Context) else (context,)

    def cuStreamQuery(self, hStream: Any) -> Result:
        """Whether all work is done: always."""
        return self.cuStreamSynchronize(hStream)

    def cuStreamWaitEvent(self, hStream: Any, hEvent: Any, Flags: int) -> Result:
        """Let a stream wait for an event: it has been reached."""
        context = self._context_for(hStream)
        if not isinstance(context, Context):
            return (context,)
        if number(hEvent) not in self._events:
            return (INVALID_HANDLE,)
        return INVALID if number(Flags) & ~1 else OK

    def cuLaunchHostFunc(self, hStream: Any, fn: Any, userData: Any) -> Result:
        """Call a C function, a CUhostFn or its address, in a stream's order. It must not call the driver."""
        context = self._context_for(hStream)
        if not isinstance(context, Context):
            return (context,)
        address = int(fn or 0)
        if not address:
            return INVALID
        _HostFunction(address)(number(userData))
        return OK

    def submit(self, stream: int, call: Callable[[], None]) -> None:
        """Run a launch in the order of a stream, with the rights of its device. ValueError for an unknown stream."""
        context = self._context_for(stream)
        if not isinstance(context, Context):
            raise ValueError(f"cannot launch on stream {stream:#x}: {context.name}")
        with self._running, self._as_seen_by(context):
            call()

    # -- events -------------------------------------------------------------------------------------------------

    def cuEventCreate(self, Flags: int) -> Result:
        """An event of the current context; before it is recorded it counts as complete."""
        current = self._current()
        if current is None:
            return NO_CONTEXT_1
        flags = number(Flags)
        if flags & ~_EVENT_FLAGS:
            return INVALID_1
        handle = next(self._identities)
        self._events[handle] = Event(current.handle, not flags & _DISABLE_TIMING)
        return SUCCESS, cuda.CUevent(handle)

    def cuEventRecord(self, hEvent: Any, hStream: Any) -> Result:
        """Move an event to the end of a stream, which is now."""
        event = self._events.get(number(hEvent))
        if event is None:
            return (INVALID_HANDLE,)
        context = self._context_for(hStream)
        if not isinstance(context, Context):
            return (context,)
        event.time = time.perf_counter()
        return OK

    def cuEventQuery(self, hEvent: Any) -> Result:
        """Whether an event was reached: always."""
        return OK if number(hEvent) in self._events else (INVALID_HANDLE,)

    def cuEventSynchronize(self, hEvent: Any) -> Result:
        """Wait for an event: it was reached."""
        return self.cuEventQuery(hEvent)

    def cuEventElapsedTime(self, hStart: Any, hEnd: Any) -> Result:
        """Milliseconds between two recorded events that keep time."""
        start, end = self._events.get(number(hStart)), self._events.get(number(hEnd))
        if start is None or end is None or not start.timed or not end.timed:
            return INVALID_HANDLE, None
        if start.time is None or end.time is None:
            return INVALID_HANDLE, None
        return SUCCESS, (end.time - start.time) * 1e3

    def cuEventDestroy(self, hEvent: Any) -> Result:
        """Destroy an event."""
        return OK if self._events.pop(number(hEvent), None) is not None else (INVALID_HANDLE,)
