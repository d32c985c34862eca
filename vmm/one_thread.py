"""one_thread: what belongs to one thread at a time says so to a second one, and does not make it wait."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from .errors import StateError


class _Owned(Protocol):
    busy: threading.Lock


Self = TypeVar("Self", bound=_Owned)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def one_thread(
    change: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """Guard a method by its object's ``busy``; it raises StateError while another thread is in one of them."""

    @functools.wraps(change)
    def guarded(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not self.busy.acquire(blocking=False):
            raise StateError(f"this {type(self).__name__} is being changed by another thread; one thread at a time")
        try:
            return change(self, *args, **kwargs)
        finally:
            self.busy.release()

    return guarded
