"""Launch of paged_prefill: attention of prompts, whole or in chunks."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, dtype_of, optional_view, view
from ..checked_launch import launch_checked
from ..constants import Constants
from ..errors import LaunchError
from ..ids import check_tables, first_seen
from ..paged_kv import ELEMENT_BYTES, NARROW, PagedKV
from ..plan_prefill import ROWS, PrefillPlan
from ..scoring import Scoring
from ..shared_memory import most_shared_bytes
from ..target import Target
from ..whole_numbers import MOST_TOKENS, whole_number
from .arguments import HALVES, WARP, addresses, check_kv_heads, check_room, pool_arguments, row_strides
from .decode_build import TILE, WARPS, check_walkable


def paged_prefill(
    target: Target,
    kv: PagedKV,
    plan: PrefillPlan,
    query: Array,
    block_tables: Array,
    out: Array,
    *,
    lse: Array | None = None,
    causal: bool = True,
    window: int | None = None,
    scoring: Scoring | None = None,
    stream: int = 0,
) -> None:
    """Attention of the last tokens of each of B sequences over all its tokens in the pool.

    ``query`` and ``out`` [N, Hq, D] of float16 or bfloat16, the cache's type unless that is e4m3 or int8: the queries
    of all sequences one after the other, as ``plan`` counts them; tokens may lie apart. Their K and V are in the pool
    already. ``block_tables`` int32 [B, max_blocks]; ``lse`` float32 [N, Hq], in base 2. D is 64, 128 or 256, the layout
    hnd or nhd. Query i of T stands at position length - T + i. If ``causal`` it sees the tokens up to there, else all;
    with ``window`` none but the last so many up to its position.

    A query that sees nothing gives zeros and an LSE of minus infinity. N = 0 launches nothing. Raises LaunchError for
    arguments that do not fit, target.fault(...) for memory that is not there.
    """
    arch, chosen = target.arch, scoring or Scoring()
    dtype = dtype_of("query", query, HALVES if kv.dtype in NARROW else (kv.dtype,))
    shape = (plan.tokens, plan.query_heads, kv.head_dim)
    queries = view("query", query, arch, dtype, shape)
    outs = view("out", out, arch, dtype, shape, writable=True)
    lses = optional_view("lse", lse, arch, "float32", shape[:2], writable=True)
    tables = view("block_tables", block_tables, arch, "int32", (plan.sequences, None))
    tiles = view("tiles", plan.tiles, arch, "int32", (None, 2))
    starts = view("query_starts", plan.query_starts, arch, "int32", (plan.sequences + 1,))
    counts = view("lengths", plan.lengths, arch, "int32", (plan.sequences,))
    check_kv_heads(kv, plan)
    check_room(kv, plan, tables.shape[1])
    if window is not None:
        whole_number("window", window, 1, MOST_TOKENS)
    build = prefill_build(kv.dtype, kv.head_dim, kv.layout, arch)
    arguments = (
        *pool_arguments(kv),
        np.int32(plan.query_heads // plan.kv_heads),
        *addresses(outs, lses, queries, tables, starts, counts, tiles),
        *row_strides(outs, queries, tables, lses),
        np.int32(window or 0),
        *chosen.arguments(kv, plan.query_heads, arch),
    )
    options = {"CAUSAL": int(causal), "WINDOW": int(window is not None), **chosen.flags()}
    constants = prefill_constants(kv.dtype, dtype, kv.head_dim, kv.block_size, build, options)

    def look() -> None:
        check_tables(kv, block_tables, plan.lengths, first_seen(plan.lengths, np.diff(plan.query_starts), window))

    launch_checked(
        target,
        "paged_prefill",
        constants,
        (tiles.shape[0], kv.kv_heads, 1),
        (WARP * WARPS, 1, 1),
        arguments,
        stream=stream,
        keepalive=(query, block_tables, out, lse, plan, *chosen.arrays()),
        shared_bytes=build[1],
        look=look,
    )


def prefill_build(dtype: str, head_dim: int, layout: str, arch: str) -> tuple[int, int]:
    """Thread blocks a multiprocessor, 1 or 2, and the shared memory of one: the rows and two turns of 64 tokens.

    Raises LaunchError for a cache that the kernel does not walk.
    """
    check_walkable(dtype, head_dim, layout)
    needed = ROWS * head_dim * 2 + 2 * WARPS * 2 * TILE * head_dim * ELEMENT_BYTES[dtype]
    for thread_blocks in (2, 1) if head_dim < 256 else (1,):
        if needed <= most_shared_bytes(arch, thread_blocks):
            return thread_blocks, needed
    raise LaunchError(
        f"{arch} has {most_shared_bytes(arch, 1)} bytes of shared memory for a thread block, prefill with head_dim "
        f"{head_dim} of {dtype} needs {needed}; use a GPU with more"
    )


def prefill_constants(
    dtype: str, query: str, head_dim: int, block_size: int, build: tuple[int, int], options: Constants
) -> Constants:
    """The -D constants of paged_prefill."""
    return {
        "ELEMENT": dtype,
        "QUERY": query,
        "HEAD_DIM": head_dim,
        "LAYOUT_VLLM": 0,
        "BLOCK_SIZE": block_size,
        "MIN_BLOCKS": build[0],
        **options,
    }
