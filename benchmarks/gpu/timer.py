"""Timer: how long work takes on the device, by the device's own events around a graph, with a cold cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import vmm
from vmm.driver import check

from .side import Call, Side

MOST_REPLAYS, FEWEST_REPLAYS = 40, 7
MOST_CALLS = 512
SECONDS_A_CASE = 0.25
FLUSHES = 3
"""Long enough for the host to queue the graph behind them, so that the device never waits between the events."""
COLD = 2.5
"""Times the L2 cache: work that has read as much since finds nothing of its own there."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median over ``replays`` of a graph of ``calls`` calls, and a tenth from either end."""

    seconds: float
    fastest: float
    slowest: float
    calls: int
    replays: int

    def row(self) -> dict[str, float | int]:
        """The same as plain data, in microseconds."""
        return {
            "us": self.seconds * 1e6,
            "us_10": self.fastest * 1e6,
            "us_90": self.slowest * 1e6,
            "calls": self.calls,
            "replays": self.replays,
        }


class Timer:
    """Times calls on ``side``'s stream."""

    def __init__(self, side: Side) -> None:
        self._side, self._api = side, side.device.driver.api
        words = max(int(COLD * side.l2_bytes), 1 << 12) // 4
        self._cold, self._sum = side.array(np.ones(words, np.float32)), side.array(np.zeros((), np.float32))
        self._start, self._stop = (int(check("cuEventCreate", self._api.cuEventCreate(0))) for _ in range(2))

    def close(self) -> None:
        """Destroy the events."""
        for event in (self._start, self._stop):
            self._api.cuEventDestroy(event)

    def time(self, calls: Sequence[Call], *, capture: Any = None) -> Timing:
        """Seconds of one of ``calls``, captured together in a graph; each is made once before, which loads kernels.

        ``capture`` makes a graph of calls in another library's way.
        """
        side = self._side
        for call in dict.fromkeys(calls):
            call(side.stream)
        side.device.synchronize()
        replay = (capture or side.capture)(calls)
        first = self._once(replay)  # the first replay of a graph uploads it
        wanted = int(SECONDS_A_CASE / max(first, 1e-9))
        count = 2 if side.dry else min(MOST_REPLAYS, max(FEWEST_REPLAYS, wanted))
        found = sorted(self._once(replay) / len(calls) for _ in range(count))
        tenth = len(found) // 10
        return Timing(statistics.median(found), found[tenth], found[-1 - tenth], len(calls), count)

    def repeats(self, bytes_a_call: int, calls: int, bytes_a_graph: int = 2 << 30) -> int:
        """How often a graph should go through ``calls`` different calls, each cold, to be long enough to measure.

        Raises ValueError where the cache would keep what they read from one time to the next.
        """
        if calls * bytes_a_call < COLD * self._side.l2_bytes:
            have = vmm.format_size(calls * bytes_a_call)
            raise ValueError(f"{calls} calls read {have}, which the cache would keep; rotate over more inputs")
        if self._side.dry:
            return 1
        return max(1, min(round(bytes_a_graph / (calls * bytes_a_call)), MOST_CALLS // calls))

    def _once(self, replay: Callable[[], None]) -> float:
        """Seconds of one replay that begins when the cache holds other data."""
        self._flush()
        self._record(self._start)
        replay()
        self._record(self._stop)
        check("cuEventSynchronize", self._api.cuEventSynchronize(self._stop))
        return float(check("cuEventElapsedTime", self._api.cuEventElapsedTime(self._start, self._stop))) / 1e3

    def _flush(self) -> None:
        """Read other memory: a cache full of written lines would cost the next kernel the time to write them back."""
        with self._side.on_stream():
            for _ in range(FLUSHES):
                self._cold.sum(out=self._sum)

    def _record(self, event: int) -> None:
        check("cuEventRecord", self._api.cuEventRecord(event, self._side.stream))
