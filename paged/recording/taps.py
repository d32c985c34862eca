"""Taps: wrap what one object has, and no other, and take the wrappers off again."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

Method = Callable[..., Any]

Note = Callable[..., None]
"""note(kind, sequence, a, b, ids, start): ``start`` is perf_counter_ns at the beginning, 0 for an event without one."""


class Taps:
    """Methods and parts of single objects that are wrapped, until ``close``. What is not tapped costs nothing."""

    def __init__(self) -> None:
        self._tapped: list[tuple[Any, str, Any]] = []

    def tap(self, owner: Any, name: str, wrapper: Callable[[Method], Method]) -> None:
        """Let ``owner.name`` be what ``wrapper`` makes of it. The class and its other objects stay as they are.

        What is tapped twice has a wrapper around the other.
        """
        self.replace(owner, name, wrapper(getattr(owner, name)))

    def replace(self, owner: Any, name: str, by: Any) -> None:
        """Let ``owner.name`` be ``by``, which is around what it was.

        The owner's ``__dict__`` is never asked for: CPython keeps the attributes in the object itself until somebody
        does, and reads them faster there.
        """
        found = getattr(owner, name)
        before = None if isinstance(found, MethodType) else found  # a method is its class's, all else the object's own
        self._tapped.append((owner, name, before))
        setattr(owner, name, by)

    def leave(self, owner: Any, name: str) -> None:
        """Take the only wrapper off."""
        self._tapped.remove((owner, name, None))
        delattr(owner, name)

    def close(self) -> None:
        """Take every wrapper off. Closing twice does nothing."""
        while self._tapped:
            owner, name, before = self._tapped.pop()
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
