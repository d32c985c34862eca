"""Prefetch: one thread that makes chunks before anybody asks, so that a step that needs one finds it made.

The thread and its supply share a list of idle chunks, the set of chunks in use and one lock. The thread does not know
the supply, so that a supply that is dropped can go. The driver's create runs without the lock: who needs no more than
what lies idle never waits for it.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection

from .errors import OutOfMemoryError
from .physical import PhysicalMemory, close_each

_log = logging.getLogger("vmm")
_PATIENCE = 1.0  # seconds
_numbers = itertools.count(1)
_all: weakref.WeakValueDictionary[int, Prefetch] = weakref.WeakValueDictionary()


class Prefetch:
    """Keeps ``idle`` filled up to ``target`` chunks from ``make``, with at most ``most`` in ``out`` and ``idle``.

    ``lock`` guards both. After a failure, or after ``rest``, nothing is made until ``resume``. Methods whose text says
    so are called with the lock held.
    """

    def __init__(
        self,
        make: Callable[[], PhysicalMemory],
        idle: list[PhysicalMemory],
        out: Collection[PhysicalMemory],
        lock: threading.RLock,
        target: int,
        most: int | None,
    ) -> None:
        self.target = target
        self.coming = 0  # chunks that are being made: 0 or 1
        self.error: Exception | None = None
        self.lock = lock
        self._make, self._idle, self._out, self._most = make, idle, out, most
        self._changed = threading.Condition(lock)
        self._resumed = 0  # how often memory has come back
        self._waiting = 0  # takers that wait for the chunk that is coming; the thread lets them go first
        self._resting = self._stopping = self._abandoned = False
        # A daemon: the interpreter waits for other threads before it runs the finalizers that end this one.
        self._thread = threading.Thread(target=self._run, name="vmm-prefetch", daemon=True)
        self._thread.start()
        _all[next(_numbers)] = self

    # -- for the supply -----------------------------------------------------------------------------------------

    def land(self) -> None:
        """Wait for the chunk that is being made, if there is one: it costs no more time than making another.

        With the lock held, which is let go meanwhile.
        """
        self._waiting += 1
        try:
            self._changed.wait_for(lambda: not self.coming)
        finally:
            self._waiting -= 1
            self._changed.notify_all()

    def wake(self) -> None:
        """Look again whether chunks are missing. With the lock held."""
        self._changed.notify_all()

    def rest(self) -> None:
        """Make nothing until ``resume``: somebody else needs the memory. With the lock held."""
        self._resting = True

    def resume(self) -> None:
        """There is memory again: forget a failure and go on. With the lock held."""
        self._resting, self.error = False, None
        self._resumed += 1
        self._changed.notify_all()

    def wait(self, timeout: float | None) -> bool:
        """Wait until there is nothing left to do; False after ``timeout`` seconds. With the lock held."""
        return self._changed.wait_for(lambda: not self.coming and not self._lacks(), timeout)

    def stop(self) -> None:
        """End the thread; it is gone when this returns. Not with the lock held. Stopping twice does nothing."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    def abandon(self) -> bool:
        """End the thread of a supply that was dropped; whether it is gone. If not, it releases what is idle at its end.

        The garbage collector may run this anywhere: in the thread itself, and inside a call of a driver that the thread
        waits for.
        """
        self._stopping = self._abandoned = True
        if threading.current_thread() is self._thread:
            return False
        if self.lock.acquire(timeout=_PATIENCE):
            self._changed.notify_all()
            self.lock.release()
        self._thread.join(_PATIENCE)
        return not self._thread.is_alive()

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._changed:
            while not self._stopping:
                if self._lacks() and not self._waiting:
                    self._prepare()
                else:
                    self._changed.wait()
            if self._abandoned:
                close_each(self._idle.pop() for _ in range(len(self._idle)))

    def _lacks(self) -> bool:
        """Whether a chunk is missing that may be made."""
        idle = len(self._idle)
        room = self._most is None or len(self._out) + idle < self._most
        return idle < self.target and room and not self._resting and not self._stopping

    def _prepare(self) -> None:
        """Make one chunk, without the lock."""
        self.coming, resumed = 1, self._resumed
        made: list[PhysicalMemory] = []
        failure: Exception | None = None
        self.lock.release()
        try:
            made.append(self._make())
        except Exception as error:  # a thread has nobody to raise to: kept for whoever asks
            failure = error
            _report(error)
        finally:
            self.lock.acquire()
            self.coming = 0
            self._idle.extend(made)
            self._changed.notify_all()
        if failure is not None and resumed == self._resumed:  # else memory came back meanwhile
            self.error, self._resting = failure.with_traceback(None), True  # a traceback would keep this frame

    # -- forks --------------------------------------------------------------------------------------------------

    def forked(self) -> None:
        """In a child: there is no thread, and no chunk is coming."""
        self._stopping, self.coming = True, 0


def _report(error: Exception) -> None:
    level = logging.INFO if isinstance(error, OutOfMemoryError) else logging.WARNING  # to be full is no fault
    _log.log(level, "prefetch rests until chunks are given back: %s", error)


class _Fork:
    """Holds every lock while the process forks, so that a child finds none taken by a thread that it does not have."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._held: list[Prefetch] = []

    def before(self) -> None:
        """In the parent: wait until nobody is in the middle of a change."""
        self._one.acquire()
        for reference in _all.valuerefs():
            found = reference()
            if found is not None:
                found.lock.acquire()
                self._held.append(found)

    def after(self) -> None:
        """In the parent, and in the child: let go."""
        while self._held:
            self._held.pop().lock.release()
        self._one.release()

    def in_child(self) -> None:
        """In the child."""
        for found in self._held:
            found.forked()
        self.after()


_fork = _Fork()
os.register_at_fork(before=_fork.before, after_in_parent=_fork.after, after_in_child=_fork.in_child)
