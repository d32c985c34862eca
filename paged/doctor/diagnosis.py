"""diagnose: from a log (and lengths) to a report: what memory was for, the cause, and the remedy replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from vmm import Size, parse_size

from ..serving.roofline import H100_BANDWIDTH, H100_FLOPS
from ..serving.workload import Workload
from .account import Account, account
from .block_fill import fill_of, fill_of_room
from .capacity import Capacity, capacity
from .concurrency import growth, points
from .failure_cause import cause_of
from .finding import Finding
from .given_lengths import given_lengths
from .log_reader import Log
from .nvidia_smi import process_view
from .phases import phases
from .plateau import plateau, step_of
from .pressure import batch_limit, pressure, tail
from .rehearsal import Rehearsed, rehearse
from .remedies import remedies
from .remedy import Patient
from .report import BlockFill, Report, Treatment
from .server_model import server_model
from .server_run import ServerRun
from .serving_case import ServingCase, serving_case

Tell = Callable[[str], None]
"""Hears which replay runs."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a diagnosis can be told. Raises ValueError for rates that are not above 0 and sizes that are none.

    ``model`` stands in for the log's, ``gpu_memory`` (of one GPU) where the log has no total, ``flops`` and
    ``bandwidth`` (a second, one GPU) are the roofline's; ``rate`` (requests a second) stands in for the log's arrivals,
    ``keep_times`` for a trace's own; ``limit`` takes the first so many; ``replay`` says whether remedies are tried out.
    """

    model: str | None = None
    lengths: str | None = None
    gpu_memory: Size | None = None
    flops: float = H100_FLOPS
    bandwidth: float = H100_BANDWIDTH
    rate: float | None = None
    keep_times: bool = False
    limit: int | None = 2_000
    seed: int = 0
    replay: bool = True

    def __post_init__(self) -> None:
        self.memory()
        for name in ("flops", "bandwidth", "rate"):
            value = getattr(self, name)
            if value is not None and not 1e-6 <= value <= 1e24:
                raise ValueError(f"{name} must be a number above 0, not {value}")

    def memory(self) -> int | None:
        """``gpu_memory`` in bytes."""
        return None if self.gpu_memory is None else parse_size(self.gpu_memory, name="--gpu-memory")


def diagnose(log: Log, settings: Settings | None = None, tell: Tell | None = None) -> Report:
    """Look at the start of the log that matters, name the causes, and replay the first one's remedies.

    Raises ValueError (TraceError for the lengths) for what was given and cannot be used.
    """
    chosen = settings or Settings()
    run = log.telling()
    model = server_model(run, chosen.model)
    cache = capacity(run, model)
    accounted = account(run, cache, model, chosen.memory())
    found = points(run.serving)
    rates = {"flops": chosen.flops, "bandwidth": chosen.bandwidth}
    step = step_of(found[-1], accounted, cache, model, **rates) if found else None
    grown = growth(found)
    findings = _findings(run, accounted, cache)
    flat = plateau(grown, step, chosen.bandwidth)
    if flat is not None:
        findings.append(flat)
    workload = given_lengths(
        run,
        chosen.lengths,
        rate=chosen.rate,
        keep_times=chosen.keep_times,
        limit=chosen.limit,
        seed=chosen.seed,
    )
    case = serving_case(run, model, cache, accounted, step, **rates)
    before: Rehearsed | None = None
    treatments: list[Treatment] = []
    if findings:
        patient = Patient(run, accounted, model, case, findings[0])
        before, treatments = _treat(patient, workload if chosen.replay else None, tell or (lambda _text: None))
    return Report(
        log=log,
        run=run,
        model=model,
        capacity=cache,
        account=accounted,
        points=found,
        growth=grown,
        step=step,
        phases=phases(run.serving, points(run.serving, least_s=0.0)),
        workload=workload,
        fill=_fill(run, cache, workload),
        findings=findings,
        case=case,
        before=before,
        treatments=treatments,
        view=process_view(run, accounted),
        replayed=chosen.replay,
    )


def _findings(run: ServerRun, accounted: Account, cache: Capacity) -> list[Finding]:
    """The causes, each once: failures in their order, then what made sequences wait."""
    found: dict[str, Finding] = {}
    for failure in run.failures:
        finding = cause_of(failure, accounted)
        found.setdefault(finding.cause, finding)
    for shown in (pressure(run, cache), batch_limit(run), tail(run)):
        if shown is not None:
            found.setdefault(shown.cause, shown)
    return list(found.values())


def _fill(run: ServerRun, cache: Capacity, workload: Workload | None) -> BlockFill | None:
    """How full the blocks were, from the lengths if there are any, else from the room of a sequence at the peak."""
    if workload is not None:
        return BlockFill(fill_of(workload, cache.block_size), cache.block_size, "from the lengths")
    peak = run.serving.peak_usage
    room = cache.per_sequence(peak.usage or 0.0, peak.running) if peak else None
    if not room:
        return None
    return BlockFill(
        fill_of_room(room, cache.block_size), cache.block_size, f"from {room:,.0f} tokens' room a sequence"
    )


def _treat(patient: Patient, workload: Workload | None, tell: Tell) -> tuple[Rehearsed | None, list[Treatment]]:
    """Replay the server as it was, and with each remedy; without lengths, or a model, the remedies are only told."""
    known: dict[ServingCase, Rehearsed] = {}

    def run(case: ServingCase, name: str) -> Rehearsed:
        if case not in known:
            tell(name)
            assert workload is not None
            known[case] = rehearse(case, workload)
        return known[case]

    before = run(patient.case, "as it was") if workload is not None and patient.case is not None else None
    treatments = []
    for remedy in remedies(patient):
        after = run(remedy.case, remedy.options) if before is not None and remedy.case is not None else None
        treatments.append(Treatment(remedy, after))
    return before, treatments
