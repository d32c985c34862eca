"""Measures memory over simulated time: means weighted by time, peaks, waste by cause, and the timeline."""

from __future__ import annotations

from collections.abc import Callable

from ..policies.policy import CAUSES, Usage
from .timeline import Bucket, Span, Timeline

_NONE = Usage(0, 0, 0)


class Meter:
    """Follows one policy. ``set`` says what is in use from now on, ``advance`` lets time pass.

    Usage changes at events and live tokens in every step; so integrals of usage are brought up to date at events, and
    only sums of three numbers run in every step. ``probe`` is asked for a number of bytes once a bucket.
    Simulated time is in seconds, everything else in bytes or sequences.
    """

    _reserved_low: int
    _reserved_high: int
    _committed_low: int
    _committed_high: int
    _live_low: int
    _live_high: int
    _running_low: int
    _running_high: int

    def __init__(self, budget: int, timeline: Timeline | None = None, probe: Callable[[], float] | None = None) -> None:
        self.budget = budget
        self.timeline = Timeline() if timeline is None else timeline
        self.now = 0.0
        self.reserved_peak = self.committed_peak = self.live_peak = self.running_peak = 0
        self._probe = probe
        self._usage = _NONE
        self._since = 0.0  # when the usage became what it is
        self._sums = [0.0] * len(_NONE)  # integral of each field of Usage, up to _since
        self._live_sum = self._running_sum = 0.0
        self._open()

    def set(self, usage: Usage) -> None:
        """From now on ``usage`` is in use. The budget and the sum of the parts are checked."""
        assert sum(usage[2:]) == usage.committed, f"the parts of {usage} do not add up to what is committed"
        assert usage.committed <= self.budget, f"{usage.committed} bytes committed, budget {self.budget}"
        self._settle()
        self._usage = usage

    def advance(self, until: float, live: int, running: int) -> None:
        """Until the time ``until``, ``live`` bytes of tokens exist and ``running`` sequences run."""
        assert live <= self._usage.held, f"{live} bytes of tokens in room for {self._usage.held}"
        seconds = until - self.now
        self.now = until
        self._live_sum += live * seconds
        self._running_sum += running * seconds
        if live < self._live_low:
            self._live_low = live
        if live > self._live_high:
            self._live_high = live
        if running < self._running_low:
            self._running_low = running
        if running > self._running_high:
            self._running_high = running
        if until >= self._close_at:
            self._close()

    def finish(self) -> None:
        """No more time will pass."""
        if self.now > self._start:
            self._close()
        self._settle()

    # -- results ------------------------------------------------------------------------------------------------

    def mean(self, field: str) -> float:
        """The mean over time of a field of Usage, or of "live" or "running"."""
        if not self.now:
            return 0.0
        if field in ("live", "running"):
            return (self._live_sum if field == "live" else self._running_sum) / self.now
        return self._sums[Usage._fields.index(field)] / self.now

    def whole_parts(self) -> dict[str, int]:
        """Mean bytes that are "live", and those that are committed and not live by cause, as whole numbers.

        Together they are the mean of what is committed, rounded, to the byte.
        """
        live = self.mean("live")
        parts = {"live": live, "tail": max(0.0, self.mean("held") - live)}
        parts.update({cause: self.mean(cause) for cause in CAUSES if cause != "tail"})
        return _whole(parts, round(self.mean("committed")))

    # -- buckets ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring the integrals and extremes of the usage up to now; what lasted for no time never was."""
        seconds = self.now - self._since
        if not seconds:
            return
        self._since = self.now
        self._sums = [total + value * seconds for total, value in zip(self._sums, self._usage, strict=True)]
        reserved, committed = self._usage[:2]
        if reserved < self._reserved_low:
            self._reserved_low = reserved
        if reserved > self._reserved_high:
            self._reserved_high = reserved
        if committed < self._committed_low:
            self._committed_low = committed
        if committed > self._committed_high:
            self._committed_high = committed

    def _open(self) -> None:
        """Begin a bucket."""
        self._start = self.now
        self._close_at = self.now + self.timeline.width
        self._at_start = (*self._sums[:2], self._live_sum, self._running_sum)
        self._reserved_low = self._committed_low = self._live_low = self._running_low = 1 << 62
        self._reserved_high = self._committed_high = self._live_high = self._running_high = 0

    def _close(self) -> None:
        """End the bucket, pass it to the timeline, and begin the next."""
        self._settle()
        seconds = self.now - self._start
        now = (*self._sums[:2], self._live_sum, self._running_sum)
        means = [(b - a) / seconds for a, b in zip(self._at_start, now, strict=True)]
        lows = (self._reserved_low, self._committed_low, self._live_low, self._running_low)
        highs = (self._reserved_high, self._committed_high, self._live_high, self._running_high)
        measured = float(self._probe()) if self._probe else float("nan")
        spans = [*map(Span, means, lows, highs), Span(measured, measured, measured)]
        self.reserved_peak = max(self.reserved_peak, self._reserved_high)
        self.committed_peak = max(self.committed_peak, self._committed_high)
        self.live_peak = max(self.live_peak, self._live_high)
        self.running_peak = max(self.running_peak, self._running_high)
        self.timeline.add(Bucket(self._start, self.now, tuple(spans)))
        self._open()


def _whole(parts: dict[str, float], total: int) -> dict[str, int]:
    """Round ``parts`` so that they add up to ``total``: down first, then those that lost most one up."""
    whole = {name: int(value) for name, value in parts.items()}
    short = total - sum(whole.values())
    for name in sorted(parts, key=lambda name: whole[name] - parts[name])[: max(0, short)]:
        whole[name] += 1
    return whole
