"""A timeline of bounded size: what was reserved, committed and live over time, however long the run is.

Time is cut into buckets. Each keeps, for every series, the mean weighted by time and the least and greatest value, so
that nothing which happened inside it is smoothed away. When there are too many, neighbours are merged in pairs: means
stay exact, and no extreme is lost.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SERIES = ("reserved", "committed", "live", "running", "measured")
"""Bytes, but for ``running`` (sequences). ``measured`` is what the driver or the system reported in use, if asked."""


class Span(NamedTuple):
    """One series in one bucket."""

    mean: float
    low: float
    high: float


class Bucket(NamedTuple):
    """From ``start`` to ``stop`` (seconds), one Span a series in the order of SERIES."""

    start: float
    stop: float
    spans: tuple[Span, ...]


@dataclasses.dataclass(frozen=True)
class Series:
    """One series as arrays, float64 [buckets]."""

    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


class Timeline:
    """Fewer than ``capacity`` buckets; ``width`` (seconds) is how long the next one should be for all to be alike."""

    def __init__(self, capacity: int = 1024, width: float = 1e-3) -> None:
        self.capacity = capacity
        self.width = width
        self.buckets: list[Bucket] = []

    def __len__(self) -> int:
        return len(self.buckets)

    def add(self, bucket: Bucket) -> None:
        """Append a bucket that follows the last one."""
        self.buckets.append(bucket)
        if len(self.buckets) >= self.capacity:
            self._halve()

    def coarser(self, buckets: int) -> Timeline:
        """The same timeline in at most ``buckets`` buckets."""
        made = Timeline(self.capacity, self.width)
        made.buckets = self.buckets
        while len(made) > max(buckets, 1):
            made._halve()
        return made

    def _halve(self) -> None:
        """Merge neighbours in pairs."""
        pairs = zip(self.buckets[::2], self.buckets[1::2], strict=False)
        rest = self.buckets[len(self.buckets) // 2 * 2 :]
        self.buckets = [_merge(first, second) for first, second in pairs] + rest
        span = self.buckets[-1].stop - self.buckets[0].start
        self.width = max(2 * self.width, span / len(self.buckets))

    def edges(self) -> npt.NDArray[np.float64]:
        """Start of each bucket and the end of the last, in seconds: float64 [buckets + 1]."""
        return np.array([bucket.start for bucket in self.buckets] + [bucket.stop for bucket in self.buckets[-1:]])

    def series(self, name: str) -> Series:
        """The values of one of SERIES."""
        index = SERIES.index(name)
        values = np.array([bucket.spans[index] for bucket in self.buckets], float).reshape(-1, 3)
        return Series(values[:, 0], values[:, 1], values[:, 2])


def _merge(first: Bucket, second: Bucket) -> Bucket:
    before, after = first.stop - first.start, second.stop - second.start
    share = before / (before + after) if before + after else 0.5
    spans = (
        Span(a.mean * share + b.mean * (1 - share), min(a.low, b.low), max(a.high, b.high))
        for a, b in zip(first.spans, second.spans, strict=True)
    )
    return Bucket(first.start, second.stop, tuple(spans))
