"""Where work runs: contexts, the stack of current ones of each thread, and events."""

from __future__ import annotations

import threading

from .physical import Bank


class Context:
    """The primary context of a device; it is active while ``count`` users retain it."""

    __slots__ = ("bank", "count", "handle")

    def __init__(self, handle: int, bank: Bank) -> None:
        self.handle, self.bank = handle, bank
        self.count = 0

    @property
    def ordinal(self) -> int:
        """The device's number."""
        return self.bank.location[1]


class ThreadStack(threading.local):
    """The current contexts of one thread, the last one on top."""

    def __init__(self) -> None:
        self.stack: list[Context] = []


class Event:
    """A point in a stream. ``time`` is when it was reached, in seconds, or None where it was never recorded."""

    __slots__ = ("context", "time", "timed")

    def __init__(self, context: int, timed: bool) -> None:
        self.context, self.timed = context, timed
        self.time: float | None = None
