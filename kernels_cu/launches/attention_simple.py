"""Launch of paged_attention_simple: the kernel that teaches."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, view
from ..checked_launch import launch_checked
from ..constants import constants_of
from ..errors import LaunchError
from ..ids import check_tables
from ..paged_kv import NARROW, PagedKV
from ..target import Target
from .arguments import MOST_ROWS, WARP, addresses, group_of, pool_arguments, row_strides, scale_log2


def paged_attention_simple(
    target: Target,
    kv: PagedKV,
    query: Array,
    block_tables: Array,
    lengths: Array,
    out: Array,
    *,
    scale: float | None = None,
    stream: int = 0,
) -> None:
    """Attention of one query token of each of B sequences over the sequence's tokens in the pool.

    ``query`` and ``out`` [B, Hq, D] of kv.dtype, whose sequences may lie apart, Hq a multiple of Hkv; ``block_tables``
    int32 [B, max_blocks]; ``lengths`` int32 [B] in tokens. ``scale`` multiplies the scores, 1 / sqrt(D) if None. A
    length of 0 gives zeros, one beyond max_blocks * block_size NaN. B = 0 launches nothing. Raises LaunchError for
    arguments that do not fit, target.fault(...) for memory that is not there.
    """
    if kv.dtype in NARROW:
        raise LaunchError(f"paged_attention_simple takes no cache of {kv.dtype}; use paged_decode")
    queries = view("query", query, target.arch, kv.dtype, (None, None, kv.head_dim))
    sequences, query_heads, _ = queries.shape
    outs = view("out", out, target.arch, kv.dtype, queries.shape, writable=True)
    tables = view("block_tables", block_tables, target.arch, "int32", (sequences, None))
    counts = view("lengths", lengths, target.arch, "int32", (sequences,))
    arguments = (
        *pool_arguments(kv),
        np.int32(group_of(query_heads, kv.kv_heads)),
        *addresses(outs, queries, tables, counts),
        *row_strides(outs, queries, tables),
        np.int32(tables.shape[1]),
        np.float32(scale_log2(scale, kv.head_dim)),
    )
    if sequences > MOST_ROWS:
        raise LaunchError(f"query has {sequences} sequences, a launch takes at most {MOST_ROWS}; split the batch")
    grid, block, keepalive = (query_heads, sequences, 1), (WARP, 1, 1), (query, block_tables, lengths, out)
    launch_checked(
        target,
        "paged_attention_simple",
        constants_of(kv),
        grid,
        block,
        arguments,
        stream=stream,
        keepalive=keepalive,
        look=lambda: check_tables(kv, block_tables, lengths),
    )
