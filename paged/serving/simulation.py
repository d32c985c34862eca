"""The clock of a replay: requests arrive, the scheduler composes a step, the roofline says how long it takes."""

from __future__ import annotations

from collections.abc import Callable

from ..policies.policy import Policy
from .driver_costs import Lap
from .limits import Limits
from .meter import Meter
from .roofline import Roofline
from .rules import Serving
from .scheduler import Scheduler
from .workload import Workload

REPORT_EVERY = 64
"""Requests between two reports of progress."""


class Simulation:
    """One workload on one policy, exact to the step. ``run`` it once; then read the counts.

    A request that has arrived by the beginning of a step can take part in it; between the end of a step and the
    beginning of the next no time passes, and when nothing runs and nothing waits, the clock moves to the next arrival.
    ``prefill_s`` is the time of the steps that computed a token of a prompt, ``decode_s`` that of the others,
    ``bound_steps`` counts steps by the greatest term of their time (compute, bandwidth, overhead). What the policy
    moved since the last step, what was swapped, and the driver's time where a ``lap`` of it is taken, lengthen a step;
    ``waited_s`` is the sum of the latter two.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        limits: Limits,
        roofline: Roofline,
        meter: Meter,
        serving: Serving | None = None,
        lap: Lap | None = None,
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.roofline = roofline
        self.meter = meter
        self.serving = Serving() if serving is None else serving
        self.host_space = self.serving.host_space(roofline.token_bytes)
        self.scheduler = Scheduler(policy, limits, self.serving.waiting(), self.host_space)
        self.now = 0.0
        self.steps = 0
        self.prefill_s = self.decode_s = self.waited_s = 0.0
        self.bound_steps = [0, 0, 0]
        self._lap = lap
        self._copied = self._swapped = 0  # bytes that are in the time already
        self._arrived = self._told = 0
        self._arrivals = [*workload.arrival_s.tolist(), float("inf")]
        ranks = [0] * len(workload) if workload.priority is None else workload.priority.tolist()
        self._requests = list(zip(workload.prompt.tolist(), workload.output.tolist(), ranks, strict=True))

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Serve every request; ``progress`` hears from time to time how many are done with. Raises SchedulerError."""
        scheduler, meter = self.scheduler, self.meter
        while True:
            self.arrive()
            if scheduler.running or scheduler.waiting:
                self.now += self.compose()
                if scheduler.touched:
                    meter.set(self.policy.usage())
                meter.advance(self.now, self.live, len(scheduler.running))
                scheduler.complete()
            elif self.next_arrival < float("inf"):
                if scheduler.touched:
                    meter.set(self.policy.usage())
                self.now = self.next_arrival
                meter.advance(self.now, 0, 0)
            else:
                break
            if progress:
                self.tell(progress)
        meter.finish()

    @property
    def next_arrival(self) -> float:
        """When the next request arrives; infinite if none does."""
        when: float = self._arrivals[self._arrived]
        return when

    @property
    def live(self) -> int:
        """Bytes of tokens in memory in the step that was composed, one that several sequences share counted once."""
        return (self.scheduler.live_tokens - self.policy.shared) * self.roofline.token_bytes

    @property
    def resting(self) -> int:
        """The same between two steps."""
        return (self.scheduler.held_tokens - self.policy.shared) * self.roofline.token_bytes

    def arrive(self) -> None:
        """Let the scheduler have what has arrived."""
        while self._arrivals[self._arrived] <= self.now:
            self.scheduler.submit(self._arrived, *self._requests[self._arrived])
            self._arrived += 1

    def compose(self) -> float:
        """Compose the next step and return how long it takes, in seconds; 0 if it can only wait for others' memory."""
        scheduler, policy = self.scheduler, self.policy
        scheduler.schedule()
        if not scheduler.tokens:
            return 0.0
        seconds, bound = self.roofline.step(scheduler.tokens, scheduler.kv_tokens, policy.copied - self._copied)
        if scheduler.touched:
            self._copied = policy.copied
            seconds += self._wait()
        if scheduler.prefill_tokens:
            self.prefill_s += seconds
        else:
            self.decode_s += seconds
        self.bound_steps[bound] += 1
        self.steps += 1
        return seconds

    def _wait(self) -> float:
        """Seconds that the driver's calls and the bus have taken since they were last asked, where they count."""
        seconds = self._lap() if self._lap else 0.0
        if self.host_space:
            before, self._swapped = self._swapped, self.host_space.copied
            seconds += (self._swapped - before) / self.serving.pcie_bandwidth
        self.waited_s += seconds
        return seconds

    def tell(self, progress: Callable[[int], None]) -> None:
        """Say how many requests are done with, if it is time to."""
        done = self.scheduler.completed + self.scheduler.rejected
        if done >= self._told + REPORT_EVERY:
            self._told = done
            progress(done)
