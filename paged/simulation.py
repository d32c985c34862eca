"""The clock of a replay: requests arrive, the scheduler composes a step, the roofline says how long it takes."""

from __future__ import annotations

from collections.abc import Callable

from .limits import Limits
from .meter import Meter
from .policies.policy import Policy
from .roofline import Roofline
from .scheduler import Scheduler
from .workload import Workload

_REPORT_EVERY = 64
"""Requests between two reports of progress."""


class Simulation:
    """One workload on one policy, exact to the step. ``run`` it once; then read the counts.

    A request that has arrived by the beginning of a step can take part in it; between the end of a step and the
    beginning of the next no time passes, and when nothing runs and nothing waits, the clock moves to the next arrival.
    ``prefill_s`` is the time of the steps that computed a token of a prompt, ``decode_s`` that of the others,
    ``bound_steps`` counts steps by the greatest term of their time (compute, bandwidth, overhead).
    """

    def __init__(self, workload: Workload, policy: Policy, limits: Limits, roofline: Roofline, meter: Meter) -> None:
        self.workload = workload
        self.policy = policy
        self.roofline = roofline
        self.meter = meter
        self.scheduler = Scheduler(policy, limits)
        self.now = 0.0
        self.steps = 0
        self.prefill_s = self.decode_s = 0.0
        self.bound_steps = [0, 0, 0]

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Serve every request; ``progress`` hears from time to time how many are done with. Raises SchedulerError."""
        workload, scheduler = self.workload, self.scheduler
        arrivals = [*workload.arrival_s.tolist(), float("inf")]
        prompts, outputs = workload.prompt.tolist(), workload.output.tolist()
        arrived, told, count = 0, 0, len(workload)
        while True:
            while arrivals[arrived] <= self.now:
                scheduler.submit(arrived, prompts[arrived], outputs[arrived])
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
        copied = policy.copied
        scheduler.schedule()
        seconds, bound = self.roofline.step(scheduler.tokens, scheduler.kv_tokens, policy.copied - copied)
        if scheduler.touched:
            self.meter.set(policy.usage())
        self.now += seconds
        self.meter.advance(self.now, scheduler.live_tokens * self.roofline.token_bytes, len(scheduler.running))
        if scheduler.prefill_tokens:
            self.prefill_s += seconds
        else:
            self.decode_s += seconds
        self.bound_steps[bound] += 1
        self.steps += 1
        scheduler.complete()

    def _idle(self, until: float) -> None:
        """Nothing to do before the next arrival."""
        if self.scheduler.touched:
            self.meter.set(self.policy.usage())
        self.now = until
        self.meter.advance(until, 0, 0)
