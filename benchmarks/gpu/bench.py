"""Bench: what a step finds ready: the device and the timer, opened at the first use."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any

from .side import Side
from .timer import Timer


class Bench:
    """Opens the device when a step asks for it; ``programs`` of other processes need none."""

    def __init__(self, dry: bool, deadline: float) -> None:
        self.dry, self.deadline = dry, deadline
        self.dry_results: dict[object, dict[str, Any]] = {}
        self._undo = contextlib.ExitStack()

    @cached_property
    def side(self) -> Side:
        """The device."""
        made = Side(self.dry)
        self._undo.callback(made.close)
        return made

    @cached_property
    def timer(self) -> Timer:
        """The timer of that device."""
        made = Timer(self.side)
        self._undo.callback(made.close)
        return made

    def trim(self) -> None:
        """Give the spare memory of arrays back, so that the next item finds all of it."""
        if not self.dry and "side" in self.__dict__:
            with contextlib.suppress(Exception):  # after a fault nothing can be freed
                self.side.xp.get_default_memory_pool().free_all_blocks()

    def close(self) -> None:
        """Give everything back."""
        self._undo.close()
