"""How throughput grew with the batch, and how long a step of decode took, from the lines that mostly decode."""

from __future__ import annotations

import dataclasses
import itertools
import math

from .serving_tally import ServingTally, Tally

LEAST_S = 15.0
"""A batch size counts when its lines tell of so many seconds."""

STOPPED = 0.3
"""Throughput stopped growing where it grows by less than this power of the batch (1 is in proportion, 0 not at all)."""

_LEAST_STEP = 1.5
"""Two batches are compared if one is so many times the other."""


@dataclasses.dataclass(frozen=True)
class Point:
    """Decode at one range of batch sizes: mean sequences, output tokens a second, mean usage of the cache, seconds."""

    running: float
    rate: float
    usage: float
    seconds: float

    @property
    def step_s(self) -> float:
        """Seconds a step: each gives every running sequence one token, so running / rate.

        Without speculative decoding, which gives more; then a step is longer than this.
        """
        return self.running / self.rate


@dataclasses.dataclass(frozen=True)
class Growth:
    """From one batch to a larger one: rate ~ batch ** ``exponent``."""

    small: Point
    large: Point

    @property
    def exponent(self) -> float:
        """log(rates' ratio) / log(batches' ratio)."""
        return math.log(self.large.rate / self.small.rate) / math.log(self.large.running / self.small.running)

    @property
    def stopped(self) -> bool:
        """Whether a larger batch brought (almost) nothing."""
        return self.exponent < STOPPED


def points(serving: ServingTally, least_s: float = LEAST_S) -> list[Point]:
    """One point for each doubling of the batch that the log has for ``least_s`` seconds or more, in rising order."""
    groups: dict[int, list[tuple[int, Tally]]] = {}
    for running, tally in serving.by_running.items():
        if running and tally.decode_s:
            groups.setdefault(running.bit_length(), []).append((running, tally))
    found = []
    for _, group in sorted(groups.items()):
        seconds = sum(tally.decode_s for _, tally in group)
        if seconds >= least_s:
            running_s = sum(running * tally.decode_s for running, tally in group)
            tokens = sum(tally.decode_tokens for _, tally in group)
            usage = sum(tally.decode_usage_s for _, tally in group)
            found.append(Point(running_s / seconds, tokens / seconds, usage / seconds, seconds))
    return found


def growth(found: list[Point]) -> Growth | None:
    """The last step of growth: from the largest batch that is well below the largest of all; None if there is none."""
    if not found:
        return None
    below = [point for point in found if point.running * _LEAST_STEP <= found[-1].running]
    return Growth(below[-1], found[-1]) if below else None


def step_seconds(found: list[Point], running: float) -> float | None:
    """Seconds of a decode step with ``running`` sequences: between the two nearest points, by straight lines."""
    if not found:
        return None
    if running <= found[0].running:
        return found[0].step_s
    for left, right in itertools.pairwise(found):
        if running <= right.running:
            share = (running - left.running) / (right.running - left.running)
            return left.step_s + share * (right.step_s - left.step_s)
    return found[-1].step_s * running / found[-1].running
