"""Launch of paged_decode and contiguous_decode: attention of one query token a sequence, at the speed of the memory."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, ArrayView, dtype_of, optional_view, view
from ..checked_launch import launch_checked
from ..errors import LaunchError
from ..paged_kv import NARROW, PagedKV
from ..parameters import Argument
from ..plan import DecodePlan
from ..scoring import Scoring
from ..target import Target
from .arguments import HALVES, WARP, addresses, check_partials, pool_arguments, row_strides
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
    if plan.longest > tables.shape[1] * kv.block_size:
        raise LaunchError(
            f"the longest sequence has {plan.longest} tokens, but block_tables has room for "
            f"{tables.shape[1]} blocks of {kv.block_size}"
        )
    arrays = DecodeArrays(target, kv, plan, query, lengths, out, lse, partial_out, partial_lse, scoring or Scoring())
    arrays.launch("paged_decode", tables, block_tables, {"BLOCK_SIZE": kv.block_size}, stream)


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
    arrays = DecodeArrays(target, kv, plan, query, lengths, out, lse, partial_out, partial_lse, scoring or Scoring())
    arrays.launch("contiguous_decode", places, starts, {}, stream)


class DecodeArrays:
    """The arguments that decode kernels share, checked, and their launch together with the merge."""

    def __init__(
        self,
        target: Target,
        kv: PagedKV,
        plan: DecodePlan,
        query: Array,
        lengths: Array,
        out: Array,
        lse: Array | None,
        partial_out: Array | None,
        partial_lse: Array | None,
        scoring: Scoring,
    ) -> None:
        self._target, self._kv, self._plan, self._scoring = target, kv, plan, scoring
        self._out, self._lse, self._partials = out, lse, (partial_out, partial_lse)
        arch, rows, heads = target.arch, plan.sequences, plan.query_heads
        self._dtype = dtype_of("query", query, HALVES if kv.dtype in NARROW else (kv.dtype,))
        if plan.kv_heads != kv.kv_heads:
            raise LaunchError(f"the plan is made for {plan.kv_heads} KV heads, the pool has {kv.kv_heads}")
        queries = view("query", query, arch, self._dtype, (rows, heads, kv.head_dim))
        outs = view("out", out, arch, self._dtype, (rows, heads, kv.head_dim), writable=True)
        lses = optional_view("lse", lse, arch, "float32", (rows, heads), writable=True)
        counts = view("lengths", lengths, arch, "int32", (rows,))
        segments = view("segments", plan.segments, arch, "int32", (None, 6))
        starts = view("share_starts", plan.share_starts, arch, "int32", (plan.shares + 1,))
        partials = self._partial_views(partial_out, partial_lse)
        self._first = (np.int32(heads // kv.kv_heads), *addresses(outs, lses, *partials, queries))
        self._lists = addresses(counts, segments, starts)
        self._strides = (outs, queries, lses)
        self._keepalive = (query, lengths, out, lse, partial_out, partial_lse, plan, *scoring.arrays())

    def launch(self, kernel: str, walk: ArrayView, walked: Array, options: dict[str, int], stream: int) -> None:
        """Launch ``kernel``, which finds a sequence's tokens by a row of ``walk``, and the merge if there is one."""
        kv, plan, target = self._kv, self._plan, self._target
        build = decode_build(kv.dtype, kv.head_dim, kv.layout, target.arch)
        flags = {**options, **self._scoring.flags(), "WINDOW": int(plan.window is not None)}
        outs, queries, lses = self._strides
        arguments: tuple[Argument, ...] = (
            *pool_arguments(kv),
            *self._first,
            *addresses(walk),
            *self._lists,
            *row_strides(outs, queries, walk, lses),
            *self._scoring.arguments(kv, plan.query_heads, target.arch),
        )
        launch_checked(
            target,
            kernel,
            decode_constants(kv.dtype, self._dtype, kv.head_dim, plan.heads, build, flags),
            (plan.shares, 1, 1),
            (WARP * WARPS, 1, 1),
            arguments,
            stream=stream,
            keepalive=(*self._keepalive, walked),
            shared_bytes=build.shared_bytes,
        )
        if plan.merges:
            sinks = self._scoring.sinks
            decode_merge(target, plan, *self._partials, self._out, lse=self._lse, sinks=sinks, stream=stream)

    def _partial_views(self, out: Array | None, lse: Array | None) -> tuple[ArrayView, ArrayView]:
        plan, arch = self._plan, self._target.arch
        if plan.partials and (out is None or lse is None):
            raise LaunchError(
                f"the plan has {plan.partials} partial results; pass partial_out float32 "
                f"[{plan.partials}, {plan.heads}, {self._kv.head_dim}] and partial_lse [{plan.partials}, {plan.heads}]"
            )
        outs = optional_view(
            "partial_out", out, arch, "float32", (None, plan.heads, self._kv.head_dim), writable=True, packed=True
        )
        lses = optional_view("partial_lse", lse, arch, "float32", (None, plan.heads), writable=True, packed=True)
        check_partials(plan, min(outs.shape[0], lses.shape[0]))
        return outs, lses
