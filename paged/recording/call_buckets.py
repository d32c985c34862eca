"""CallBuckets: how many driver calls there were, and how long they took, over the whole of a recording.

At most 512 marks of the exact totals, however long it is: when there are too many every second one goes, and
what lies between two neighbours is still exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_MOST = 512

Totals = tuple[Mapping[str, int], Mapping[str, int]]
"""Calls, and nanoseconds in them, by the driver's names."""


class Mark(NamedTuple):
    """Totals up to ``moment`` (nanoseconds): calls and nanoseconds in them, by the driver's names."""

    moment: int
    counts: Mapping[str, int]
    durations: Mapping[str, int]


class CallBuckets:
    """Marks at least ``step`` nanoseconds apart; ``due`` is the moment of the next."""

    def __init__(self, step: int = 10_000_000, most: int = _MOST) -> None:
        self.step, self.most = step, most
        self.marks: list[Mark] = []
        self.due = -(1 << 62)

    def add(self, mark: Mark) -> None:
        """Keep a mark that is due."""
        self.marks.append(mark)
        if len(self.marks) >= self.most:
            span = mark.moment - self.marks[0].moment
            self.marks = self.marks[::2]
            self.step = max(2 * self.step, span // len(self.marks))
        self.due = mark.moment + self.step
