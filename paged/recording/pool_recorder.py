"""PoolRecorder: records one KVPool, and the driver's calls beside it, until it is closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vmm import Recorder

from .call_buckets import CallBuckets, Mark, Totals
from .event_ring import ROW_BYTES, EventRing, pack_row
from .geometry import geometry_of
from .pool_taps import PoolTaps
from .recording import Recording
from .taps import Note

if TYPE_CHECKING:
    from ..pool import KVPool

CAPACITY = 1 << 20
"""Events that are kept unless somebody says otherwise: about 140 MiB when all are there."""

_STEP, _SIMULATED_STEP = 10_000_000, 200_000_000
"""Nanoseconds between two marks of the driver's calls, to begin with: simulated time goes faster."""


class SimulatedClock(Protocol):
    """Whatever time is simulated by: it is asked at every event, and an attribute is the fastest answer."""

    now: float
    """Seconds since the beginning."""


class PoolRecorder:
    """Records ``pool`` from now until ``close``: the last ``capacity`` events, and what came before them as a state.

    ``calls`` is the recorder that was given to the pool's Device, if the driver's calls are wanted too; ``totals``
    counts them instead where somebody else does. ``clock`` has the moment where time is simulated (by default it is the
    time that has passed), ``live`` says how many tokens exist. ``about`` is told to whoever reads the recording: where
    it comes from. Raises ValueError for a capacity below 2.
    """

    def __init__(
        self,
        pool: KVPool,
        *,
        calls: Recorder | None = None,
        capacity: int = CAPACITY,
        clock: SimulatedClock | None = None,
        live: Callable[[], int] | None = None,
        totals: Callable[[], Totals] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.pool, self.calls, self.about = pool, calls, about or {}
        self.ring = EventRing(capacity)
        self.simulated = clock is not None
        self.buckets = CallBuckets(_SIMULATED_STEP if self.simulated else _STEP)
        self._origin = time.perf_counter_ns()
        self._clock = clock
        self._live = live or (lambda: pool.tokens)
        self._totals = totals or (_totals_of(calls) if calls else None)
        self._geometry = geometry_of(pool)
        self.note = self._make_note()
        self.taps = PoolTaps(pool, self.note, time.perf_counter_ns)

    def __enter__(self) -> PoolRecorder:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def recording(self) -> Recording:
        """What is recorded so far, as data; recording goes on."""
        moment = int(self._clock.now * 1e9) if self._clock is not None else time.perf_counter_ns() - self._origin
        self._mark(moment)
        about = {
            **self.about,
            **self._geometry,
            "clock": "simulated" if self.simulated else "perf_counter",
            "origin": self._origin,
            "end": moment,
            "capacity": self.ring.capacity,
            "dropped": self.ring.dropped,
        }
        return Recording.of(about, self.ring, self.buckets.marks, self.calls)

    def close(self) -> None:
        """Take the wrappers off the pool; what was recorded stays. Closing twice does nothing."""
        self.taps.close()

    def _make_note(self) -> Note:
        """The function that keeps an event, with all that it needs at hand: it runs at every one."""
        time_ns, clock, live, origin = time.perf_counter_ns, self._clock, self._live, self._origin
        ring, buckets, mark = self.ring, self.buckets, self._mark
        extend_ids, waiting, batch = ring.extend_ids, ring.waiting, ring.batch

        def note(
            kind: int, sequence: int = -1, a: int = 0, b: int = 0, ids: Sequence[int] = (), start: int = 0
        ) -> None:
            """Keep one event, which began at ``start`` (perf_counter_ns) and has just ended."""
            end = time_ns()
            began = start or end
            moment = int(clock.now * 1e9) if clock is not None else end - origin
            at = ring.filled
            if at == batch:
                ring.settle()
                at = 0
            pack_row(waiting, at, moment, kind, sequence, a, b, began, end - began, live(), len(ids))
            ring.filled = at + ROW_BYTES
            extend_ids(ids)
            if moment >= buckets.due:
                mark(moment)

        return note

    def _mark(self, moment: int) -> None:
        self.buckets.add(Mark(moment, *(self._totals() if self._totals else ({}, {}))))


def _totals_of(calls: Recorder) -> Callable[[], Totals]:
    return lambda: (calls.counts(), calls.durations())


def record(pool: KVPool, *, calls: Recorder | None = None, capacity: int = CAPACITY, **about: Any) -> PoolRecorder:
    """Record ``pool`` until the ``with`` ends; ``about`` is kept with the recording.

    The last ``capacity`` events are kept, and what came before them as one state. ``calls`` is the ``vmm.Recorder``
    that the pool's device was made with. What is not recorded costs nothing: the methods of this one pool are wrapped,
    and only while its recorder is open.
    """
    return PoolRecorder(pool, calls=calls, capacity=capacity, about=about)
