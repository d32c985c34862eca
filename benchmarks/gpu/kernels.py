"""The net, the functions of paged over it, and the other kernels. Each is checked, then timed."""

from __future__ import annotations

from typing import Any

from . import contiguous, first_look, moves, prefill, translation, wrappers
from .bench import Bench

_FAMILIES = (first_look, wrappers, contiguous, moves, prefill, translation)


def names() -> list[str]:
    """The names of all items."""
    return [name for family in _FAMILIES for name in family.names()]


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Run the item of that name."""
    family = next(family for family in _FAMILIES if name in family.names())
    found: dict[str, Any] = family.run(name, bench)
    return found
