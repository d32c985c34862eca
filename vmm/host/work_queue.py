"""Queued work, and when it runs.

``streams="eager"``: at the call. ``streams="deferred"``: only when somebody waits for it or asks about it, and then
after everything that it must come after: the latest moment that a GPU could choose. A program that unmaps memory
without a wait before is found out every time. A query says that the work is not ready, and only then lets it run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import DriverError
from .arguments import number
from .execution import Context, Stream, Work
from .launch_view import LaunchView
from .results import ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, OK, Result

_LEGACY, _PER_THREAD = (0, 1), 2


class WorkQueue(LaunchView):
    """Puts work into streams and runs it."""

    def _stream_for(self, stream: Any) -> Stream | Any:
        """The stream of that handle, or the status that refuses it.

        A default stream is that of the current context, which must be there; its handle is the same for all devices.
        """
        handle = number(stream)
        if handle <= _PER_THREAD:
            current = self._current()
            if current is None:
                return INVALID_CONTEXT
            found: Stream | None = current.legacy if handle in _LEGACY else current.thread_stream()
        else:
            found = self._streams.get(handle)
        if found is None:
            return INVALID_HANDLE
        return found if found.context.fault is None else ILLEGAL_ADDRESS

    def _queue(
        self, stream: Stream, run: Callable[[], None], keepalive: object = None, after: Work | None = None
    ) -> Work:
        """Put work at the end of a stream."""
        with self._lock:
            before = stream.context.before(stream)
            work = Work(stream.context, run, before if after is None else [*before, after], keepalive)
            stream.last = work
        return work

    def _finish(self, works: Iterable[Work]) -> None:
        """Run work, after all that comes before it. Raises what a queued Python function raises."""
        with self._running:
            waiting = list(works)
            while waiting:
                work = waiting[-1]
                before = [other for other in work.after if not other.started]
                if work.started or not before:
                    waiting.pop()
                if not work.started:
                    if before:
                        waiting.extend(before)
                    else:
                        self._execute(work)

    def _execute(self, work: Work) -> None:
        """Run one piece of work in its context; in a context that is lost, nothing runs any more."""
        work.started = True
        if work.context.fault is not None:
            work.finish()
            return
        stack = self._thread.stack
        stack.append(work.context)
        try:
            work.run()
        except DriverError as error:
            if error.code != ILLEGAL_ADDRESS:
                raise
            if work.context.fault is None:
                work.context.fault = error.hint or str(error)
        finally:
            stack.pop()
            work.finish()

    def _wait(self, context: Context, works: Iterable[Work]) -> Result:
        """Run work that somebody waits for; the status of its context then."""
        self._finish(works)
        return OK if context.fault is None else (ILLEGAL_ADDRESS,)

    def _ask(self, context: Context, works: list[Work]) -> Result:
        """Whether no work is left. What is left runs before the next question."""
        if not works:
            return OK
        self._finish(works)
        return (NOT_READY,) if context.fault is None else (ILLEGAL_ADDRESS,)

    def _drain(self) -> None:
        """Run all work of the current context, as freeing plain memory does on a GPU."""
        current = self._current()
        if current is not None and not self._eager:
            self._finish(current.pending())

    def submit(self, stream: int, call: Callable[[], None], keepalive: object = None) -> None:
        """Queue a launch, with the rights of its device; ``keepalive`` is held until it has run.

        Raises DriverError for a stream that does not exist and in a context that is lost. Eager streams raise what
        ``call`` raises. With deferred ones an error that is no fault comes out of the call that waits for the work.
        """
        found = self._stream_for(stream)
        if not isinstance(found, Stream):
            raise DriverError("cuLaunchKernel", int(found), found.name, (stream,), str(self.diagnosis(int(found))))
        if not self._eager:
            self._queue(found, lambda: self._launch(found.context, call), keepalive)
            return
        with self._running:
            try:
                self._launch(found.context, call)
            except DriverError as error:
                if error.code == ILLEGAL_ADDRESS:
                    found.context.fault = error.hint or str(error)
                raise

    def _launch(self, context: Context, call: Callable[[], None]) -> None:
        with self._as_seen_by(context):
            call()

    def diagnosis(self, code: int) -> object:
        """What is known about a status, as text or a Touch: of this thread's last refused copy (1) or a fault (700)."""
        if code != ILLEGAL_ADDRESS:
            return self._thread.refused
        lost = [context for context in (self._current(), *self._contexts) if context is not None and context.fault]
        return lost[0].fault if lost else ""

    def reset_context(self, device: int = 0) -> None:
        """Make a device's context usable again after a fault, which on a GPU takes a new process. Queued work is lost.

        Releasing the primary context to the last user and retaining it again does the same.
        """
        with self._running:
            self._contexts[device].renew()
