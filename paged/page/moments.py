"""Which moments of a recording a page shows, and what is true at each of them.

A page has room for some hundred states. They are the true states at moments that lie evenly in time; what happens
between two of them is in the curves' extremes only, and the page says so. Where a recording, or the part that is asked
for, has fewer events than that, there is a moment for each.
"""

from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import numpy.typing as npt

from ..recording import Recording
from ..recording.figures import Figures, figures
from ..recording.kinds import Kind
from ..recording.places import Places
from ..recording.state import State, Tokens, split
from .lengths import Lengths
from .tables import Tables
from .toggles import Toggles
from .waste import waste

_CHANGES = [int(kind) for kind in Kind if kind != Kind.HIT]  # the kinds after which a state looks otherwise


@dataclasses.dataclass
class Bucket:
    """The events between one moment and the next: how many, and the extremes of the figures (low, high)."""

    events: int
    low: Figures
    high: Figures


@dataclasses.dataclass
class Moment:
    """One state, in the short form of the page; ``at`` is in nanoseconds, ``rows`` and ``idle`` are toggles."""

    at: int
    figures: Figures
    waste: dict[str, int]
    rows: list[int]
    idle: list[int]
    sequences: list[list[int]]
    asleep: bool
    bucket: Bucket


def choose(recording: Recording, most: int, start: int, stop: int) -> tuple[npt.NDArray[np.int64], bool]:
    """The moments from ``start`` to ``stop`` (nanoseconds): those of all changes if they are few, else even ones.

    And whether they are those of all changes.
    """
    columns = recording.columns()
    inside = (columns["moment"] >= start) & (columns["moment"] <= stop) & np.isin(columns["kind"], _CHANGES)
    changes = np.unique(columns["moment"][inside])
    if len(changes) <= most:
        return np.unique(np.concatenate(([start], changes))), True
    return np.unique(np.linspace(start, stop, most).astype(np.int64)), False


def before(recording: Recording, start: int) -> int:
    """How many events lie before ``start`` (nanoseconds), or stand for those that were dropped."""
    earlier = int(np.searchsorted(recording.columns()["moment"], start))
    return max(earlier, int(recording.about["base_events"]))


class Moments:
    """What is true at each of the ``wanted`` moments: ``found``, in order, and what they share."""

    def __init__(self, recording: Recording, wanted: npt.NDArray[np.int64]) -> None:
        self._about, self._state = recording.about, State()
        self._places, self._lengths = Places(recording.about), Lengths(recording)
        self.tables, self.rows, self.idle = Tables(), Toggles(), Toggles()
        self.found: list[Moment] = []
        self._follow(recording, wanted)

    def _follow(self, recording: Recording, wanted: npt.NDArray[np.int64]) -> None:
        state, about = self._state, self._about
        events = split(recording.rows, recording.ids)
        for event in islice(events, before(recording, int(wanted[0]))):  # none of the first moment's
            state.apply(*event)
        following = next(events, None)
        now = figures(about, state)
        bucket = Bucket(0, now, now)
        for at in wanted.tolist():
            while following and following[0].moment <= at:
                state.apply(*following)
                now = figures(about, state)
                bucket.events += 1
                bucket.low = Figures(*map(min, bucket.low, now))
                bucket.high = Figures(*map(max, bucket.high, now))
                following = next(events, None)
            self.found.append(self._moment(at, now, bucket))
            bucket = Bucket(0, now, now)

    def _moment(self, at: int, now: Figures, bucket: Bucket) -> Moment:
        state = self._state
        sequences = [self._sequence(number, one, at) for number, one in state.sequences.items()]
        idle = state.cached - state.counts.keys()
        parts = waste(self._about, state, self._places, now)
        rows = self.rows.add(state.rows)
        return Moment(at, now, parts, rows, self.idle.add(idle), sequences, state.asleep, bucket)

    def _sequence(self, number: int, one: Tokens, at: int) -> list[int]:
        """[number, label, tokens, dropped blocks, which table, how many blocks of it]."""
        held = one.held
        return [
            number,
            one.label,
            self._lengths.at(number, one, at),
            one.dropped,
            self.tables.put(number, held),
            len(held),
        ]
