"""What a replay found: figures by policy, and their form as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

from ..prompt_tokens import PromptTokens
from ..simulation import Simulation
from ..timeline import Timeline

SCHEMA = 1
"""The version of the JSON form."""


class Figure(NamedTuple):
    """A quantity over simulated time: its mean, weighted by time, and its peak."""

    mean: float
    peak: int

    def to_json(self) -> dict[str, float]:
        """{"mean": ..., "peak": ...}."""
        return self._asdict()


class PrefixUse(NamedTuple):
    """Prompts as they began for the first time: tokens and the trace's blocks of 512, asked for and found."""

    asked_tokens: int
    hit_tokens: int
    asked_blocks: int
    hit_blocks: int

    @property
    def hit_rate(self) -> float:
        """Blocks found over blocks asked for."""
        return self.hit_blocks / self.asked_blocks if self.asked_blocks else 0.0


@dataclasses.dataclass(frozen=True)
class PolicyResult:
    """One policy's run. Sizes are bytes, times simulated seconds, ``waste`` mean bytes by cause.

    ``committed.mean`` is ``live.mean`` and all of ``waste`` together, to the byte. ``rejected`` counts the ``too_long``
    (more than max_model_len) and the ``never_fits`` (more than the budget can ever hold). ``driver_s`` is what the
    ``driver_calls`` took: measured on a real driver, on the host by a published cost set, whose gaps are ``uncosted``.
    Of the ``preemptions`` those ``swapped`` went to the host and back, ``swapped_bytes`` both ways together.
    ``waited_s`` of the duration is for the bus, and for the driver where its time is charged. ``written_bytes`` are KV
    of tokens computed, ``copied_bytes`` what was moved besides. ``prefix`` is None without a prefix cache.
    """

    reserved: Figure
    committed: Figure
    live: Figure
    running: Figure
    waste: dict[str, int]
    preemptions: int
    swapped: int
    swapped_bytes: int
    completed: int
    too_long: int
    never_fits: int
    steps: int
    duration_s: float
    prefill_s: float
    decode_s: float
    bound_steps: dict[str, int]
    tokens_per_s: float
    waited_s: float
    copied_bytes: int
    written_bytes: int
    prefix: PrefixUse | None
    driver_calls: dict[str, int]
    driver_s: float
    uncosted: tuple[str, ...]
    timeline: Timeline

    @property
    def rejected(self) -> int:
        """Requests that were not served."""
        return self.too_long + self.never_fits

    @property
    def copied_share(self) -> float:
        """Bytes moved over bytes of KV written."""
        return self.copied_bytes / self.written_bytes if self.written_bytes else 0.0

    @property
    def committed_over_live(self) -> float | None:
        """Mean committed over mean live bytes; None if nothing ever lived."""
        return self.committed.mean / self.live.mean if self.live.mean else None

    def to_json(self) -> dict[str, Any]:
        """The figures under the names of the JSON form."""
        return {
            "reserved_bytes": self.reserved.to_json(),
            "committed_bytes": self.committed.to_json(),
            "live_bytes": self.live.to_json(),
            "committed_over_live": self.committed_over_live,
            "waste_bytes": self.waste,
            "running": self.running.to_json(),
            "preemptions": self.preemptions,
            "preemptions_by_kind": {"recompute": self.preemptions - self.swapped, "swap": self.swapped},
            "swapped_bytes": self.swapped_bytes,
            "completed": self.completed,
            "rejected": self.rejected,
            "duration_s": self.duration_s,
            "prefill_s": self.prefill_s,
            "decode_s": self.decode_s,
            "bound_steps": self.bound_steps,
            "tokens_per_s": self.tokens_per_s,
            "waited_s": self.waited_s,
            "copied_bytes": self.copied_bytes,
            "written_bytes": self.written_bytes,
            "prefix": self.prefix._asdict() if self.prefix else None,
            "driver_calls": self.driver_calls,
            "driver_time_s": self.driver_s,
        }


@dataclasses.dataclass(frozen=True)
class Report:
    """A whole replay: on what it ran, its options as they were resolved, and a PolicyResult a policy."""

    trace: str
    requests: int
    model: str
    driver: str
    device: str
    backing: str
    budget: int
    options: dict[str, Any]
    lengths: dict[str, dict[str, int]]
    notes: tuple[str, ...]
    policies: dict[str, PolicyResult]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, schema 1."""
        return {
            "schema": SCHEMA,
            "trace": self.trace,
            "requests": self.requests,
            "model": self.model,
            "driver": self.driver,
            "backing": self.backing,
            "options": self.options,
            "lengths": self.lengths,
            "policies": {name: result.to_json() for name, result in self.policies.items()},
        }

    def json_text(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"


def result_of(
    simulation: Simulation, driver_calls: dict[str, int], driver_s: float, uncosted: tuple[str, ...]
) -> PolicyResult:
    """The figures of a simulation that has run."""
    meter, scheduler = simulation.meter, simulation.scheduler
    waste = meter.whole_parts()
    live = waste.pop("live")
    return PolicyResult(
        reserved=Figure(round(meter.mean("reserved")), meter.reserved_peak),
        committed=Figure(live + sum(waste.values()), meter.committed_peak),
        live=Figure(live, meter.live_peak),
        running=Figure(meter.mean("running"), meter.running_peak),
        waste=waste,
        preemptions=scheduler.preemptions,
        swapped=scheduler.swapped,
        swapped_bytes=simulation.host_space.copied if simulation.host_space else 0,
        completed=scheduler.completed,
        too_long=scheduler.too_long,
        never_fits=scheduler.never_fits,
        steps=simulation.steps,
        duration_s=simulation.now,
        prefill_s=simulation.prefill_s,
        decode_s=simulation.decode_s,
        bound_steps=dict(zip(("compute", "bandwidth", "overhead"), simulation.bound_steps, strict=True)),
        tokens_per_s=_rate(scheduler.generated, simulation.now),
        waited_s=simulation.waited_s,
        copied_bytes=simulation.policy.copied,
        written_bytes=scheduler.written * simulation.roofline.token_bytes,
        prefix=_prefix_use(simulation.policy.prompts),
        driver_calls=driver_calls,
        driver_s=driver_s,
        uncosted=uncosted,
        timeline=meter.timeline,
    )


def _prefix_use(prompts: PromptTokens | None) -> PrefixUse | None:
    return PrefixUse(prompts.asked_tokens, prompts.hit_tokens, prompts.asked, prompts.hit) if prompts else None


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
