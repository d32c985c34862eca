"""uninterrupted: Ctrl-C waits until the books and the driver agree again.

Python raises KeyboardInterrupt between any two steps, also between a driver call and the line that notes what it did.
Nothing could undo that: memory would be mapped that nobody knows of, and its range could not be closed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # mypy has no stub; signal makes enums of numbers, for 20 us a with
import functools
from collections.abc import Callable
from types import FrameType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class _Owner(Protocol):
    def close(self) -> None: ...


Owner = TypeVar("Owner", bound=_Owner)
Self = TypeVar("Self")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_get, _set, _SIGINT = _signal.getsignal, _signal.signal, _signal.SIGINT
_noted: list[FrameType | None] = []
"""Interrupts that wait; only the main thread, which alone gets them, touches this."""


def _note(_number: int, frame: FrameType | None) -> None:
    _noted.append(frame)


def note_interrupts() -> Any:
    """Note interrupts from now on, instead of raising them; return what ``raise_noted`` then takes.

    None, and nothing to do, inside of what waits already, in a thread without interrupts and where Python raises none.
    """
    handler = _get(_SIGINT)
    if handler is _note or not callable(handler):
        return None
    try:
        _set(_SIGINT, _note)
    except ValueError:  # only the main thread may, and only it gets interrupts
        return None
    return handler


def raise_noted(handler: Any) -> None:
    """Give interrupts back to ``handler``, and tell it of one that was noted."""
    _set(_SIGINT, handler)
    if _noted:
        frame = _noted[-1]
        _noted.clear()
        handler(_SIGINT, frame)


class Uninterrupted:
    """A ``with`` in which an interrupt is noted and not raised; it is raised at the end of the outermost one."""

    __slots__ = ("_handler",)

    def __enter__(self) -> None:
        self._handler = note_interrupts()

    def __exit__(self, *exc: object) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            raise_noted(handler)


def uninterrupted(change: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that runs to its end, whatever the user does; then KeyboardInterrupt is raised."""

    @functools.wraps(change)
    def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        handler = note_interrupts()
        if handler is None:
            return change(*args, **kwargs)
        try:
            return change(*args, **kwargs)
        finally:
            raise_noted(handler)

    return guarded


def whole(make: Callable[Concatenate[Owner, Arguments], None]) -> Callable[Concatenate[Owner, Arguments], None]:
    """A constructor that runs to its end; where an interrupt came meanwhile, what it made is closed again."""

    @functools.wraps(make)
    def guarded(self: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if _get(_SIGINT) is _note:
            return make(self, *args, **kwargs)
        made = False
        try:
            with Uninterrupted():
                make(self, *args, **kwargs)
                made = True
        except BaseException:
            if made:  # nobody will ever have it
                with Uninterrupted():
                    self.close()
            raise

    return guarded


def handed_over(
    take_back: Callable[[Any, Any], object],
) -> Callable[[Callable[Concatenate[Self, Arguments], Result]], Callable[Concatenate[Self, Arguments], Result]]:
    """Of a method that runs to its end: ``take_back(self, result)`` undoes it where the result cannot be returned."""

    def decorate(
        make: Callable[Concatenate[Self, Arguments], Result],
    ) -> Callable[Concatenate[Self, Arguments], Result]:
        @functools.wraps(make)
        def guarded(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            if _get(_SIGINT) is _note:
                return make(self, *args, **kwargs)
            made: list[Result] = []
            try:
                with Uninterrupted():
                    made.append(make(self, *args, **kwargs))
                return made[0]
            except BaseException:
                if made:
                    with Uninterrupted():
                        take_back(self, made[0])
                raise

        return guarded

    return decorate
