"""Launches that join attention over parts into attention over the whole."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, dtype_of, optional_view, view
from ..checked_launch import launch_checked
from ..plan import DecodePlan
from ..target import Target
from .arguments import FLOATS, WARP, addresses, partial_views, row_strides

MERGE_WARPS = 4
"""Of a thread block, in both kernels."""


def merge_states(
    target: Target,
    a: Array,
    a_lse: Array,
    b: Array,
    b_lse: Array,
    out: Array,
    lse: Array,
    *,
    stream: int = 0,
) -> None:
    """Join attention over two sets of tokens, a shared prefix and a suffix say, into attention over both.

    ``a``, ``b`` and ``out`` [N, H, D] of one of float32, float16, bfloat16, all packed; their ``lse`` float32 [N, H] in
    base 2, minus infinity for no tokens. ``out`` and ``lse`` may be those of a or b. Raises LaunchError for arrays that
    do not fit, target.fault(...) for memory that is not there.
    """
    dtype = dtype_of("a", a, FLOATS)
    first = view("a", a, target.arch, dtype, (None, None, None), packed=True)
    shape = first.shape
    states = shape[:2]
    second = view("b", b, target.arch, dtype, shape, packed=True)
    joined = view("out", out, target.arch, dtype, shape, writable=True, packed=True)
    sums = [
        view(name, array, target.arch, "float32", states, writable=name == "lse", packed=True)
        for name, array in (("lse", lse), ("a_lse", a_lse), ("b_lse", b_lse))
    ]
    arguments = (*addresses(joined, sums[0], first, sums[1], second, sums[2]), np.int64(states[0] * states[1]))
    grid = (-(-states[0] * states[1] // MERGE_WARPS), 1, 1)
    launch_checked(
        target,
        "merge_states",
        {"ELEMENT": dtype, "HEAD_DIM": shape[2]},
        grid,
        (WARP * MERGE_WARPS, 1, 1),
        arguments,
        stream=stream,
        keepalive=(a, a_lse, b, b_lse, out, lse),
    )


def decode_merge(
    target: Target,
    plan: DecodePlan,
    partial_out: Array | None,
    partial_lse: Array | None,
    out: Array,
    *,
    lse: Array | None = None,
    sinks: Array | None = None,
    stream: int = 0,
) -> None:
    """Join the partial results of the items that ``plan`` cut; the others are not touched.

    ``partial_out`` float32 [P, plan.heads, D] and ``partial_lse`` float32 [P, plan.heads] (base 2), P at least
    plan.partials; ``out`` [B, Hq, D] of float32, float16 or bfloat16 and ``lse`` float32 [B, Hq], whose sequences may
    lie apart. ``sinks`` float32 [Hq] are one more logit of each head that counts in the denominator alone, and in the
    LSE. No cut items launch nothing. Raises LaunchError for arrays that do not fit, target.fault(...) for memory that
    is not there.
    """
    dtype = dtype_of("out", out, FLOATS)
    sequences, query_heads = plan.sequences, plan.query_heads
    outs = view("out", out, target.arch, dtype, (sequences, query_heads, None), writable=True)
    head_dim = outs.shape[2]
    partials, sums = partial_views(plan, partial_out, partial_lse, head_dim, target.arch)
    rows = view("merge_rows", plan.merge_rows, target.arch, "int32", (plan.merges, 2))
    starts = view("merge_starts", plan.merge_starts, target.arch, "int32", (plan.merges + 1,))
    lses = optional_view("lse", lse, target.arch, "float32", (sequences, query_heads), writable=True)
    arguments = (
        *addresses(outs, lses, partials, sums, rows, starts),
        *addresses(optional_view("sinks", sinks, target.arch, "float32", (query_heads,))),
        *row_strides(outs, lses),
        np.int32(plan.query_heads // plan.kv_heads),
    )
    launch_checked(
        target,
        "decode_merge",
        {"ELEMENT": dtype, "HEAD_DIM": head_dim, "HEADS": plan.heads},
        (plan.merges, plan.heads, 1),
        (WARP * MERGE_WARPS, 1, 1),
        arguments,
        stream=stream,
        keepalive=(plan, partial_out, partial_lse, out, lse, sinks),
    )
