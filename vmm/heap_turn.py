"""HeapTurn: who changes a heap now. Taking a turn is one step, which an interrupt cannot cut in two.

Python raises KeyboardInterrupt between any two steps, so a lock that is taken in one and noted in the next may stay
locked for ever. Here the note is the lock: the entry of a dictionary names who has the turn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from .errors import StateError
from .uninterrupted import Uninterrupted


class _Borrower:
    """Another thread, which has the turn for a moment and never waits for anybody."""

    def __init__(self) -> None:
        self.done = threading.Event()


class HeapTurn(dict[int, object]):
    """``setdefault(0, me) is me`` takes the turn of an idle heap, ``del turn[0]`` ends it."""

    def wait(self, me: object) -> None:
        """Take a turn that was not to be had: wait for a borrower; raise StateError for another thread's change."""
        while True:
            holder = self.setdefault(0, me)
            if holder is me:
                return
            if not isinstance(holder, _Borrower):
                raise StateError("this Heap is being changed by another thread; one thread at a time")
            holder.done.wait()

    def end(self, me: object) -> None:
        """End the turn if it is ``me`` who has it."""
        if self.get(0) is me:
            del self[0]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have the turn inside the ``with``, whole: an interrupt is raised at its end."""
        with Uninterrupted():
            me = object()
            self.wait(me)
            try:
                yield
            finally:
                self.end(me)

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[bool]:
        """Have the turn inside the ``with`` if the heap is idle: whether that is so. For any thread."""
        with Uninterrupted():
            me = _Borrower()
            try:
                yield self.setdefault(0, me) is me
            finally:
                self.end(me)
                me.done.set()
