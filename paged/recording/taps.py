"""Taps: wrap methods of one object, and of no other, and take the wrappers off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]

Note = Callable[..., None]
"""note(kind, sequence, a, b, ids, start): ``start`` is perf_counter_ns at the beginning, 0 for an event without one."""


class Taps:
    """Methods of single objects that are wrapped, until ``close``. What is not tapped costs nothing."""

    def __init__(self) -> None:
        self._tapped: list[tuple[Any, str, Method | None]] = []

    def tap(self, owner: Any, name: str, wrapper: Callable[[Method], Method]) -> None:
        """Let ``owner.name`` be what ``wrapper`` makes of it. The class and its other objects stay as they are.

        What is tapped twice has a wrapper around the other.
        """
        self._tapped.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, wrapper(getattr(owner, name)))

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
