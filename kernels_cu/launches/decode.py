"""Launch of paged_decode and contiguous_decode: attention of one query token a sequence, at the speed of the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, ArrayView, dtype_of, optional_view, view
from ..checked_launch import launch_checked
from ..errors import LaunchError
from ..ids import check_tables, first_seen
from ..paged_kv import NARROW, PagedKV
from ..parameters import Argument
from ..plan import DecodePlan
from ..scoring import Scoring
from ..target import Target
from .arguments import HALVES, WARP, addresses, check_kv_heads, check_room, partial_views, pool_arguments, row_strides
from .decode_build import WARPS, decode_build, decode_constants
from .merge import decode_merge


def paged_decode(
    target: Target,
    kv: PagedKV,
    plan: DecodePlan,
    query: Array,
    block_tables: Array,
    lengths: Array,
    out: Array,
    *,
    lse: Array | None = None,
    partial_out: Array | None = None,
    partial_lse: Array | None = None,
    scoring: Scoring | None = None,
    stream: int = 0,
) -> None:
    """Attention of one query token of each of B sequences over the sequence's tokens in the pool, divided by ``plan``.

    ``query`` and ``out`` [B, Hq, D] of float16 or bfloat16, the cache's type unless that is e4m3 or int8, whose
    sequences may lie apart; ``block_tables`` int32 [B, max_blocks]; ``lengths`` int32 [B], those the plan was made for;
    ``lse`` float32 [B, Hq], in base 2. D is 64, 128 or 256, the layout hnd or nhd. ``plan`` has its arrays where the
    kernels run (plan.on). If it cuts items, ``partial_out`` float32 [plan.partials, plan.heads, D] and ``partial_lse``
    [plan.partials, plan.heads] (plan.partial_shapes) hold their parts between two launches on ``stream``, this kernel
    and decode_merge.

    A length of 0 gives zeros and an LSE of minus infinity. B = 0 launches nothing. Raises LaunchError for arguments
    that do not fit, target.fault(...) for memory that is not there.
    """
    tables = view("block_tables", block_tables, target.arch, "int32", (plan.sequences, None))
    check_room(kv, plan, tables.shape[1])

    def look() -> None:
        check_tables(kv, block_tables, lengths, first_seen(lengths, 1, plan.window))

    arrays = _Arrays(query, lengths, out, lse, partial_out, partial_lse)
    options, walk = {"BLOCK_SIZE": kv.block_size}, (tables, block_tables)
    _launch(target, "paged_decode", kv, plan, arrays, walk, options, scoring or Scoring(), stream, look)


def contiguous_decode(
    target: Target,
    kv: PagedKV,
    plan: DecodePlan,
    query: Array,
    starts: Array,
    lengths: Array,
    out: Array,
    *,
    lse: Array | None = None,
    partial_out: Array | None = None,
    partial_lse: Array | None = None,
    scoring: Scoring | None = None,
    stream: int = 0,
) -> None:
    """The same as ``paged_decode`` where each sequence's tokens lie side by side in one span of addresses.

    ``starts`` int64 [B] counts elements from kv.key, and from kv.value, to token 0 of each sequence; token t of head h
    lies t * kv.slot_stride + h * kv.head_stride behind it. Only memory of tokens that exist is touched. kv's block
    stride and block size mean nothing here. Everything else, and what is raised, is as in paged_decode.
    """
    places = view("starts", starts, target.arch, "int64", (plan.sequences,))
    arrays = _Arrays(query, lengths, out, lse, partial_out, partial_lse)
    _launch(target, "contiguous_decode", kv, plan, arrays, (places, starts), {}, scoring or Scoring(), stream)


@dataclass(frozen=True)
class _Arrays:
    """The arrays that decode kernels share, as they were given."""

    query: Array
    lengths: Array
    out: Array
    lse: Array | None
    partial_out: Array | None
    partial_lse: Array | None

    def dtype(self, kv: PagedKV) -> str:
        """The type of query and out."""
        return dtype_of("query", self.query, HALVES if kv.dtype in NARROW else (kv.dtype,))

    def partial_views(self, plan: DecodePlan, head_dim: int, arch: str) -> tuple[ArrayView, ArrayView]:
        """Where parts of cut items go; NULL for a plan that cuts none."""
        if plan.partials and (self.partial_out is None or self.partial_lse is None):
            shapes = [list(shape) for shape in plan.partial_shapes(head_dim)]
            raise LaunchError(
                f"the plan has {plan.partials} partial results; pass partial_out float32 {shapes[0]} "
                f"and partial_lse {shapes[1]}"
            )
        return partial_views(plan, self.partial_out, self.partial_lse, head_dim, arch)


def _launch(
    target: Target,
    kernel: str,
    kv: PagedKV,
    plan: DecodePlan,
    arrays: _Arrays,
    walk: tuple[ArrayView, Array],
    options: dict[str, int],
    scoring: Scoring,
    stream: int,
    look: Callable[[], None] | None = None,
) -> None:
    """Launch ``kernel``, which finds a sequence's tokens by a row of ``walk``, and the merge if there is one."""
    check_kv_heads(kv, plan)
    arch, dtype, rows = target.arch, arrays.dtype(kv), (plan.sequences, plan.query_heads)
    queries = view("query", arrays.query, arch, dtype, (*rows, kv.head_dim))
    outs = view("out", arrays.out, arch, dtype, (*rows, kv.head_dim), writable=True)
    lses = optional_view("lse", arrays.lse, arch, "float32", rows, writable=True)
    partials = arrays.partial_views(plan, kv.head_dim, arch)
    counts = view("lengths", arrays.lengths, arch, "int32", rows[:1])
    segments = view("segments", plan.segments, arch, "int32", (None, 6))
    starts = view("share_starts", plan.share_starts, arch, "int32", (plan.shares + 1,))
    arguments: tuple[Argument, ...] = (
        *pool_arguments(kv),
        np.int32(plan.query_heads // plan.kv_heads),
        *addresses(outs, lses, *partials, queries, walk[0], counts, segments, starts),
        *row_strides(outs, queries, walk[0], lses),
        *scoring.arguments(kv, plan.query_heads, arch),
    )
    build = decode_build(kv.dtype, kv.head_dim, kv.layout, arch)
    flags = {**options, **scoring.flags(), "WINDOW": int(plan.window is not None)}
    launch_checked(
        target,
        kernel,
        decode_constants(kv.dtype, dtype, kv.head_dim, plan.heads, build, flags),
        (plan.shares, 1, 1),
        (WARP * WARPS, 1, 1),
        arguments,
        stream=stream,
        keepalive=(arrays, walk[1], plan, *scoring.arrays()),
        shared_bytes=build.shared_bytes,
        look=look,
    )
    if plan.merges:
        decode_merge(
            target,
            plan,
            arrays.partial_out,
            arrays.partial_lse,
            arrays.out,
            lse=arrays.lse,
            sinks=scoring.sinks,
            stream=stream,
        )
