"""Launches that write new tokens into their slots, read them back, and turn queries as keys are turned."""

from __future__ import annotations

import numpy as np

from ..arrays import NULL, Array, ArrayView, dtype_of, view
from ..checked_launch import launch_checked
from ..constants import Constants, constants_of
from ..errors import LaunchError
from ..ids import check_slots
from ..paged_kv import NARROW, VECTOR_BYTES, PagedKV
from ..rotary import Rotary
from ..scoring import scale_views
from ..target import Target
from .arguments import FLOATS, WARP, addresses, pool_arguments, row_strides

MOST_THREADS = 256
CHUNK = 8
"""Elements that a thread moves at once."""


def append_kv(
    target: Target,
    kv: PagedKV,
    key: Array,
    value: Array,
    slots: Array,
    *,
    key_scale: Array | None = None,
    value_scale: Array | None = None,
    rotary: Rotary | None = None,
    stream: int = 0,
) -> None:
    """Write the K and V of T new tokens to their slots of one layer.

    ``key`` and ``value`` [T, Hkv, D] of kv.dtype, or of float32, float16 or bfloat16 for a cache of e4m3 or int8, whose
    tokens may lie apart; ``slots`` int64 [T] is block * block_size + slot for each token, and a negative one skips its
    token. ``key_scale`` and ``value_scale`` float32 [Hkv] or [1] belong to a cache of e4m3 or int8: it holds values
    divided by them, rounded, and no further than its type reaches. With ``rotary`` keys are turned first. T = 0
    launches nothing. Of two tokens with one slot, either's values stay. Raises LaunchError for arguments that do not
    fit, target.fault(...) for memory that is not there.
    """
    places = view("slots", slots, target.arch, "int64", (None,))
    (tokens,) = places.shape
    source = dtype_of("key", key, FLOATS) if kv.dtype in NARROW else kv.dtype
    shape = (tokens, kv.kv_heads, kv.head_dim)
    keys = view("key", key, target.arch, source, shape)
    values = view("value", value, target.arch, source, shape)
    key_by, value_by, stride = scale_views(kv, key_scale, value_scale, target.arch)
    turns, positions = rotary.views(tokens, kv.head_dim, target.arch) if rotary else (NULL, NULL)
    arguments = (
        *pool_arguments(kv),
        np.int32(kv.kv_heads),
        *addresses(keys, values),
        *row_strides(keys, values),
        *addresses(places, key_by, value_by, turns, positions),
        np.int32(stride),
        np.int32(turns.shape[-1]),
    )
    constants = {
        **constants_of(kv),
        "SOURCE": source,
        "ROTARY": rotary.constant if rotary else 0,
        "WIDE": int(all(_wide(rows, key.itemsize) for rows in (keys, values))),
    }
    keepalive = (key, value, slots, key_scale, value_scale, rotary)
    grid, block = (tokens, 1, 1), _threads(kv.kv_heads * kv.head_dim)

    def look() -> None:
        check_slots(kv, slots)
        if rotary:
            rotary.check_positions()

    launch_checked(
        target, "append_kv", constants, grid, block, arguments, stream=stream, keepalive=keepalive, look=look
    )


def gather_kv(
    target: Target,
    kv: PagedKV,
    slots: Array,
    key: Array,
    value: Array,
    *,
    key_scale: Array | None = None,
    value_scale: Array | None = None,
    stream: int = 0,
) -> None:
    """Read K and V of T tokens from their slots: the reverse of append_kv, without rotary.

    ``slots`` int64 [T]; ``key`` and ``value`` [T, Hkv, D], packed, of kv.dtype, or of float32, float16 or bfloat16 for
    a cache of e4m3 or int8, whose values are multiplied by ``key_scale`` and ``value_scale`` float32 [Hkv] or [1]. A
    negative slot gives zeros. T = 0 launches nothing. Raises LaunchError for arguments that do not fit,
    target.fault(...) for memory that is not there.
    """
    places = view("slots", slots, target.arch, "int64", (None,))
    (tokens,) = places.shape
    output = dtype_of("key", key, FLOATS) if kv.dtype in NARROW else kv.dtype
    shape = (tokens, kv.kv_heads, kv.head_dim)
    keys = view("key", key, target.arch, output, shape, writable=True, packed=True)
    values = view("value", value, target.arch, output, shape, writable=True, packed=True)
    for name, rows in (("key", keys), ("value", values)):
        if not _wide(rows, key.itemsize):
            raise LaunchError(f"{name} begins at {rows.address:#x}, not at a multiple of {VECTOR_BYTES}; copy it")
    key_by, value_by, stride = scale_views(kv, key_scale, value_scale, target.arch)
    arguments = (
        *pool_arguments(kv),
        np.int32(kv.kv_heads),
        *addresses(keys, values, places, key_by, value_by),
        np.int32(stride),
    )
    grid, block = (tokens, 1, 1), _threads(kv.kv_heads * kv.head_dim)
    keepalive = (slots, key, value, key_scale, value_scale)
    constants = {**constants_of(kv), "OUTPUT": output}
    launch_checked(
        target,
        "gather_kv",
        constants,
        grid,
        block,
        arguments,
        stream=stream,
        keepalive=keepalive,
        look=lambda: check_slots(kv, slots),
    )


def rotate_query(target: Target, query: Array, rotary: Rotary, out: Array, *, stream: int = 0) -> None:
    """Turn the queries of T tokens by their positions, as append_kv turns their keys.

    ``query`` and ``out`` [T, Hq, D] of float32, float16 or bfloat16, whose tokens may lie apart; ``out`` is other
    memory than ``query``. D is a multiple of 8. T = 0 launches nothing. Raises LaunchError for arguments that do not
    fit, target.fault(...) for memory that is not there.
    """
    dtype = dtype_of("query", query, FLOATS)
    rows = view("query", query, target.arch, dtype, (None, None, None))
    outs = view("out", out, target.arch, dtype, rows.shape, writable=True)
    tokens, heads, head_dim = rows.shape
    if head_dim % CHUNK:
        raise LaunchError(f"query has head_dim {head_dim}, which is not a multiple of {CHUNK}")
    if tokens and rows.address == outs.address:
        raise LaunchError("out must not be query: a pair's elements are read and written by different threads")
    turns, positions = rotary.views(tokens, head_dim, target.arch)
    arguments = (
        *addresses(outs, rows),
        *row_strides(outs, rows),
        *addresses(turns, positions),
        np.int32(turns.shape[1]),
        np.int32(heads),
    )
    wide = int(all(_wide(seen, query.itemsize) for seen in (rows, outs)))
    constants: Constants = {"SOURCE": dtype, "HEAD_DIM": head_dim, "ROTARY": rotary.constant, "WIDE": wide}
    grid, block, keepalive = (tokens, 1, 1), _threads(heads * head_dim), (query, rotary, out)
    launch_checked(
        target,
        "rotate_query",
        constants,
        grid,
        block,
        arguments,
        stream=stream,
        keepalive=keepalive,
        look=rotary.check_positions,
    )


def _threads(elements: int) -> tuple[int, int, int]:
    """Whole warps with a thread for each chunk of a token, up to 256."""
    return (min(MOST_THREADS, -(-elements // (CHUNK * WARP)) * WARP), 1, 1)


def _wide(rows: ArrayView, itemsize: int) -> bool:
    """Whether every row begins at a multiple of 16 bytes."""
    return rows.address % VECTOR_BYTES == 0 and rows.row_stride * itemsize % VECTOR_BYTES == 0
