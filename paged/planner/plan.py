"""Plan: one server on one kind of GPU, from options to what fits and what binds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from ..layout import KVLayout
from .binding import LENGTH, POSITIONS, Verdict, running_verdict, starting_verdict
from .layouts import LayoutCost, layout_costs
from .lengths import Lengths, read_lengths
from .memory import Setting, StageMemory, find_setting, stage_memories
from .option_values import AUTO
from .options import PlanOptions
from .parts import Part, parts_of
from .refusal import ALLOW_LONG, lacks_bfloat16, refusal, too_long
from .sequences import Concurrency, concurrencies

SCHEMA = 1
"""The version of the JSON form."""


ASKED = "max_model_len as asked"
"""The label of a length that is more than the model has positions for."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that was found. ``memory`` is the stage whose GPU holds the fewest tokens; it bounds all of them.

    ``longest`` is the longest sequence, and ``longest_by`` what says so. ``parts`` add up to the GPU's memory.
    ``verdict`` is about memory; ``refusal`` says why vLLM does not start whatever memory there is, "" if it does.
    """

    setting: Setting
    stages: int
    stage: int
    memory: StageMemory
    longest: int
    longest_by: str
    lengths: Lengths
    parts: tuple[Part, ...]
    sequences: tuple[Concurrency, ...]
    layouts: tuple[LayoutCost, ...]
    verdict: Verdict
    refusal: str
    notes: tuple[str, ...]
    ignored: tuple[str, ...] = ()

    @property
    def starts(self) -> bool:
        """Whether the server starts with these options."""
        return self.verdict.starts and not self.refusal

    @property
    def holds_nothing(self) -> bool:
        """Whether there is no room for a sequence, of no length and in no layout."""
        return not (any(row.held for row in self.sequences) or any(row.held for row in self.layouts))

    def layout_of(self, row: LayoutCost) -> KVLayout:
        """The layout of a row of ``layouts``, for the first group of layers: what a KVPool takes."""
        group = dataclasses.replace(self.memory.pool.uses[0].group, dtype=row.kv_dtype)
        return KVLayout(group, row.block_size, row.order, chunk=row.chunk)

    def to_json(self) -> dict[str, Any]:
        """Plain data: sizes in bytes, each part with its formula and whether it is an estimate."""
        setting, model, pool = self.setting, self.setting.model, self.memory.pool
        return {
            "schema": SCHEMA,
            "model": {
                "name": model.spec.name,
                "parameters": model.spec.parameters,
                "positions": model.spec.max_positions,
                "dtype": model.dtype,
                "quantization": setting.quantization.name,
                "kv_token_bytes": pool.token_bytes,
                "kv": [str(use.group) for use in pool.uses],
            },
            "gpu": {"name": setting.gpu.name, "memory": setting.gpu.memory, "count": setting.gpus},
            "options": dataclasses.asdict(setting.options),
            "max_num_seqs": setting.max_num_seqs,
            "max_num_batched_tokens": setting.max_num_batched_tokens,
            "stage": {"number": self.stage, "of": self.stages, "layers": self.memory.stage.layers},
            "parts": [dataclasses.asdict(part) for part in self.parts],
            "activations": dataclasses.asdict(self.memory.activations),
            "graphs": dataclasses.asdict(self.memory.graphs),
            "kv_pool": {
                "bytes": pool.budget,
                "block_bytes": [use.block_bytes for use in pool.uses],
                "blocks": pool.blocks,
                "tokens": pool.tokens,
                "longest_sequence": pool.longest(model.spec.max_positions),
            },
            "longest": {"tokens": self.longest, "by": self.longest_by},
            "lengths": {
                "from": self.lengths.name,
                "requests": len(self.lengths.prompt),
                "left_out": self.lengths.left_out,
            },
            "sequences": [dataclasses.asdict(row) for row in self.sequences],
            "layouts": [dataclasses.asdict(row) | {"waste_share": row.waste_share} for row in self.layouts],
            "verdict": dataclasses.asdict(self.verdict) | {"starts": self.starts, "refusal": self.refusal},
            "notes": list(self.notes),
            "ignored": list(self.ignored),
        }

    def json_text(self) -> str:
        """``to_json`` as text that ends with a line feed."""
        return json.dumps(self.to_json(), indent=2) + "\n"


def make_plan(
    options: PlanOptions, trace: str | None = None, notes: tuple[str, ...] = (), ignored: tuple[str, ...] = ()
) -> Plan:
    """Plan a server; lengths are those of ``trace``, or of azure_conv 2023 by its published quantiles.

    Raises ValueError for what cannot be meant; that nothing fits is an answer, in ``verdict``.
    """
    setting = find_setting(options)
    memories = stage_memories(setting)
    tightest = min(memories, key=lambda found: (found.pool.budget / found.pool.token_bytes, -found.fixed))
    longest, by = _longest(setting, memories)
    lengths = read_lengths(trace, longest)
    rows = concurrencies(setting, [found.pool for found in memories], lengths, _ends(setting, longest, by))
    failing = (starting_verdict(setting, found, longest) for found in (tightest, *memories))
    verdict = next(filter(None, failing), None) or running_verdict(setting, rows[0])
    return Plan(
        setting,
        len(memories),
        memories.index(tightest) + 1,
        tightest,
        longest,
        by,
        lengths,
        parts_of(setting, tightest),
        rows,
        layout_costs(setting, tightest, lengths),
        verdict,
        refusal(setting),
        (*notes, *_notes(setting, lengths)),
        ignored,
    )


def _longest(setting: Setting, memories: Sequence[StageMemory]) -> tuple[int, str]:
    """The longest sequence, and what says so: positions beyond the model's own are not planned with."""
    positions, asked = setting.model.spec.max_positions, setting.asked_len
    if setting.options.max_model_len == AUTO:
        return min(found.pool.longest(positions) for found in memories) or positions, "what fits"
    if setting.options.allow_long:
        return asked, LENGTH
    return (positions, POSITIONS) if asked >= positions else (asked, LENGTH)


def _ends(setting: Setting, longest: int, by: str) -> dict[str, int]:
    """Lengths besides those of the trace, by label."""
    asked, given = setting.asked_len, setting.options.max_model_len
    return {f"longest ({by})": longest} | ({ASKED: asked} if given not in (None, AUTO) and asked > longest else {})


def _notes(setting: Setting, lengths: Lengths) -> list[str]:
    notes, model, beyond = [], setting.model, too_long(setting)
    if beyond:
        notes.append(
            f"{beyond}; {ALLOW_LONG} lets it start, with tokens the model was not made for"
            if setting.options.allow_long
            else f"{beyond}: vLLM refuses to start ({ALLOW_LONG} overrides it); planned with "
            f"{model.spec.max_positions:,}"
        )
    if lacks_bfloat16(setting) and setting.options.dtype == "auto":
        notes.append(
            f"{setting.gpu.name} has no bfloat16: vLLM computes in float16, which is as wide; versions that refuse to "
            "start need --dtype half"
        )
    if lengths.left_out:
        notes.append(f"requests that are longer than a sequence may be are left out: {lengths.left_out:,}")
    if len(model.spec.groups) > 1:
        notes.append(
            "layers that keep different KV have a pool each here; vLLM pads them to one block size and holds less"
        )
    return notes
