"""Where work runs: contexts, streams and the work that is queued in them, events, the current contexts of a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from .physical import Bank


class Work:
    """Something queued. It runs after all of ``after``; what it holds is dropped when it has run."""

    __slots__ = ("after", "context", "done", "keepalive", "run", "started")

    def __init__(self, context: Context, run: Callable[[], None], after: list[Work], keepalive: object) -> None:
        self.context, self.run, self.after, self.keepalive = context, run, after, keepalive
        self.started = self.done = False

    def finish(self) -> None:
        """Hold nothing any more."""
        self.done, self.run, self.after, self.keepalive = True, _nothing, [], None


def _nothing() -> None:
    """What finished work does."""


class Stream:
    """An order of work; ``last`` is what was queued last. A ``blocking`` one keeps order with the legacy stream."""

    __slots__ = ("blocking", "context", "last")

    def __init__(self, context: Context, blocking: bool = True) -> None:
        self.context, self.blocking = context, blocking
        self.last: Work | None = None

    @property
    def pending(self) -> Work | None:
        """The last work, if it has not run yet."""
        last = self.last  # another thread may run it meanwhile
        return None if last is None or last.done else last


class Context:
    """The primary context of a device; it is active while ``count`` users retain it.

    ``fault`` says what a kernel or queued copy did that it must not; from then on the context is of no use.
    """

    __slots__ = ("_streams", "_threads", "bank", "count", "fault", "handle", "legacy")

    def __init__(self, handle: int, bank: Bank) -> None:
        self.handle, self.bank = handle, bank
        self.count = 0
        self.fault: object = None
        self.legacy = Stream(self)
        self._threads: dict[int, Stream] = {}
        self._streams: list[Stream] = []

    @property
    def ordinal(self) -> int:
        """The device's number."""
        return self.bank.location[1]

    def thread_stream(self) -> Stream:
        """The default stream of the calling thread."""
        return self._threads.setdefault(threading.get_ident(), Stream(self))

    def new_stream(self, blocking: bool) -> Stream:
        """One more stream; those that were destroyed stay until their work has run."""
        made = Stream(self, blocking)
        self._streams.append(made)
        return made

    def forget(self, stream: Stream) -> None:
        """Let a destroyed stream go. ``pending`` still finds its work."""
        if stream.pending is None and stream in self._streams:
            self._streams.remove(stream)

    def before(self, stream: Stream) -> list[Work]:
        """What new work in a stream must wait for, by the rules of the default stream."""
        if stream is self.legacy:
            return [*self.pending(lambda other: other.blocking)]
        waited = (stream, self.legacy) if stream.blocking else (stream,)
        return [work for found in waited if (work := found.pending) is not None]

    def streams(self) -> list[Stream]:
        """All of its streams; those that were destroyed only while work is left in them."""
        return [self.legacy, *list(self._threads.values()), *list(self._streams)]

    def pending(self, chosen: Callable[[Stream], bool] = lambda _stream: True) -> Iterator[Work]:
        """The last work of each stream that still has some."""
        for stream in self.streams():
            work = stream.pending
            if work is not None and chosen(stream):
                yield work

    def renew(self) -> None:
        """Be as good as new: without a fault, and without work."""
        self.fault = None
        for stream in self.streams():
            stream.last = None


class ThreadStack(threading.local):
    """The current contexts of one thread, the last one on top, and the touch that was refused last."""

    def __init__(self) -> None:
        self.stack: list[Context] = []
        self.refused: object = ""


class Event:
    """A point in a stream, reached when ``work`` is done, at ``time`` in seconds; both None until it is recorded."""

    __slots__ = ("_latest", "context", "time", "timed", "work")

    def __init__(self, context: Context, timed: bool) -> None:
        self.context, self.timed = context, timed
        self.time: float | None = None
        self.work: Work | None = None
        self._latest = object()

    def record(self, queue: Callable[[Callable[[], None]], Work] | None) -> None:
        """Move to the work that ``queue`` makes of a function; with None, to now."""
        latest = self._latest = object()

        def reach() -> None:  # another thread may run it before this one goes on
            if self._latest is latest:  # not recorded again since
                self.time = time.perf_counter()

        self.work = None if queue is None else queue(reach)
        if queue is None:
            reach()

    @property
    def pending(self) -> Work | None:
        """The work before the event, if it has not run yet."""
        work = self.work  # another thread may run it meanwhile
        return None if work is None or work.done else work

    @property
    def left(self) -> list[Work]:
        """The same as a list, for those who run it."""
        work = self.pending
        return [] if work is None else [work]
