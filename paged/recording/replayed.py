"""Record a replay: one policy, its pool and the driver's calls, on the clock of the simulation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import vmm

from ..policies.paged_pool import PagedPool
from ..replay.report import PolicyResult
from ..replay.run import Progress, Run, run_policy
from ..serving.driver_calls import DriverCalls
from ..serving.driver_costs import DriverCosts
from ..serving.simulation import Simulation
from .live_tokens import LiveTokens
from .pool_recorder import CAPACITY, PoolRecorder
from .recorded_tables import record_tables
from .recording import Recording

PAGED = ("paged-vmm", "paged-prealloc")
"""The policies that have block tables to record."""

CALLS = 1 << 16
"""The driver's calls that are kept one by one; their totals are exact for all."""


def check_recordable(run: Run) -> str:
    """The one policy to record. Raises ValueError for several, for one without block tables, for several models."""
    policies = run.setup.options.policies
    if len(policies) != 1 or policies[0] not in PAGED:
        named = ", ".join(policies)
        raise ValueError(f"a recording is of one policy with block tables, not of {named}; name {' or '.join(PAGED)}")
    if len(run.workloads) > 1:
        raise ValueError(f"a recording is of one model, not of {len(run.workloads)}; name one")
    return policies[0]


def record_policy(
    run: Run, progress: Progress | None = None, *, capacity: int = CAPACITY, each_call: bool | None = None
) -> tuple[PolicyResult, Recording]:
    """Run the one policy of ``run`` as ``run_policy`` does, and record it: what it gave, and the recording.

    With ``each_call`` the driver's calls are kept one by one too, with their durations; by default only on a real
    driver, for those of the host driver say nothing about a GPU, and keeping them would be most of the cost. Else
    their counts are exact, and they last as long as the published costs say. Raises ValueError as
    ``check_recordable``; otherwise as a replay.
    """
    name = check_recordable(run)
    watcher = _Watcher(run, capacity, run.setup.driver != "host" if each_call is None else each_call)
    result = run_policy(run, name, progress, watcher)
    assert watcher.recording is not None
    return result, watcher.recording


class _Watcher:
    """Records the pool of a replay while it runs; ``recording`` is there when it has ended."""

    def __init__(self, run: Run, capacity: int, each_call: bool) -> None:
        self.run, self.capacity = run, capacity
        self.calls = vmm.Recorder(CALLS) if each_call else None
        self.recording: Recording | None = None

    @contextlib.contextmanager
    def watching(self, members: list[Simulation], counts: DriverCalls) -> Iterator[None]:
        """Moments are those of the simulation, which stand still while the pool and the driver work."""
        (simulation,) = members
        policy, scheduler = simulation.policy, simulation.scheduler
        assert isinstance(policy, PagedPool)
        live = LiveTokens(scheduler, policy)
        if self.calls:
            self.calls.clear()
        recorder = PoolRecorder(
            policy.pool,
            calls=self.calls,
            capacity=self.capacity,
            clock=simulation,
            live=live.counter(),
            totals=None if self.calls else lambda: (counts.counts(), {}),
            about=self._about(),
        )
        with recorder:
            record_tables(policy, recorder)
            live.watch(recorder.taps)
            yield
            self.recording = _costed(recorder.recording(), self.run.costs)

    def _about(self) -> dict[str, object]:
        run, costs = self.run, self.run.costs
        (workload,) = run.workloads
        return {
            "source": f"replay of {Path(workload.name).name}, policy {run.setup.options.policies[0]}",
            "model": run.setup.model.name,
            "requests": len(workload),
            "durations": "measured" if self.calls else f"published costs {costs.name!r}: {costs.source}",
        }


def _costed(recording: Recording, costs: DriverCosts) -> Recording:
    """Give totals that nobody measured the time that the published costs say."""
    marks = tuple(
        mark if mark.durations else mark._replace(durations=_nanoseconds(mark.counts, costs))
        for mark in recording.marks
    )
    return dataclasses.replace(recording, marks=marks)


def _nanoseconds(counts: Mapping[str, int], costs: DriverCosts) -> dict[str, int]:
    each = costs.microseconds
    return {name: round(each[name] * count * 1000) for name, count in counts.items() if each.get(name)}
