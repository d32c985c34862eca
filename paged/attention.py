"""Append, decode and gather on a pool: the kernels, with the strides and tables that belong to it.

Arrays are NumPy where kernels run on the CPU and CuPy on a GPU; slots, tables and lengths are made on the host and
follow the caller's arrays to their side.
"""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np

from kernels_cu import launch
from vmm import RangeError

from .block_table import Slots, batch_lengths, batch_tables
from .decode_kernel import choose_kernel, decode_fast
from .layout import K, V
from .pool import KVPool
from .sequence import Sequence

Array = Any
"""A numpy.ndarray on the host driver, a cupy.ndarray on a GPU."""


def append(pool: KVPool, layer: int, key: Array, value: Array, slots: Slots, *, stream: int = 0) -> None:
    """Write K and V of T new tokens of one layer to the slots that ``Sequence.append`` returned.

    ``key`` and ``value`` [T, Hkv, D] of the pool's dtype; ``slots`` int64 [T], those of several sequences one after the
    other; a token whose slot is negative is skipped. Raises RangeError for a layer or a slot that the pool does not
    have, kernels_cu.LaunchError for arrays that do not fit.
    """
    pool.check_usable()
    end = pool.block_pool.rows.blocks * pool.layout.block_size
    if isinstance(slots, list | tuple):
        slots = np.asarray(slots, np.int64)
    if slots.size and int(slots.max()) >= end:
        raise RangeError(f"slot {slots.max()} is not there; the pool has slots 0 to {end - 1}")
    launch.append_kv(pool.device, pool.kv(layer), key, value, np.asarray(slots, like=key), stream=stream)


def decode(
    pool: KVPool,
    layer: int,
    query: Array,
    sequences: Sequences[Sequence],
    *,
    scale: float | None = None,
    kernel: str | None = None,
    stream: int = 0,
) -> Array:
    """Attention of one query token of each sequence over all its tokens: ``query`` and the result [B, Hq, D].

    Hq is a multiple of Hkv; ``scale`` is 1 / sqrt(D) if None. A sequence without tokens gives zeros. ``kernel`` is
    "simple", "fast" (float16 or bfloat16, D 64, 128 or 256, layout hnd or nhd) or None: the fast one where there is one
    on a GPU. On one where it was never proven its first use compares it with the simple one, and waits for the device;
    a difference is a RuntimeWarning, and the simple one is used.

    Raises RangeError for a layer that the pool does not have, ClosedError for a freed sequence, ValueError for one of
    another pool, a ``query`` with other rows than sequences or an unknown kernel, kernels_cu.LaunchError for arrays
    that do not fit or a cache that the kernel does not walk.
    """
    for sequence in sequences:
        sequence.check_in(pool)
    if len(query) != len(sequences):
        raise ValueError(f"query has {len(query)} rows for {len(sequences)} sequences; give one row a sequence")
    tables = np.asarray(batch_tables([sequence.table for sequence in sequences]), like=query)
    lengths, kv, out = batch_lengths([sequence.length for sequence in sequences]), pool.kv(layer), np.empty_like(query)
    if choose_kernel(pool, kv, query, kernel) == "fast":
        decode_fast(pool, kv, query, tables, lengths, out, scale, stream)
        return out
    counts = np.asarray(lengths, like=query)
    launch.paged_attention_simple(pool.device, kv, query, tables, counts, out, scale=scale, stream=stream)
    return out


def gather(pool: KVPool, layer: int, sequence: Sequence) -> tuple[Array, Array]:
    """Copies of a sequence's K and V of one layer, [L, Hkv, D] each, when the device's work is done.

    Raises RangeError for a layer that the pool does not have, ClosedError for a freed sequence, ValueError for one of
    another pool.
    """
    sequence.check_in(pool)
    pool.layout.plane(layer)
    pool.device.synchronize()
    return _gather(pool, layer, sequence, K), _gather(pool, layer, sequence, V)


def _gather(pool: KVPool, layer: int, sequence: Sequence, component: int) -> Array:
    spec = pool.layout.spec
    blocks = [_by_token(pool.view(block, layer, component), pool, component) for block in sequence.table]
    if not blocks:
        return pool.range.array(spec.dtype, (0, spec.kv_heads, spec.head_dim)).copy()
    return np.concatenate(blocks)[: sequence.length]


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
