"""Launch of append_kv: new tokens into their slots."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, view
from ..checked_launch import launch_checked
from ..constants import constants_of
from ..paged_kv import PagedKV
from ..target import Target
from .arguments import WARP, addresses, pool_arguments, row_strides

MOST_THREADS = 256


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
        *pool_arguments(kv),
        np.int32(kv.kv_heads),
        *addresses(keys, values),
        *row_strides(keys, values),
        *addresses(places),
    )
    threads = min(MOST_THREADS, -(-kv.kv_heads * kv.head_dim // WARP) * WARP)
    grid, block, keepalive = (tokens, 1, 1), (threads, 1, 1), (key, value, slots)
    launch_checked(target, "append_kv", constants_of(kv), grid, block, arguments, stream=stream, keepalive=keepalive)
