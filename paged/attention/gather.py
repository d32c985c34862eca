"""Copies of a sequence's K and V, token after token, whatever the layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_cu import launch
from kernels_cu.paged_kv import NARROW

from ..layout import K, V
from ..pool import KVPool
from ..sequence import Sequence
from ..tables.block_table import slots_of

Array = Any


def gather(
    pool: KVPool, layer: int, sequence: Sequence, *, key_scale: Array | None = None, value_scale: Array | None = None
) -> tuple[Array, Array]:
    """Copies of a sequence's K and V of one layer, [L, Hkv, D] each, when the device's work is done.

    Tokens that the sequence has dropped are left out.
    Those of a pool of e4m3 or int8 are float32, multiplied by ``key_scale`` and ``value_scale``, float32 [Hkv] or [1].
    Raises RangeError for a layer that the pool does not have, ClosedError for a freed sequence, ValueError for one of
    another pool, kernels_cu.LaunchError for scales that do not fit.
    """
    sequence.check_in(pool)
    pool.layout.plane(layer)
    pool.device.synchronize()
    if pool.layout.spec.dtype in NARROW or key_scale is not None or value_scale is not None:
        return _widened(pool, layer, sequence, key_scale, value_scale)
    return _gather(pool, layer, sequence, K), _gather(pool, layer, sequence, V)


def _widened(
    pool: KVPool, layer: int, sequence: Sequence, key_scale: Array | None, value_scale: Array | None
) -> tuple[Array, Array]:
    """The kernel's way, where the values must be multiplied."""
    spec, side = pool.layout.spec, pool.range.array("float32", 0)
    slots = np.asarray(slots_of(sequence.table, sequence.dropped, sequence.length, pool.layout.block_size), like=side)
    shape = (len(slots), spec.kv_heads, spec.head_dim)
    key, value = (np.empty_like(side, np.float32, shape=shape) for _ in (K, V))
    kv = pool.kv(layer)
    launch.gather_kv(pool.device, kv, slots, key, value, key_scale=key_scale, value_scale=value_scale)
    pool.device.synchronize()
    return key, value


def _gather(pool: KVPool, layer: int, sequence: Sequence, component: int) -> Array:
    spec = pool.layout.spec
    blocks = [_by_token(pool.view(block, layer, component), pool, component) for block in sequence.held]
    if not blocks:
        return pool.range.array(spec.dtype, (0, spec.kv_heads, spec.head_dim)).copy()
    return np.concatenate(blocks)[: sequence.length - sequence.dropped]


def _by_token(block: Array, pool: KVPool, component: int) -> Array:
    """One block's K or V as [block_size, Hkv, D], whatever the layout."""
    spec = pool.layout.spec
    if pool.layout.layout == "nhd":
        return block
    if pool.layout.layout == "hnd":
        return block.transpose(1, 0, 2)
    if component == K:
        return block.transpose(2, 0, 1, 3).reshape(pool.layout.block_size, spec.kv_heads, spec.head_dim)
    return block.transpose(2, 0, 1)
