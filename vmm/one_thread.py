"""one_thread: what belongs to one thread at a time says so to a second one, and does not make it wait."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from .errors import StateError
from .uninterrupted import note_interrupts, raise_noted


class _Lock(Protocol):
    def acquire(self, blocking: bool = ...) -> bool: ...

    def release(self) -> None: ...


class _Owned(Protocol):
    @property
    def busy(self) -> _Lock: ...


Self = TypeVar("Self", bound=_Owned)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Turn:
    """A lock for ``one_thread`` that somebody else may borrow while its object is idle, to take what that can spare.

    The object's own thread cannot know of that, so it waits for the borrower, who never waits for anybody.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._borrowed = False
        self.release = self._lock.release  # let it go: the lock's own, without a step between

    def acquire(self, blocking: bool = False) -> bool:
        """Whether it is the caller's now. Waits only for a borrower, unless ``blocking``."""
        return self._lock.acquire(blocking=blocking) or (self._borrowed and self._lock.acquire())

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[bool]:
        """Have it inside the ``with``, if nobody has: whether that is so."""
        mine = self._lock.acquire(blocking=False)
        try:
            self._borrowed = self._borrowed or mine
            yield mine
        finally:
            if mine:
                self._borrowed = False
                self._lock.release()


def one_thread(
    change: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """Guard a method by its object's ``busy``; it raises StateError while another thread is in one of them.

    An interrupt is raised at its end.
    """

    @functools.wraps(change)
    def guarded(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        handler = note_interrupts()  # from before the lock is had, which would stay locked
        try:
            busy = self.busy
            if not busy.acquire(blocking=False):
                raise StateError(f"this {type(self).__name__} is being changed by another thread; one thread at a time")
            try:
                return change(self, *args, **kwargs)
            finally:
                busy.release()
        finally:
            if handler is not None:
                raise_noted(handler)

    return guarded
