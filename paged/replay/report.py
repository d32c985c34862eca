"""What a replay found: figures by policy, and their form as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..serving.prompt_tokens import PromptTokens
from ..serving.simulation import Simulation
from ..serving.timeline import Timeline

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

    @property
    def token_rate(self) -> float:
        """Tokens found over tokens asked for."""
        return self.hit_tokens / self.asked_tokens if self.asked_tokens else 0.0


class Served(NamedTuple):
    """What became of the requests of one of several models, and when the last of them had ended (seconds)."""

    model: str
    completed: int
    rejected: int
    preemptions: int
    output_tokens: int
    finished_s: float

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second, until its last request had ended."""
        return _rate(self.output_tokens, self.finished_s)

    def to_json(self) -> dict[str, str | float]:
        """All of it by name."""
        return {**self._asdict(), "tokens_per_s": self.tokens_per_s}


@dataclasses.dataclass(frozen=True)
class PolicyResult:
    """One policy's run. Sizes are bytes, times simulated seconds, ``waste`` mean bytes by cause.

    ``committed.mean`` is ``live.mean`` and all of ``waste`` together, to the byte. ``rejected`` counts the ``too_long``
    (more than max_model_len) and the ``never_fits`` (more than the budget can ever hold). ``driver_s`` is what the
    ``driver_calls`` took: measured on a real driver, on the host by a published cost set, whose gaps are ``uncosted``.
    Of the ``preemptions`` those ``swapped`` went to the host and back, ``swapped_bytes`` both ways together.
    ``waited_s`` of the duration is for the bus, and for the driver where its time is charged. ``written_bytes`` are KV
    of tokens computed, ``copied_bytes`` what was moved besides; compaction moved ``moved_blocks``. ``prefix`` is None
    without a prefix cache. ``models`` has one entry a model; all other figures are those of all models together.
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
    moved_blocks: int
    prefix: PrefixUse | None
    driver_calls: dict[str, int]
    driver_s: float
    uncosted: tuple[str, ...]
    timeline: Timeline
    models: tuple[Served, ...]

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

    @property
    def committed_over_kept(self) -> float | None:
        """The same over mean live bytes and those that only the prefix cache keeps, which are of use too."""
        return self.committed.mean / (self.live.mean + self.waste["prefix"]) if self.live.mean else None

    def to_json(self) -> dict[str, Any]:
        """The figures under the names of the JSON form."""
        return {
            "reserved_bytes": self.reserved.to_json(),
            "committed_bytes": self.committed.to_json(),
            "live_bytes": self.live.to_json(),
            "committed_over_live": self.committed_over_live,
            "committed_over_live_and_cached": self.committed_over_kept,
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
            "moved_blocks": self.moved_blocks,
            "prefix": self.prefix._asdict() if self.prefix else None,
            "models": [served.to_json() for served in self.models],
            "driver_calls": self.driver_calls,
            "driver_time_s": self.driver_s,
        }


@dataclasses.dataclass(frozen=True)
class Report:
    """A whole replay: on what it ran, its options as they were resolved, and a PolicyResult a policy.

    ``trace`` and ``model`` are names, ``requests`` a count, ``budget`` the bytes for KV; ``lengths`` has quantiles of
    prompts and outputs in tokens, ``notes`` what was changed in the trace. ``policies`` are by name.
    """

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
    members: Sequence[Simulation],
    models: Sequence[str],
    finished_s: Sequence[float],
    driver_calls: dict[str, int],
    driver_s: float,
    uncosted: tuple[str, ...],
) -> PolicyResult:
    """The figures of simulations that have run, one a model on the same meter."""
    meter, schedulers = members[0].meter, [member.scheduler for member in members]
    waste = meter.whole_parts()
    live = waste.pop("live")
    bounds = [sum(terms) for terms in zip(*(member.bound_steps for member in members), strict=True)]
    return PolicyResult(
        reserved=Figure(round(meter.mean("reserved")), meter.reserved_peak),
        committed=Figure(live + sum(waste.values()), meter.committed_peak),
        live=Figure(live, meter.live_peak),
        running=Figure(meter.mean("running"), meter.running_peak),
        waste=waste,
        preemptions=sum(one.preemptions for one in schedulers),
        swapped=sum(one.swapped for one in schedulers),
        swapped_bytes=sum(member.host_space.copied for member in members if member.host_space),
        completed=sum(one.completed for one in schedulers),
        too_long=sum(one.too_long for one in schedulers),
        never_fits=sum(one.never_fits for one in schedulers),
        steps=sum(member.steps for member in members),
        duration_s=meter.now,
        prefill_s=sum(member.prefill_s for member in members),
        decode_s=sum(member.decode_s for member in members),
        bound_steps=dict(zip(("compute", "bandwidth", "overhead"), bounds, strict=True)),
        tokens_per_s=_rate(sum(one.generated for one in schedulers), meter.now),
        waited_s=sum(member.waited_s for member in members),
        copied_bytes=sum(member.policy.copied for member in members),
        written_bytes=sum(member.scheduler.written * member.roofline.token_bytes for member in members),
        moved_blocks=sum(member.policy.moved for member in members),
        prefix=_prefix_use([member.policy.prompts for member in members if member.policy.prompts]),
        driver_calls=driver_calls,
        driver_s=driver_s,
        uncosted=uncosted,
        timeline=meter.timeline,
        models=tuple(
            Served(name, one.completed, one.rejected, one.preemptions, one.generated, end)
            for name, one, end in zip(models, schedulers, finished_s, strict=True)
        ),
    )


def _prefix_use(caches: Sequence[PromptTokens]) -> PrefixUse | None:
    if not caches:
        return None
    counts = [(one.asked_tokens, one.hit_tokens, one.asked, one.hit) for one in caches]
    return PrefixUse(*(sum(parts) for parts in zip(*counts, strict=True)))


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
