"""Prefill against decode: how a server's busy time was spent. An estimate, from the lines of throughput alone.

Lines with outputs only are decode, lines with prompts only are prefill. In the others, decode takes

    (output tokens a second / running sequences) x seconds of a decode step

of each second, because a step gives each running sequence a token; the rest is prefill. How long a step takes is known
from the lines that mostly decode, at the same batch size or between the two nearest.
"""

from __future__ import annotations

import dataclasses

from .concurrency import Point, step_seconds
from .serving_tally import ServingTally


@dataclasses.dataclass(frozen=True)
class Phases:
    """Seconds. ``unknown_s`` is of lines that have both and cannot be split: no line of the log mostly decodes."""

    prefill_s: float
    decode_s: float
    unknown_s: float
    idle_s: float
    prompt_tokens: int
    output_tokens: int


def phases(serving: ServingTally, found: list[Point]) -> Phases:
    """Split the busy time of a log."""
    prefill = decode = unknown = 0.0
    for running, tally in serving.by_running.items():
        mixed = tally.seconds - tally.decode_s - tally.prefill_s
        prefill += tally.prefill_s
        decode += tally.decode_s
        step = step_seconds(found, running) if running else None
        if step is None:
            unknown += mixed
            continue
        tokens = tally.output_tokens - tally.decode_tokens
        share = min(mixed, tokens / running * step)
        decode += share
        prefill += mixed - share
    whole = serving.total()
    return Phases(
        prefill_s=prefill,
        decode_s=decode,
        unknown_s=unknown,
        idle_s=serving.idle_s,
        prompt_tokens=round(whole.prompt_tokens),
        output_tokens=round(whole.output_tokens),
    )
