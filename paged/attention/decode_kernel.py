"""Decode on a pool by either kernel: one query token a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_cu import PagedKV, launch

from ..pool import KVPool
from .last_plans import decode_work
from .options import AttentionOptions


def decode_simple(
    pool: KVPool, kv: PagedKV, query: Any, tables: Any, lengths: Any, out: Any, options: AttentionOptions
) -> None:
    """Launch paged_attention_simple over ``lengths`` (on the host)."""
    counts, scale = np.asarray(lengths, like=query), options.scoring.scale
    launch.paged_attention_simple(pool.device, kv, query, tables, counts, out, scale=scale, stream=options.stream)


def decode_fast(
    pool: KVPool, kv: PagedKV, query: Any, tables: Any, lengths: Any, out: Any, options: AttentionOptions
) -> None:
    """Launch paged_decode over ``lengths`` (on the host), with a plan for all multiprocessors of the pool's device."""
    plan, partials = decode_work(pool, pool.device, "paged_decode", kv, query, lengths, options)
    launch.paged_decode(
        pool.device,
        kv,
        plan,
        query,
        tables,
        np.asarray(lengths, like=query),
        out,
        lse=options.lse,
        scoring=options.scoring,
        stream=options.stream,
        **partials,
    )
