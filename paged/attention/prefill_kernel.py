"""Prefill on a pool by either kernel: the last tokens of each sequence, whole prompts or chunks of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_cu import PagedKV, PrefillPlan, launch
from kernels_cu.launches.arguments import MOST_ROWS

from ..pool import KVPool
from .last_plans import last_plan
from .options import AttentionOptions


def prefill_simple(
    pool: KVPool,
    kv: PagedKV,
    query: Any,
    tables: Any,
    plan: PrefillPlan,
    out: Any,
    causal: bool,
    options: AttentionOptions,
) -> None:
    """Launch paged_attention_simple for each sequence, as if each of its tokens were a sequence of its own.

    A token at position p sees what the one token of a decode of p + 1 tokens sees; all have the same block table.
    """
    for row, (start, stop) in enumerate(zip(plan.query_starts[:-1], plan.query_starts[1:], strict=True)):
        length, new = int(plan.lengths[row]), int(stop - start)
        seen = np.arange(length - new + 1, length + 1) if causal else np.full(new, length)
        counts = np.asarray(seen.astype(np.int32), like=query)
        for first in range(0, new, MOST_ROWS):
            rows = slice(start + first, min(start + first + MOST_ROWS, stop))
            launch.paged_attention_simple(
                pool.device,
                kv,
                query[rows],
                np.broadcast_to(tables[row], (rows.stop - rows.start, tables.shape[1])),
                counts[first : first + MOST_ROWS],
                out[rows],
                scale=options.scoring.scale,
                stream=options.stream,
            )


def prefill_fast(
    pool: KVPool,
    kv: PagedKV,
    query: Any,
    tables: Any,
    plan: PrefillPlan,
    out: Any,
    causal: bool,
    options: AttentionOptions,
) -> None:
    """Launch paged_prefill, with the plan of the last layer where that is the same."""
    key = (plan.query_starts.tobytes(), plan.lengths.tobytes(), plan.query_heads, plan.kv_heads, options.stream)
    moved = last_plan(pool, "paged_prefill", key, lambda: plan.on(lambda array: np.asarray(array, like=query)))
    launch.paged_prefill(
        pool.device,
        kv,
        moved,
        query,
        tables,
        out,
        lse=options.lse,
        causal=causal,
        window=options.window,
        scoring=options.scoring,
        stream=options.stream,
    )
