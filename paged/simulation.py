"""The clock of a replay: requests arrive, the scheduler composes a step, the roofline says how long it takes."""

from __future__ import annotations

from collections.abc import Callable

from .limits import Limits
from .meter import Meter
from .policies.policy import Policy
from .roofline import Roofline
from .scheduler import Scheduler
from .serving import Serving
from .workload import Workload

_REPORT_EVERY = 64
"""Requests between two reports of progress."""


class Simulation:
    """One workload on one policy, exact to the step. ``run`` it once; then read the counts.

    A request that has arrived by the beginning of a step can take part in it; between the end of a step and the
    beginning of the next no time passes, and when nothing runs and nothing waits, the clock moves to the next arrival.
    ``prefill_s`` is the time of the steps that computed a token of a prompt, ``decode_s`` that of the others,
    ``bound_steps`` counts steps by the greatest term of their time (compute, bandwidth, overhead). What the policy
    moved since the last step, what was swapped, and with ``driver_s`` (seconds of driver calls so far) the driver's
    time since then, lengthen a step; ``waited_s`` is the sum of the latter two.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        limits: Limits,
        roofline: Roofline,
        meter: Meter,
        serving: Serving | None = None,
        driver_s: Callable[[], float] | None = None,
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
        self._driver_s = driver_s
        self._driver_before = driver_s() if driver_s else 0.0
        self._copied = self._swapped = 0  # bytes that are in the time already

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Serve every request; ``progress`` hears from time to time how many are done with. Raises SchedulerError."""
        workload, scheduler = self.workload, self.scheduler
        arrivals = [*workload.arrival_s.tolist(), float("inf")]
        prompts, outputs = workload.prompt.tolist(), workload.output.tolist()
        priorities = [0] * len(workload) if workload.priority is None else workload.priority.tolist()
        arrived, told, count = 0, 0, len(workload)
        while True:
            while arrivals[arrived] <= self.now:
                scheduler.submit(arrived, prompts[arrived], outputs[arrived], priorities[arrived])
                arrived += 1
            if scheduler.running or scheduler.waiting:
                self._step()
            elif arrived < count:
                self._idle(arrivals[arrived])
            else:
                break
            if progress and scheduler.completed + scheduler.rejected >= told + _REPORT_EVERY:
                told = scheduler.completed + scheduler.rejected
                progress(told)
        self.meter.finish()

    def _step(self) -> None:
        scheduler, policy = self.scheduler, self.policy
        scheduler.schedule()
        seconds, bound = self.roofline.step(scheduler.tokens, scheduler.kv_tokens, policy.copied - self._copied)
        if scheduler.touched:
            self._copied = policy.copied
            seconds += self._wait()
            self.meter.set(policy.usage())
        self.now += seconds
        live = (scheduler.live_tokens - policy.shared) * self.roofline.token_bytes
        self.meter.advance(self.now, live, len(scheduler.running))
        if scheduler.prefill_tokens:
            self.prefill_s += seconds
        else:
            self.decode_s += seconds
        self.bound_steps[bound] += 1
        self.steps += 1
        scheduler.complete()

    def _wait(self) -> float:
        """Seconds that the driver's calls and the bus have taken since they were last asked, where they count."""
        seconds = 0.0
        if self._driver_s:
            before, self._driver_before = self._driver_before, self._driver_s()
            seconds = self._driver_before - before
        if self.host_space:
            before, self._swapped = self._swapped, self.host_space.copied
            seconds += (self._swapped - before) / self.serving.pcie_bandwidth
        self.waited_s += seconds
        return seconds

    def _idle(self, until: float) -> None:
        """Nothing to do before the next arrival."""
        if self.scheduler.touched:
            self.meter.set(self.policy.usage())
        self.now = until
        self.meter.advance(until, 0, 0)
