"""Which moments of a recording a page shows, and what is true at each of them.

A page has room for some hundred states. They are the true states at moments that lie evenly in time; what happens
between two of them is in the curves' extremes only, and the page says so. Where a recording, or the part that is asked
for, has fewer events than that, there is a moment for each.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..recording import Recording
from ..recording.figures import Figures, figures
from ..recording.places import Places, runs_of
from ..recording.state import State, Tokens, split
from .lengths import Lengths
from .waste import waste

_CHANGES = frozenset((1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13))  # kinds of events after which a state looks otherwise


@dataclasses.dataclass
class Bucket:
    """The events between one moment and the next: how many, and the extremes of the figures (low, high)."""

    events: int
    low: Figures
    high: Figures


@dataclasses.dataclass
class Moment:
    """One state, in the short form of the page; ``at`` is in nanoseconds."""

    at: int
    figures: Figures
    waste: dict[str, int]
    rows: list[tuple[int, int]]
    sequences: list[list[Any]]
    cached: list[tuple[int, int]]
    asleep: bool
    bucket: Bucket


def choose(recording: Recording, most: int, start: int, stop: int) -> tuple[npt.NDArray[np.int64], bool]:
    """The moments from ``start`` to ``stop`` (nanoseconds): those of all changes if they are few, else even ones.

    And whether they are those of all changes.
    """
    columns = recording.columns()
    inside = (columns["moment"] >= start) & (columns["moment"] <= stop) & np.isin(columns["kind"], list(_CHANGES))
    changes = np.unique(columns["moment"][inside])
    if len(changes) <= most:
        return np.unique(np.concatenate(([start], changes))), True
    return np.unique(np.linspace(start, stop, most).astype(np.int64)), False


def moments_of(recording: Recording, wanted: npt.NDArray[np.int64]) -> list[Moment]:
    """What is true at each of the ``wanted`` moments, in order."""
    about, state, places, lengths = recording.about, State(), Places(recording.about), Lengths(recording)
    found: list[Moment] = []
    now = figures(about, state)
    bucket = Bucket(0, now, now)
    events = split(recording.rows, recording.ids)
    following = next(events, None)
    for at in wanted.tolist():
        while following and following[0].moment <= at:
            state.apply(*following)
            now = figures(about, state)
            bucket.events += 1
            bucket.low = Figures(*map(min, bucket.low, now))
            bucket.high = Figures(*map(max, bucket.high, now))
            following = next(events, None)
        found.append(_moment(at, now, state, places, lengths, bucket, about))
        bucket = Bucket(0, now, now)
    return found


def _moment(
    at: int, now: Figures, state: State, places: Places, lengths: Lengths, bucket: Bucket, about: dict[str, Any]
) -> Moment:
    sequences = [_sequence(number, one, lengths, at) for number, one in state.sequences.items()]
    idle = [block for block in state.cached if block not in state.counts]
    parts = waste(about, state, places, now)
    return Moment(at, now, parts, runs_of(state.rows), sequences, runs_of(idle), state.asleep, bucket)


def _sequence(number: int, one: Tokens, lengths: Lengths, at: int) -> list[Any]:
    """[number, label, tokens, dropped blocks, [first, count, ...] of its table in the order of its tokens]."""
    table: list[int] = []
    for block in one.held:
        if table and block == table[-2] + table[-1]:
            table[-1] += 1
        else:
            table += (block, 1)
    return [number, one.label, lengths.at(number, one, at), one.dropped, table]
