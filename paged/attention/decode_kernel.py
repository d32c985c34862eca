"""Decode on a pool by either kernel: one query token a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_cu import PagedKV, launch

from ..attached_kv import AttachedKV
from ..pool import KVPool
from ..tables.step_tables import StepTables
from .kernel_choice import choose_kernel
from .last_plans import decode_work
from .options import AttentionOptions

Owner = KVPool | AttachedKV
"""Whose K and V it is: whose device runs the kernels, and for whom plans are kept."""


def decode_step(
    owner: Owner, kv: PagedKV, query: Any, step: StepTables, options: AttentionOptions, kernel: str | None
) -> Any:
    """The result of one step by ``kernel``, or the one that is chosen. Raises ValueError where a window saw dropped."""
    step.check_window(options.window)
    out = np.empty_like(query)
    chosen = choose_kernel(owner.device, "paged_decode", kv, query, options, kernel)
    run = decode_fast if chosen == "fast" else decode_simple
    run(owner, kv, query, step.tables, step.lengths, out, options)
    return out


def decode_simple(
    owner: Owner, kv: PagedKV, query: Any, tables: Any, lengths: Any, out: Any, options: AttentionOptions
) -> None:
    """Launch paged_attention_simple over ``lengths`` (on the host)."""
    counts, scale = np.asarray(lengths, like=query), options.scoring.scale
    launch.paged_attention_simple(owner.device, kv, query, tables, counts, out, scale=scale, stream=options.stream)


def decode_fast(
    owner: Owner, kv: PagedKV, query: Any, tables: Any, lengths: Any, out: Any, options: AttentionOptions
) -> None:
    """Launch paged_decode over ``lengths`` (on the host), with a plan for all multiprocessors of its device."""
    plan, partials = decode_work(owner, owner.device, "paged_decode", kv, query, lengths, options)
    launch.paged_decode(
        owner.device,
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
