"""A moment of a replay: a request trace is served until a time, and the pool is looked at between two steps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import vmm

from ..policies.paged_vmm import PagedVmm
from ..replay import load_workload
from ..replay.options import Options
from ..replay.setup import prepare
from ..serving.meter import Meter
from ..serving.prompt_tokens import PromptTokens
from ..serving.simulation import Simulation
from ..serving.workload import Workload
from .picture import Picture
from .snapshot import picture_of

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Moment:
    """A picture ``at_s`` seconds after the first arrival in ``workload``; ``waiting`` requests had no place yet.

    ``driver``, ``device`` and ``backing`` say on what.
    """

    picture: Picture
    workload: str
    at_s: float
    waiting: int
    driver: str
    device: str
    backing: str

    def __str__(self) -> str:
        running = len(self.picture.tables)
        return f"{self.workload} after {self.at_s:,.1f} s: {running:,} running, {self.waiting:,} waiting"


def replayed(trace: str | None, options: Options, at_s: float) -> Moment:
    """The pool of paged-vmm after ``at_s`` seconds of ``trace``, or of a workload that is made, or at its end.

    Prompts share what begins alike, where the trace says so. Raises ValueError and vmm's errors, as a replay does.
    """
    setup, workload = prepare(options), load_workload(trace, options)
    with vmm.Device(0, driver=setup.open_driver().api) as device:
        policy = PagedVmm(
            device,
            setup.budget,
            setup.layout,
            reserve=options.reserve,
            compact=_NEVER,  # blocks that might move belong to sequences of the pool, which a picture needs
            prompts=_prompts(workload),
        )
        with contextlib.closing(policy):
            simulation = Simulation(workload, policy, setup.limits, setup.roofline, Meter(setup.budget), setup.serving)
            _serve_until(simulation, at_s)
            found, waiting = picture_of(policy.pool), len(simulation.scheduler.waiting)
    names = setup.driver, setup.device_name, setup.backing
    return Moment(found, workload.name, simulation.now, waiting, *names)


def _prompts(workload: Workload) -> PromptTokens | None:
    return None if workload.hash_ids is None else PromptTokens(workload.prompt.tolist(), workload.hash_ids)


def _serve_until(simulation: Simulation, at_s: float) -> None:
    """Steps until the clock is at ``at_s`` or past it, or nothing is left to do."""
    scheduler = simulation.scheduler
    while simulation.now < at_s:
        simulation.arrive()
        if scheduler.running or scheduler.waiting:
            simulation.now += simulation.compose()
            scheduler.complete()
        elif simulation.next_arrival < float("inf"):
            simulation.now = min(at_s, simulation.next_arrival)
        else:
            break
