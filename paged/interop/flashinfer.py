"""FlashInfer: a pool's blocks as its pages (https://docs.flashinfer.ai/tutorials/kv_layout.html)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmm import TensorView

from ..layout import K, V
from ..pool import KVPool
from ..tables.block_table import Tables
from ..tables.step_tables import Attended, step_tables
from .block_tensor import Axis, block_axis, block_tensor, component_axis, token_axes

__all__ = ["PageTable", "cache", "kv_layout", "mla_cache", "page_table", "separate_caches"]


@dataclass(frozen=True)
class PageTable:
    """Which pages the sequences have, as FlashInfer's wrappers take it; int32 on the host.

    ``indptr`` [B + 1]: the pages of sequence b are ``indices[indptr[b] : indptr[b + 1]]``; ``indices`` [indptr[B]];
    ``last_page_len`` [B]: tokens in the last page, 1 to the page size.
    """

    indptr: Tables
    indices: Tables
    last_page_len: Tables


def kv_layout(pool: KVPool) -> str:
    """What FlashInfer's ``kv_layout`` is to be for this pool: "NHD" or "HND". Raises ValueError for layout "vllm"."""
    token_axes(pool, "FlashInfer")
    return pool.layout.layout.upper()


def cache(pool: KVPool, layer: int) -> TensorView:
    """One layer as ``paged_kv_cache``: [pages, 2, page_size, Hkv, D] for NHD, [pages, 2, Hkv, page_size, D] for HND.

    With order="layer" the pages of a layer lie side by side, with order="block" a page's neighbours are its other
    layers: the same tensor with larger strides. Raises ValueError for layout "vllm" and for a pool of one latent,
    RangeError for a layer that is not there, ClosedError after ``close``.
    """
    inside = _page_axes(pool)
    return block_tensor(pool, layer, K, [block_axis(pool), component_axis(pool), *inside])


def separate_caches(pool: KVPool, layer: int) -> tuple[TensorView, TensorView]:
    """The same as the tuple (k_cache, v_cache): [pages, page_size, Hkv, D] or [pages, Hkv, page_size, D] each."""
    axes = [block_axis(pool), *_page_axes(pool)]
    component_axis(pool)  # raises for a latent
    return block_tensor(pool, layer, K, axes), block_tensor(pool, layer, V, axes)


def mla_cache(pool: KVPool, layer: int) -> TensorView:
    """One layer of a pool of one latent: [pages, page_size, D], D the latent and its rotary part together.

    Raises ValueError for a pool of K and V, or of several heads.
    """
    spec = pool.layout.spec
    if spec.components != 1 or spec.kv_heads != 1:
        raise ValueError("MLA takes pools of one latent and one head, and this one has K and V; take flashinfer.cache")
    slots, _heads, numbers = token_axes(pool, "FlashInfer")
    return block_tensor(pool, layer, K, [block_axis(pool), slots, numbers])


def page_table(pool: KVPool, sequences: Attended) -> PageTable:
    """The pages of each sequence. One that has dropped its first blocks begins behind them, and is that much shorter.

    Raises ValueError for a sequence without a token, which FlashInfer does not take, and as ``attention.decode``.
    """
    step, size = step_tables(pool, sequences, np.empty(0)), pool.layout.block_size
    tables, lengths, first = np.asarray(step.tables), step.lengths.astype(np.int64), step.dropped // size
    if not lengths.all():
        raise ValueError(f"sequence {int(np.argmin(lengths))} has no token; FlashInfer takes sequences of 1 or more")
    pages = -(-lengths // size)
    columns = np.arange(tables.shape[1])
    held = (columns >= first[:, None]) & (columns < pages[:, None])
    indptr = np.concatenate(([0], np.cumsum(pages - first))).astype(np.int32)
    return PageTable(indptr, tables[held].astype(np.int32), ((lengths - 1) % size + 1).astype(np.int32))


def _page_axes(pool: KVPool) -> list[Axis]:
    """The axes of a page, in the order in which they lie in memory. Raises ValueError for layout "vllm"."""
    slots, heads, numbers = token_axes(pool, "FlashInfer")
    return [slots, heads, numbers] if pool.layout.layout == "nhd" else [heads, slots, numbers]
