"""One function a kernel: check what the caller passes, choose the grid, launch."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Array, ArrayView, view
from .checked_launch import launch_checked
from .constants import constants_of
from .errors import LaunchError
from .paged_kv import PagedKV
from .parameters import Argument
from .target import Target

WARP = 32
MOST_APPEND_THREADS = 256
MOST_SEQUENCES = 65535
"""The y extent of a grid ends here."""


def append_kv(target: Target, kv: PagedKV, key: Array, value: Array, slots: Array, *, stream: int = 0) -> None:
    """Write the K and V of T new tokens to their slots of one layer.

    ``key`` and ``value`` [T, Hkv, D] of kv.dtype, whose tokens may lie apart; ``slots`` int64 [T] is
    block * block_size + slot for each token, and a negative one skips its token. T = 0 launches nothing. Of two tokens
    with one slot, either's values stay. Raises LaunchError for arguments that do not fit, target.fault(...) for memory
    that is not there.
    """
    places = view("slots", slots, target.arch, "int64", (None,))
    (tokens,) = places.shape
    shape = (tokens, kv.kv_heads, kv.head_dim)
    keys = view("key", key, target.arch, kv.dtype, shape)
    values = view("value", value, target.arch, kv.dtype, shape)
    arguments = (
        *_pool_arguments(kv),
        np.int32(kv.kv_heads),
        *_addresses(keys, values),
        *_row_strides(keys, values),
        *_addresses(places),
    )
    threads = min(MOST_APPEND_THREADS, -(-kv.kv_heads * kv.head_dim // WARP) * WARP)
    grid, block, keepalive = (tokens, 1, 1), (threads, 1, 1), (key, value, slots)
    launch_checked(target, "append_kv", constants_of(kv), grid, block, arguments, stream=stream, keepalive=keepalive)


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
    queries = view("query", query, target.arch, kv.dtype, (None, None, kv.head_dim))
    sequences, query_heads, _ = queries.shape
    outs = view("out", out, target.arch, kv.dtype, queries.shape, writable=True)
    tables = view("block_tables", block_tables, target.arch, "int32", (sequences, None))
    counts = view("lengths", lengths, target.arch, "int32", (sequences,))
    arguments = (
        *_pool_arguments(kv),
        np.int32(_group(query_heads, kv.kv_heads)),
        *_addresses(outs, queries, tables, counts),
        *_row_strides(outs, queries, tables),
        np.int32(tables.shape[1]),
        np.float32(_scale_log2(scale, kv.head_dim)),
    )
    if sequences > MOST_SEQUENCES:
        raise LaunchError(f"query has {sequences} sequences, a launch takes at most {MOST_SEQUENCES}; split the batch")
    grid, block, keepalive = (query_heads, sequences, 1), (WARP, 1, 1), (query, block_tables, lengths, out)
    name = "paged_attention_simple"
    launch_checked(target, name, constants_of(kv), grid, block, arguments, stream=stream, keepalive=keepalive)


def _pool_arguments(kv: PagedKV) -> tuple[Argument, ...]:
    """The parameters with which every kernel that walks a pool begins."""
    strides = (np.int64(kv.block_stride), np.int64(kv.head_stride), np.int64(kv.slot_stride))
    return (np.uint64(kv.key), np.uint64(kv.value), *strides, np.int32(kv.block_size))


def _addresses(*views: ArrayView) -> tuple[Argument, ...]:
    return tuple(np.uint64(seen.address) for seen in views)


def _row_strides(*views: ArrayView) -> tuple[Argument, ...]:
    return tuple(np.int64(seen.row_stride) for seen in views)


def _group(query_heads: int, kv_heads: int) -> int:
    """Query heads that share a KV head."""
    if query_heads == 0 or query_heads % kv_heads:
        raise LaunchError(f"query has {query_heads} heads, which is not a multiple of the {kv_heads} KV heads")
    return query_heads // kv_heads


def _scale_log2(scale: float | None, head_dim: int) -> float:
    """The factor of a score in base 2: exp(x) = exp2(x * log2 e)."""
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    if not math.isfinite(factor):
        raise LaunchError(f"scale must be a finite number, not {scale!r}")
    return factor * math.log2(math.e)
