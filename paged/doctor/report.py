"""Report: all that a diagnosis found, and its form as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ..serving.workload import Workload
from .account import Account
from .capacity import Capacity
from .concurrency import Growth, Point
from .finding import Finding
from .log_reader import Log
from .nvidia_smi import ProcessView
from .phases import Phases
from .plateau import Step
from .rehearsal import Rehearsed
from .remedy import Remedy
from .server_model import ServerModel
from .server_run import Failure, ServerRun
from .serving_case import ServingCase
from .serving_tally import Sample

SCHEMA = 1
"""The version of the JSON form."""


@dataclasses.dataclass(frozen=True)
class BlockFill:
    """The share of slots in taken blocks that held a token, an estimate; ``source`` says from what."""

    share: float
    block_size: int
    source: str


@dataclasses.dataclass(frozen=True)
class Treatment:
    """A remedy, and its replay if there was one."""

    remedy: Remedy
    after: Rehearsed | None

    def why_not(self, before: Rehearsed | None) -> str:
        """Why there is no replay of it; empty if there is one."""
        if self.after is not None:
            return ""
        if self.remedy.case is None:
            return self.remedy.why_not
        return "give --lengths with the lengths of requests to replay it" if before is None else ""


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything about one start of a server. Sizes are bytes of one GPU, but for those of ``case`` and the replays."""

    log: Log
    run: ServerRun
    model: ServerModel
    capacity: Capacity
    account: Account
    points: list[Point]
    growth: Growth | None
    step: Step | None
    phases: Phases
    workload: Workload | None
    fill: BlockFill | None
    findings: list[Finding]
    case: ServingCase | None
    before: Rehearsed | None
    treatments: list[Treatment]
    view: ProcessView
    replayed: bool

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, schema 1."""
        return {
            "schema": SCHEMA,
            "log": self.log.name,
            "lines": self._lines(),
            "starts": self.log.starts,
            "versions": list(self.log.versions),
            "server": self._server(),
            "memory": self._memory(),
            "serving": self._serving(),
            "lengths": self._lengths(),
            "failures": [_failure(failure) for failure in self.run.failures],
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "replay": self._replay(),
            "nvidia_smi": dataclasses.asdict(self.view),
        }

    def json_text(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"

    def _lines(self) -> dict[str, Any]:
        lines = self.log.lines
        return {
            "read": lines.read,
            "understood": lines.understood,
            "passed_over": lines.passed_over,
            "not_understood": lines.not_understood,
            "damaged": lines.damaged,
            "samples": [{"line": number, "text": text} for number, text in lines.shown()],
        }

    def _server(self) -> dict[str, Any]:
        run, spec = self.run, self.model.spec
        return {
            "line": run.line,
            "version": run.version,
            "generation": run.generation,
            "phase": run.phase,
            "options": run.options,
            "model": spec.name if spec else self.model.name,
            "model_known": spec is not None,
            "gpus": self.model.gpus,
        }

    def _memory(self) -> dict[str, Any]:
        account = self.account
        return {
            "total": account.total,
            "utilization": account.utilization,
            "requested": account.requested,
            "parts": account.parts,
            "estimates": list(account.estimates),
            "outside": account.outside,
            "kv_unused": account.kv_unused,
            "kv_tokens": self.capacity.tokens,
            "kv_bytes": self.capacity.size,
            "kv_source": self.capacity.source,
            "lines": {name: found.line for name, found in self.run.found.items()},
        }

    def _serving(self) -> dict[str, Any]:
        run, serving = self.run, self.run.serving
        return {
            "lines": serving.lines,
            "peak_usage": _sample(serving.peak_usage),
            "peak_running": _sample(serving.peak_running),
            "peak_waiting": _sample(serving.peak_waiting),
            "preemptions": run.preemptions,
            "preemptions_by_kind": dict(run.preemptions_by_kind),
            "at_first_preemption": _sample(run.at_first_preemption),
            "phases": dataclasses.asdict(self.phases),
            "points": [dataclasses.asdict(point) | {"step_s": point.step_s} for point in self.points],
            "growth_exponent": self.growth.exponent if self.growth else None,
            "step": dataclasses.asdict(self.step) if self.step else None,
            "block_fill": dataclasses.asdict(self.fill) if self.fill else None,
        }

    def _lengths(self) -> dict[str, Any]:
        run = self.run
        return {
            "requests": run.requests,
            "log_prompts": run.prompts.summary() if run.prompts.total else None,
            "log_max_tokens": run.max_tokens.summary() if run.max_tokens.total else None,
            "given": None
            if self.workload is None
            else {"name": self.workload.name, "requests": len(self.workload)} | self.workload.lengths(),
            "notes": list(self.workload.notes) if self.workload else [],
        }

    def _replay(self) -> dict[str, Any]:
        return {
            "case": dataclasses.asdict(self.case) if self.case else None,
            "before": dataclasses.asdict(self.before) if self.before else None,
            "remedies": [
                {
                    "options": treatment.remedy.options,
                    "why": treatment.remedy.why,
                    "after": dataclasses.asdict(treatment.after) if treatment.after else None,
                    "why_not": treatment.why_not(self.before),
                }
                for treatment in self.treatments
            ],
        }


def _sample(sample: Sample | None) -> dict[str, Any] | None:
    return dataclasses.asdict(sample) if sample else None


def _failure(failure: Failure) -> dict[str, Any]:
    return dataclasses.asdict(failure) | {"frames": list(failure.frames[-5:])}
