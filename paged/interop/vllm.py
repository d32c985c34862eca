"""vLLM: a pool's blocks as the KV cache of its attention backends.

Shapes are those of ``get_kv_cache_shape`` in vllm/v1/attention/backends, and of its csrc/attention for ``split_cache``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmm import TensorView

from ..layout import K, V
from ..pool import KVPool
from ..tables.block_table import Tables
from ..tables.step_tables import Attended, step_tables
from .block_tensor import block_axis, block_tensor, component_axis, token_axes

__all__ = ["BlockTable", "block_table", "cache", "split_cache"]

_MULTIPLE = 16


@dataclass(frozen=True)
class BlockTable:
    """``block_table`` int32 [B, columns], 0 where no block is, and ``seq_lens`` int32 [B], on the host."""

    block_table: Tables
    seq_lens: Tables


def cache(pool: KVPool, layer: int, *, blocks_first: bool = False) -> TensorView:
    """One layer as ``kv_cache``: [2, blocks, block_size, Hkv, D], or with ``blocks_first`` [blocks, 2, ...].

    Which of them a backend wants, its ``get_kv_cache_shape`` says: FlashInfer's the second, FlashAttention's the first
    or, since, the second. The axes stand so for both layouts: for "hnd" (VLLM_KV_CACHE_LAYOUT=HND) the strides say that
    heads come first in memory. Raises ValueError for layout "vllm" (see ``split_cache``), a pool of one latent,
    and a block size that vLLM does not take, RangeError for a layer that is not there, ClosedError after ``close``.
    """
    if pool.layout.block_size % _MULTIPLE:
        size = pool.layout.block_size
        raise ValueError(f"vLLM takes blocks of a multiple of {_MULTIPLE} tokens, and these have {size}")
    outside = [component_axis(pool), block_axis(pool)]
    if blocks_first:
        outside.reverse()
    return block_tensor(pool, layer, K, [*outside, *token_axes(pool, "vLLM")])


def split_cache(pool: KVPool, layer: int) -> tuple[TensorView, TensorView]:
    """One layer of a pool of layout "vllm", for the kernels paged_attention_v1 and v2.

    key_cache [blocks, Hkv, D / x, block_size, x], x the elements of 16 bytes, and value_cache [blocks, Hkv, D,
    block_size]. Raises ValueError for another layout.
    """
    layout, spec = pool.layout, pool.layout.spec
    if layout.layout != "vllm":
        raise ValueError(f"key and value split in pieces are layout 'vllm', and this pool is {layout.layout!r}")
    component_axis(pool)  # raises for a latent
    size, dim, x = layout.block_size, spec.head_dim, layout.vector
    outside = [block_axis(pool), (spec.kv_heads, dim * size)]
    key = block_tensor(pool, layer, K, [*outside, (dim // x, size * x), (size, x), (x, 1)])
    return key, block_tensor(pool, layer, V, [*outside, (dim, size), (size, 1)])


def block_table(pool: KVPool, sequences: Attended) -> BlockTable:
    """The blocks and the length of each sequence; slots are what ``append`` returns, vLLM's ``slot_mapping``.

    Blocks that were dropped are 0, as vLLM's null block: give its kernels the window that they were dropped for.
    ``paged.DeviceTables`` keeps the same on the device. Raises as ``attention.decode``.
    """
    step = step_tables(pool, sequences, np.empty(0))
    tables, pages = np.array(step.tables), -(-step.lengths.astype(np.int64) // pool.layout.block_size)
    columns = np.arange(tables.shape[1])
    tables[(columns < (step.dropped // pool.layout.block_size)[:, None]) | (columns >= pages[:, None])] = 0
    return BlockTable(tables.astype(np.int32), step.lengths.astype(np.int32))
