"""Record a replay: one policy, its pool and the driver's calls, on the clock of the simulation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import vmm

from ..driver_calls import DriverCalls
from ..driver_costs import DriverCosts
from ..meter import Meter
from ..policies.make import make_policy
from ..policies.paged_pool import PagedPool
from ..replay.report import PolicyResult, result_of
from ..replay.run import Run
from ..simulation import Simulation
from .pool_recorder import CAPACITY, PoolRecorder
from .recorded_tables import RecordedTables
from .recording import Recording

PAGED = ("paged-vmm", "paged-prealloc")
"""The policies that have block tables to record."""

CALLS = 1 << 16
"""The driver's calls that are kept one by one; their totals are exact for all."""


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What a recorded replay gives: the figures that it has unrecorded too, and the recording."""

    result: PolicyResult
    recording: Recording


def check_recordable(policies: tuple[str, ...]) -> str:
    """The one policy to record. Raises ValueError for several, and for one without block tables."""
    if len(policies) != 1 or policies[0] not in PAGED:
        named = ", ".join(policies)
        raise ValueError(f"a recording is of one policy with block tables, not of {named}; name {' or '.join(PAGED)}")
    return policies[0]


def record_policy(
    run: Run,
    name: str,
    progress: Callable[[str, int], None] | None = None,
    *,
    capacity: int = CAPACITY,
    each_call: bool | None = None,
) -> Recorded:
    """Serve the whole workload with one policy, as ``run_policy`` does, and record it.

    With ``each_call`` the driver's calls are kept one by one too, with their durations; by default only on a real
    driver, for those of the host driver say nothing about a GPU, and keeping them would be most of the cost. Else a
    call lasts as long as the published costs say. Raises ValueError as ``check_recordable``; otherwise as a replay.
    """
    check_recordable((name,))
    setup, calls = run.setup, run.setup.open_driver()
    recorder = vmm.Recorder(CALLS) if (calls.timed if each_call is None else each_call) else None
    with vmm.Device(0, driver=calls.api, recorder=recorder) as device:
        calls.clear()
        if recorder:
            recorder.clear()
        policy = make_policy(name, device, setup, run.workload)
        assert isinstance(policy, PagedPool)
        with contextlib.closing(policy):
            meter = Meter(setup.budget)
            simulation = Simulation(run.workload, policy, setup.limits, setup.roofline, meter, setup.serving)
            with _recorder(run, simulation, policy, recorder, calls, capacity) as recording:
                policy.tables = RecordedTables(policy.tables, recording)
                simulation.run((lambda done: progress(name, done)) if progress else None)
                found = _costed(recording.recording(), run.costs)
        counts = calls.counts()
        seconds = calls.seconds if calls.timed else run.costs.seconds(counts)
        missing = () if calls.timed else tuple(run.costs.missing(counts))
        return Recorded(result_of(simulation, counts, seconds, missing), found)


def _recorder(
    run: Run,
    simulation: Simulation,
    policy: PagedPool,
    recorder: vmm.Recorder | None,
    calls: DriverCalls,
    capacity: int,
) -> PoolRecorder:
    """Moments are those of the simulation, which stand still while the pool and the driver work."""
    scheduler = simulation.scheduler
    return PoolRecorder(
        policy.pool,
        calls=recorder,
        capacity=capacity,
        clock=lambda: int(simulation.now * 1e9),
        live=lambda: scheduler.live_tokens - policy.shared,
        totals=None if recorder else lambda: (calls.counts(), {}),
        about={
            "source": f"replay of {Path(run.workload.name).name}, policy {run.setup.options.policies[0]}",
            "model": run.setup.model.name,
            "requests": len(run.workload),
            "durations": "measured" if recorder else f"published costs {run.costs.name!r}: {run.costs.source}",
        },
    )


def _costed(recording: Recording, costs: DriverCosts) -> Recording:
    """Give totals that nobody measured the time that the published costs say."""
    marks = tuple(
        mark if mark.durations else mark._replace(durations=_nanoseconds(mark.counts, costs))
        for mark in recording.marks
    )
    return dataclasses.replace(recording, marks=marks)


def _nanoseconds(counts: Mapping[str, int], costs: DriverCosts) -> dict[str, int]:
    known = {name: costs.microseconds.get(name, 0.0) * count for name, count in counts.items()}
    return {name: round(us * 1000) for name, us in known.items() if us}
