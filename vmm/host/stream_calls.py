"""Streams, events and host functions."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as cuda

from .arguments import number
from .execution import Context, Event, Stream, Work
from .results import (
    ILLEGAL_ADDRESS,
    INVALID,
    INVALID_1,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    NOT_READY,
    OK,
    SUCCESS,
    Result,
)
from .work_queue import WorkQueue

_STREAM_FLAGS = 0x1  # non-blocking
_EVENT_FLAGS = 0x7  # blocking sync, disable timing, interprocess
_DISABLE_TIMING = 0x2
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class StreamCalls(WorkQueue):
    """The calls that order work, and those that wait for it."""

    def cuStreamCreate(self, Flags: int) -> Result:
        """A stream of the current context."""
        current = self._usable()
        if not isinstance(current, Context):
            return current, None
        if number(Flags) & ~_STREAM_FLAGS:
            return INVALID_1
        handle = next(self._identities)
        self._streams[handle] = current.new_stream(blocking=not Flags)
        return SUCCESS, cuda.CUstream(handle)

    def cuStreamDestroy(self, hStream: Any) -> Result:
        """Destroy a stream; its work still runs. The default ones cannot be destroyed."""
        stream = self._streams.pop(number(hStream), None)
        if stream is None:
            return (INVALID_HANDLE,)
        stream.context.forget(stream)
        return OK

    def cuStreamSynchronize(self, hStream: Any) -> Result:
        """Wait for a stream's work. The legacy stream's comes after that of all blocking streams."""
        stream = self._stream_for(hStream)
        if not isinstance(stream, Stream):
            return (stream,)
        return OK if self._eager else self._wait(stream.context, self._left(stream))

    def cuStreamQuery(self, hStream: Any) -> Result:
        """Whether all work of a stream has run."""
        stream = self._stream_for(hStream)
        if not isinstance(stream, Stream):
            return (stream,)
        return OK if self._eager else self._ask(stream.context, self._left(stream))

    @staticmethod
    def _left(stream: Stream) -> list[Any]:
        """The last work of a stream, or what the legacy stream would wait for."""
        if stream is stream.context.legacy:
            return stream.context.before(stream)
        work = stream.pending
        return [] if work is None else [work]

    def cuCtxSynchronize(self) -> Result:
        """Wait for all work of the current context."""
        current = self._usable()
        if not isinstance(current, Context):
            return (current,)
        return OK if self._eager else self._wait(current, current.pending())

    def cuStreamWaitEvent(self, hStream: Any, hEvent: Any, Flags: int) -> Result:
        """Let a stream's next work wait for an event, as it was recorded last."""
        stream = self._stream_for(hStream)
        if not isinstance(stream, Stream):
            return (stream,)
        event = self._events.get(number(hEvent))
        if event is None:
            return (INVALID_HANDLE,)
        if number(Flags) & ~1:
            return INVALID
        for work in event.left:
            self._queue(stream, _nothing, after=work)
        return OK

    def cuLaunchHostFunc(self, hStream: Any, fn: Any, userData: Any) -> Result:
        """Call a C function, a CUhostFn or its address, in a stream's order. It must not call the driver."""
        stream = self._stream_for(hStream)
        if not isinstance(stream, Stream):
            return (stream,)
        address, data = int(fn or 0), number(userData)
        if not address:
            return INVALID
        if self._eager:
            _HostFunction(address)(data)
        else:
            self._queue(stream, lambda: _HostFunction(address)(data))
        return OK

    # -- events -------------------------------------------------------------------------------------------------

    def cuEventCreate(self, Flags: int) -> Result:
        """An event of the current context; before it is recorded it counts as complete."""
        current = self._usable()
        if not isinstance(current, Context):
            return current, None
        flags = number(Flags)
        if flags & ~_EVENT_FLAGS:
            return INVALID_1
        handle = next(self._identities)
        self._events[handle] = Event(current, not flags & _DISABLE_TIMING)
        return SUCCESS, cuda.CUevent(handle)

    def cuEventRecord(self, hEvent: Any, hStream: Any) -> Result:
        """Move an event to the end of a stream."""
        event = self._events.get(number(hEvent))
        if event is None:
            return (INVALID_HANDLE,)
        stream = self._stream_for(hStream)
        if not isinstance(stream, Stream):
            return (stream,)
        if self._eager:
            event.record(None)
        else:
            event.record(lambda reach: self._queue(stream, reach))
        return OK

    def cuCtxRecordEvent(self, hCtx: Any, hEvent: Any) -> Result:
        """Move an event to the end of all streams of a context. The context need not be current."""
        context, event = self._context_named(hCtx), self._events.get(number(hEvent))
        if not isinstance(context, Context):
            return (context,)
        if event is None or event.context is not context:
            return (INVALID_HANDLE,)
        if self._eager:
            event.record(None)
        else:
            with self._lock:
                event.record(lambda reach: Work(context, reach, list(context.pending()), None))
        return OK

    def cuCtxWaitEvent(self, hCtx: Any, hEvent: Any) -> Result:
        """Let all later work of a context wait for an event, as it was recorded last."""
        context, event = self._context_named(hCtx), self._events.get(number(hEvent))
        if not isinstance(context, Context):
            return (context,)
        if event is None:
            return (INVALID_HANDLE,)
        for work in event.left:
            for stream in context.streams():
                self._queue(stream, _nothing, after=work)
        return OK

    def _context_named(self, handle: Any) -> Context | Any:
        """The active context of that handle, or the status that refuses it."""
        wanted = number(handle)
        found = next((context for context in self._contexts if context.handle == wanted and context.count), None)
        if found is None:
            return INVALID_CONTEXT
        return found if found.fault is None else ILLEGAL_ADDRESS

    def cuEventQuery(self, hEvent: Any) -> Result:
        """Whether an event was reached."""
        event = self._reachable(hEvent)
        if not isinstance(event, Event):
            return (event,)
        return self._ask(event.context, event.left)

    def cuEventSynchronize(self, hEvent: Any) -> Result:
        """Wait for an event."""
        event = self._reachable(hEvent)
        if not isinstance(event, Event):
            return (event,)
        return self._wait(event.context, event.left)

    def _reachable(self, handle: Any) -> Event | Any:
        """The event of that handle, or the status that refuses it."""
        event = self._events.get(number(handle))
        if event is None:
            return INVALID_HANDLE
        return event if event.context.fault is None else ILLEGAL_ADDRESS

    def cuEventElapsedTime(self, hStart: Any, hEnd: Any) -> Result:
        """Milliseconds between two recorded events that keep time; not ready before both were reached."""
        start, end = self._events.get(number(hStart)), self._events.get(number(hEnd))
        if start is None or end is None or not start.timed or not end.timed:
            return INVALID_HANDLE, None
        if start.pending or end.pending:
            return NOT_READY, None
        if start.time is None or end.time is None:
            return INVALID_HANDLE, None
        return SUCCESS, (end.time - start.time) * 1e3

    def cuEventDestroy(self, hEvent: Any) -> Result:
        """Destroy an event."""
        return OK if self._events.pop(number(hEvent), None) is not None else (INVALID_HANDLE,)


def _nothing() -> None:
    """What a wait does besides waiting."""
