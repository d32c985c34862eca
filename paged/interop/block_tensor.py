"""A strided view over the same place in every block of a pool: what the caches of all libraries are made of."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from vmm import TensorView

from ..layout import K
from ..pool import KVPool

Axis = tuple[int, int]
"""Extent, and elements from one to the next."""


def block_tensor(pool: KVPool, layer: int, component: int, axes: list[Axis]) -> TensorView:
    """``axes`` over one layer's memory, from the first number of K or V of block 0.

    Raises RangeError for a layer or component that is not there, ClosedError after ``close``.
    """
    spec = pool.layout.spec
    start = pool.address(block=0, layer=layer, component=component) - pool.range.base
    dtype = np.dtype(ml_dtypes.float8_e4m3fn if spec.dtype == "e4m3" else spec.dtype)
    shape = [extent for extent, _step in axes]
    strides = [step * spec.element_bytes for _extent, step in axes]
    return pool.range.address_tensor(dtype, shape, start, strides=strides)


def block_axis(pool: KVPool) -> Axis:
    """All blocks that have addresses."""
    return pool.block_pool.rows.blocks, pool.layout.block_stride // pool.layout.spec.element_bytes


def component_axis(pool: KVPool) -> Axis:
    """K, then V of one layer. Raises ValueError for a pool of one latent, which has no V."""
    spec = pool.layout.spec
    if spec.components != 2:
        raise ValueError("this pool holds one latent and no V; FlashInfer's MLA takes it: flashinfer.mla_cache")
    return 2, pool.layout.block_size * spec.kv_heads * spec.head_dim


def token_axes(pool: KVPool, library: str) -> tuple[Axis, Axis, Axis]:
    """(slots, heads, numbers) in a block of layout "nhd" or "hnd".

    Raises ValueError for "vllm", whose K lies in pieces of 16 bytes: no strides of these axes say that.
    """
    layout = pool.layout
    if layout.layout == "vllm":
        what = f"{library} takes pools of layout 'nhd' or 'hnd', and this one is 'vllm', with K in pieces of 16 bytes"
        raise ValueError(f"{what}; make the pool with layout='nhd', or take vllm.split_cache")
    slot = layout.inner(K, 0, 1) if layout.block_size > 1 else layout.spec.head_dim
    head = layout.inner(K, 1, 0) if layout.spec.kv_heads > 1 else layout.spec.head_dim
    return (layout.block_size, slot), (layout.spec.kv_heads, head), (layout.spec.head_dim, 1)
