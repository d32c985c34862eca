"""Toggles: a set of numbers at each of many moments, as what came or went since the moment before.

Every so many moments the whole set is told, so that a reader who jumps has few steps to go.
"""

from __future__ import annotations

from collections.abc import Set

from ..recording.places import runs_of

EVERY = 32


class Toggles:
    """``add`` sets in the order of the moments."""

    def __init__(self) -> None:
        self.most = 0  # one more than the greatest number there was
        self._count = 0
        self._before: frozenset[int] = frozenset()

    def add(self, now: Set[int]) -> list[int]:
        """[first, count, ...] of the runs that change, against nothing at every ``EVERY``-th moment."""
        changed = now if self._count % EVERY == 0 else self._before ^ now
        self._count += 1
        self._before = frozenset(now)
        self.most = max(self.most, max(now, default=-1) + 1)
        return [number for run in runs_of(changed) for number in run]
