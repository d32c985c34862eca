"""Sequences: how many run at once at a length, and which limit they meet first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .kv_pool import PoolSize
from .lengths import PERCENTILES, Lengths
from .memory import Setting

KV, SEQS, TOKENS = "KV pool", "max_num_seqs", "max_num_batched_tokens"


@dataclasses.dataclass(frozen=True)
class Concurrency:
    """Sequences of ``tokens`` tokens: ``held`` by the KV pool, ``running`` at once, the ``limit`` that they meet."""

    label: str
    tokens: float
    held: int
    running: int
    limit: str


DECODING = "mean over decode steps"
"""The label of the length that a running server sees."""


def concurrencies(
    setting: Setting, pools: Sequence[PoolSize], lengths: Lengths, longest: dict[str, int]
) -> tuple[Concurrency, ...]:
    """At the lengths of a trace, and at those of ``longest`` by label.

        running = min(held by the pool of every stage, max_num_seqs)

    A decode step computes one token of each running sequence. Where no max_num_seqs is given, vLLM takes no more than
    the batched tokens, which are then the limit.
    """
    steps = float((lengths.prompt * lengths.output + lengths.output * (lengths.output + 1) // 2).sum()) / lengths.steps
    held = min(pool.holds_decoding(lengths) for pool in pools)
    rows = [_bounded(setting, DECODING, steps, held)]
    rows.append(_of_length(setting, pools, "mean when it ends", round(lengths.mean)))
    for percent in PERCENTILES:
        rows.append(_of_length(setting, pools, f"p{percent} when it ends", lengths.percentile(percent)))
    rows += [_of_length(setting, pools, label, tokens) for label, tokens in longest.items() if tokens]
    return tuple(rows)


def _of_length(setting: Setting, pools: Sequence[PoolSize], label: str, tokens: int) -> Concurrency:
    return _bounded(setting, label, tokens, min(pool.holds(tokens) for pool in pools))


def _bounded(setting: Setting, label: str, tokens: float, held: int) -> Concurrency:
    if held <= setting.max_num_seqs:
        return Concurrency(label, tokens, held, held, KV)
    by_tokens = setting.options.max_num_seqs is None and setting.max_num_seqs == setting.max_num_batched_tokens
    return Concurrency(label, tokens, held, setting.max_num_seqs, TOKENS if by_tokens else SEQS)
