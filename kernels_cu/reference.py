"""What append, gather and attention mean, in NumPy, with float64 inside. Clear before fast: tests compare with it.

The modules reference_* have the rest: attention with all its options, what append does to values, merging, and blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def paged_attention(
    query: Values, keys: Sequence[Values], values: Sequence[Values], scale: float | None = None
) -> NDArray[np.float64]:
    """softmax(scale * q . K) V for one query token of each sequence: float64 [B, Hq, D].

    ``query`` [B, Hq, D]; ``keys`` and ``values`` hold one [L, Hkv, D] a sequence; query heads h and h + 1 share a KV
    head if they fall into the same group of Hq / Hkv. ``scale`` is 1 / sqrt(D) if None. L = 0 gives zeros.
    """
    out = np.zeros(query.shape, np.float64)
    factor = 1 / math.sqrt(query.shape[2]) if scale is None else scale
    for b, (key, value) in enumerate(zip(keys, values, strict=True)):
        if len(key) == 0:
            continue
        group = query.shape[1] // key.shape[1]
        for h in range(query.shape[1]):
            k = key[:, h // group].astype(np.float64)
            v = value[:, h // group].astype(np.float64)
            scores = factor * (k @ query[b, h].astype(np.float64))
            weights = np.exp(scores - scores.max())
            out[b, h] = weights @ v / weights.sum()
    return out


def append(layout: str, key_pool: Values, value_pool: Values, key: Values, value: Values, slots: Values) -> None:
    """Write key and value [T, Hkv, D] to their slots (block * block_size + slot, negative: skip), in place.

    The pools of N blocks: hnd [N, Hkv, block_size, D], nhd [N, block_size, Hkv, D], and vllm
    K [N, Hkv, D/x, block_size, x] with V [N, Hkv, D, block_size].
    """
    for t, slot_index in enumerate(slots):
        if slot_index < 0:
            continue
        block, slot = divmod(int(slot_index), block_size(layout, value_pool))
        _key_at(layout, key_pool, block, slot)[...] = _as_stored(layout, key_pool, key[t])
        _value_at(layout, value_pool, block, slot)[...] = value[t]


def gather(
    layout: str, key_pool: Values, value_pool: Values, table: Sequence[int], length: int
) -> tuple[Values, Values]:
    """K and V, each [length, Hkv, D], of the first ``length`` tokens of the sequence with this block table."""
    size = block_size(layout, value_pool)
    places = [(table[t // size], t % size) for t in range(length)]
    rows = [_key_at(layout, key_pool, block, slot) for block, slot in places]
    value = [_value_at(layout, value_pool, block, slot) for block, slot in places]
    heads, head_dim = _value_at(layout, value_pool, 0, 0).shape
    key = [row.reshape(heads, head_dim) for row in rows]
    empty = np.empty((0, heads, head_dim), value_pool.dtype)
    return (np.stack(key), np.stack(value)) if places else (empty, empty)


def block_size(layout: str, value_pool: Values) -> int:
    """Tokens in a block of a pool, from the shape of V."""
    return int(value_pool.shape[{"hnd": 2, "nhd": 1, "vllm": 3}[layout]])


def _key_at(layout: str, pool: Values, block: int, slot: int) -> Values:
    """K of one token: [Hkv, D], or [Hkv, D/x, x] in vllm."""
    if layout == "vllm":
        return pool[block, :, :, slot, :]
    return pool[block, slot] if layout == "nhd" else pool[block, :, slot]


def _value_at(layout: str, pool: Values, block: int, slot: int) -> Values:
    """V of one token: [Hkv, D]."""
    if layout == "vllm":
        return pool[block, :, :, slot]
    return pool[block, slot] if layout == "nhd" else pool[block, :, slot]


def _as_stored(layout: str, pool: Values, row: Values) -> Values:
    """One token's K [Hkv, D] in the shape in which the pool keeps it."""
    return row.reshape(row.shape[0], -1, pool.shape[-1]) if layout == "vllm" else row
