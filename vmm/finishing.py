"""Finishing: the steps that end an operation are all done, whatever one of them is refused.

What only gives back cannot be undone, so an operation that has come this far goes on to its end, and the first refusal
is raised then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import ReleaseError


class Finishing:
    """``run`` calls that may raise ReleaseError inside a ``with``; the first such error is raised at its end."""

    def __init__(self) -> None:
        self._refused: ReleaseError | None = None

    def __enter__(self) -> Finishing:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None and self._refused is not None:
            raise self._refused

    def run(self, step: Callable[..., object], *args: Any, **names: Any) -> None:
        """Call ``step`` with the arguments that follow it, and keep a ReleaseError for later."""
        try:
            step(*args, **names)
        except ReleaseError as error:
            self._refused = self._refused or error
