"""Replay a workload against policies of memory: the same arrivals, the same budget, the real allocators."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import vmm

from ..policies.make import make_policies
from ..serving.driver_calls import DriverCalls
from ..serving.driver_costs import DriverCosts, Lap, driver_costs
from ..serving.meter import Meter
from ..serving.simulation import Simulation
from ..serving.trace_reader import read_trace
from ..serving.turns import Turns
from ..serving.workload import (
    DEFAULT_RATE,
    GENERATED_RATE,
    GENERATED_REQUESTS,
    TraceError,
    Workload,
    generate,
    together,
)
from .idle_options import idle_options
from .options import Options
from .processes import run_in_processes
from .report import PolicyResult, Report, result_of
from .setup import Setup, prepare

_NO_PREFIX = "{} says of no prompt how it begins (hash_ids); leave the prefix cache out"

Trace = str | Path | Workload | None
"""A file, a Workload, or None for one that is made."""

Progress = Callable[[str, int], None]
"""Told from time to time which policy has dealt with how many requests."""


def replay(
    trace: Trace | Sequence[Trace] = None,
    options: Options | None = None,
    *,
    processes: int = 1,
    measure: bool = False,
    progress: Progress | None = None,
    **changes: Any,
) -> Report:
    """Run ``trace`` (a file, a Workload, or None for a generated one) through every policy of the options.

    ``changes`` are fields of Options by name: ``replay("trace.csv", model="llama-3-8b", gpu_memory="80 GiB")``. With
    ``processes`` above 1 the policies run side by side, each in a process of its own, wherever they do not share one
    memory (the host driver with backing "none"); a script that asks for that must guard its main, as multiprocessing
    demands. ``measure`` adds to each timeline what the driver or the operating system says is in use. Several models
    have a trace each, in the same order. ``progress`` is called with a policy's name and how many requests are done.

    Raises ValueError for options and traces that make no sense, ReplayError if a policy's process fails, and
    SchedulerError or vmm's errors if a policy does.
    """
    setup = prepare(dataclasses.replace(options or Options(), **changes))
    costs = driver_costs(setup.options.driver_costs)
    run = Run(setup, load_workloads(trace, setup.options), costs, measure)
    return report_of(run, run_all(run, processes, progress))


@dataclasses.dataclass(frozen=True)
class Run:
    """What every policy is given: plain data that can go to another process."""

    setup: Setup
    workloads: tuple[Workload, ...]
    """One a model."""
    costs: DriverCosts
    measure: bool = False

    @property
    def shares_memory(self) -> bool:
        """Whether the policies would take the same memory if they ran side by side."""
        return self.setup.driver != "host" or self.setup.backing == "memory"


def load_workloads(trace: Trace | Sequence[Trace], options: Options) -> tuple[Workload, ...]:
    """A workload for each model. Raises TraceError for traces that are not as many; without any each is made."""
    traces = [trace] if trace is None or isinstance(trace, str | Path | Workload) else list(trace)
    count = len(options.models)
    if traces in ([None], []):
        seeds = [dataclasses.replace(options, seed=options.seed + number) for number in range(count)]
        return tuple(load_workload(None, one) for one in seeds)
    if len(traces) != count:
        raise TraceError(f"{count} models and {len(traces)} traces are given; name a trace for each model")
    return tuple(load_workload(one, options) for one in traces)


def load_workload(trace: Trace, options: Options) -> Workload:
    """A workload as it is replayed: read or made, cut to ``limit``, its gaps divided by ``rate_scale``.

    Raises TraceError for a file that is no trace, and for a prefix cache where the tokens are not known.
    """
    if trace is None:
        if options.prefix_cache:
            raise TraceError(_NO_PREFIX.format("a workload that is made"))
        count = GENERATED_REQUESTS if options.limit is None else options.limit
        rate = GENERATED_RATE if options.rate is None else options.rate
        return generate(count, rate=rate, seed=options.seed).scaled(options.rate_scale)
    if not isinstance(trace, Workload):
        trace = read_trace(trace, rate=DEFAULT_RATE if options.rate is None else options.rate, seed=options.seed)
    if options.limit is not None:
        trace = trace.first(options.limit)
    if options.prefix_cache and trace.hash_ids is None:
        raise TraceError(_NO_PREFIX.format(trace.name))
    return trace.scaled(options.rate_scale)


def run_all(run: Run, processes: int = 1, progress: Progress | None = None) -> dict[str, PolicyResult]:
    """A result for each policy, in the order of the options; in ``processes`` where they share no memory.

    ``progress`` as for ``replay``. Raises ReplayError if a process fails, SchedulerError or vmm's errors if a policy
    does.
    """
    policies = run.setup.options.policies
    if processes > 1 and len(policies) > 1 and not run.shares_memory:
        return run_in_processes(run_policy, run, policies, processes, progress)
    return {name: run_policy(run, name, progress) for name in policies}


class Watcher(Protocol):
    """Looks on while a policy runs. ``calls`` is told every driver call, if there is one."""

    calls: vmm.Recorder | None

    def watching(self, members: list[Simulation], counts: DriverCalls) -> contextlib.AbstractContextManager[None]:
        """Entered before the first step, left after the last, before anything is closed."""
        ...


def run_policy(run: Run, name: str, progress: Progress | None = None, watcher: Watcher | None = None) -> PolicyResult:
    """Serve the whole workload with one policy, on a device of its own; ``watcher`` looks on."""
    setup = run.setup
    calls = setup.open_driver()
    api = watcher.calls.wrap(calls.api) if watcher and watcher.calls else calls.api
    with vmm.Device(0, driver=api) as device:
        calls.clear()
        meter = Meter(setup.budget, probe=_probe(device, calls) if run.measure else None)
        with contextlib.ExitStack() as stack:
            policies = make_policies(name, device, setup, run.workloads, stack)
            lap = _lap(run, calls)
            members = [
                Simulation(load, policy, one.limits, one.roofline, meter, one.serving, lap)
                for load, policy, one in zip(run.workloads, policies, setup.members, strict=True)
            ]
            running = Turns(members, meter) if len(members) > 1 else members[0]
            if watcher:
                stack.enter_context(watcher.watching(members, calls))
            running.run((lambda done: progress(name, done)) if progress else None)
            finished = running.finished_s if isinstance(running, Turns) else [running.now]
        counts = calls.counts()
        costs = run.costs.seconds(counts), tuple(run.costs.missing(counts))
        driver_s, uncosted = (calls.seconds, ()) if calls.timed else costs
        return result_of(members, setup.options.models, finished, counts, driver_s, uncosted)


def _lap(run: Run, calls: DriverCalls) -> Lap | None:
    """Tells the seconds of driver calls, measured or by cost, where they are to count; else None."""
    if not run.setup.options.charge_driver_time:
        return None
    return Lap(lambda: calls.seconds if calls.timed else run.costs.seconds(calls.counts()))


def _probe(device: vmm.Device, calls: DriverCalls) -> Callable[[], float]:
    """What the operating system counts behind the host driver, or what the real driver says is in use since now."""
    if calls.timed:
        before = device.memory_info().free
        return lambda: float(before - device.memory_info().free)
    committed = calls.api.committed_bytes
    return lambda: float("nan") if committed(0) is None else float(committed(0))


def report_of(run: Run, results: dict[str, PolicyResult]) -> Report:
    """Everything in one place, the options as they were resolved."""
    setup, options, workload = run.setup, run.setup.options, together(run.workloads)
    models = " + ".join(member.model.name for member in setup.members)
    resolved = {
        **dataclasses.asdict(options),
        "model": models,
        "driver": setup.driver,
        "backing": setup.backing,
        "gpu_memory": setup.memory,
        "activation_memory": options.activation_bytes(),
        "swap_space": setup.serving.swap_space,
        "weight_bytes": sum(member.model.weight_bytes for member in setup.members),
        "budget_bytes": setup.budget,
        "token_bytes": setup.model.token_bytes,
        "max_model_len": setup.limits.max_model_len,
        "chunk": setup.layout.chunk,
        "driver_costs": "measured" if setup.driver != "host" else run.costs.name,
    }
    return Report(
        trace=workload.name,
        requests=len(workload),
        model=models,
        driver=setup.driver,
        device=setup.device_name,
        backing=setup.backing,
        budget=setup.budget,
        options=resolved,
        lengths=workload.lengths(),
        notes=(*workload.notes, *idle_options(setup, run.workloads)),
        policies=results,
    )
