"""How vLLM and FlashInfer write the same things, turned into ours and back, one small function each.

What is the same needs no function: a block table of vLLM, its slot_mapping, its seq_lens, its copy_blocks pairs;
softmax scales, ALiBi slopes and sinks of both; k_scale and v_scale, which multiply what the cache holds.

    theirs                                     ours
    window_left of FlashInfer, FlashAttention  window = window_left + 1 tokens, the query's own among them; -1 is None
    logits_soft_cap 0                          soft_cap None
    LSE of vLLM: natural logarithm, [H, N]     base 2, [N, H] (FlashInfer's is as ours)
    kv_indptr, kv_indices, kv_last_page_len    block_tables [B, max_blocks], lengths [B]
    one cache of K and V                       two arrays
    NHD, HND, and vLLM's K in groups of x      layout "nhd", "hnd", "vllm"

Arrays are NumPy, or CuPy where a function only reshapes and scales.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .errors import LaunchError
from .paged_kv import PagedKV

Integers = NDArray[np.integer[Any]]
_LAYOUTS = {"NHD": "nhd", "HND": "hnd"}
_DTYPES = {"fp8": "e4m3", "fp8_e4m3": "e4m3", "half": "float16", "float": "float32"}


def window_of(window_left: int) -> int | None:
    """Our window for ``window_left``, the tokens that are seen before the query's own; -1 is no window."""
    return None if window_left < 0 else window_left + 1


def window_left_of(window: int | None) -> int:
    """The reverse of ``window_of``."""
    return -1 if window is None else window - 1


def soft_cap_of(logits_soft_cap: float) -> float | None:
    """Our soft cap; theirs is 0 for none."""
    return logits_soft_cap if logits_soft_cap > 0 else None


def lse_of_vllm(lse: Array) -> Array:
    """[N, H] in base 2 from vLLM's [H, N] in base e, whose plus infinity means no tokens as well."""
    return np.where(np.isposinf(lse), -np.inf, lse).T.astype(np.float32) * np.float32(math.log2(math.e))


def lse_to_vllm(lse: Array) -> Array:
    """[H, N] in base e from ours, [N, H] in base 2."""
    return np.ascontiguousarray(lse.T) * np.float32(math.log(2))


def lse_of_flashinfer_alibi(lse: Array, slopes: Array, lengths: Array) -> Array:
    """Our LSE [B, H] from FlashInfer's of a decode with ALiBi, which counts distances from token 0, not from the last.

    Its scores are larger by slope * (length - 1), and so is its LSE; the attention is the same.
    """
    return lse - slopes[None, :] * (lengths[:, None] - 1) * np.float32(math.log2(math.e))


def block_tables_of(indptr: Integers, indices: Integers, no_block: int = -1) -> NDArray[np.int32]:
    """block_tables int32 [B, max_blocks] from FlashInfer's CSR; ``no_block`` fills the end of short rows.

    The pages of sequence b are indices[indptr[b] : indptr[b + 1]].

        >>> block_tables_of(np.array([0, 3, 4]), np.array([7, 42, 9, 103]))
        array([[  7,  42,   9],
               [103,  -1,  -1]], dtype=int32)
    """
    counts = np.diff(indptr)
    tables = np.full((len(counts), int(counts.max(initial=0))), no_block, np.int32)
    tables[np.arange(tables.shape[1]) < counts[:, None]] = indices[indptr[0] : indptr[-1]]
    return tables


def lengths_of(indptr: Integers, last_page_len: Integers, block_size: int) -> NDArray[np.int32]:
    """The lengths int32 [B] in tokens from FlashInfer's CSR. No pages are no tokens, whatever their last_page_len."""
    counts = np.diff(indptr)
    return np.where(counts > 0, (counts - 1) * block_size + last_page_len, 0).astype(np.int32)


def csr_of(
    block_tables: Integers, lengths: Integers, block_size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """FlashInfer's indptr [B + 1], indices [pages] and last_page_len [B], all int32, from ours."""
    counts = -(-np.asarray(lengths) // block_size)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indices = block_tables[np.arange(block_tables.shape[1]) < counts[:, None]].astype(np.int32)
    last = np.where(counts > 0, lengths - (counts - 1) * block_size, 0).astype(np.int32)
    return indptr, indices, last


def slots_of(
    block_tables: Integers, batch_indices: Integers, positions: Integers, block_size: int
) -> NDArray[np.int64]:
    """Slot indices int64 [T], vLLM's slot_mapping, from FlashInfer's batch_indices and positions of new tokens.

    A token with a negative index or position has no slot: -1.
    """
    there = (batch_indices >= 0) & (positions >= 0)
    rows, tokens = np.where(there, batch_indices, 0), np.where(there, positions, 0)
    blocks = block_tables[rows, tokens // block_size].astype(np.int64)
    return np.where(there, blocks * block_size + tokens % block_size, -1)


def batch_positions_of(append_indptr: Integers, lengths: Integers) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """FlashInfer's batch_indices and positions [T] of tokens appended to sequences whose lengths include them."""
    counts = np.diff(append_indptr)
    batch = np.repeat(np.arange(len(counts)), counts)
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return batch.astype(np.int32), (np.asarray(lengths)[batch] - counts[batch] + inside).astype(np.int32)


def split_flashinfer(cache: Array) -> tuple[Array, Array]:
    """K and V as views of FlashInfer's one cache [pages, 2, ...]."""
    return cache[:, 0], cache[:, 1]


def split_vllm(cache: Array) -> tuple[Array, Array]:
    """K and V as views of vLLM's one cache of FlashAttention [2, blocks, ...]."""
    return cache[0], cache[1]


def layout_of(kv_layout: str) -> str:
    """Our name of FlashInfer's NHD or HND."""
    if kv_layout not in _LAYOUTS:
        raise LaunchError(f"kv_layout must be one of {', '.join(_LAYOUTS)}, not {kv_layout!r}")
    return _LAYOUTS[kv_layout]


def dtype_of_cache(kv_cache_dtype: str, model_dtype: str) -> str:
    """Our name of a cache's type: of vLLM's kv_cache_dtype, whose "auto" is the model's, or a name as NumPy has it."""
    name = model_dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    return _DTYPES.get(name, name)


def pool_of(key: Array, value: Array, layout: str, dtype: str | None = None) -> PagedKV:
    """The PagedKV of two arrays, which may be views of one cache.

    nhd [blocks, block_size, Hkv, D], hnd [blocks, Hkv, block_size, D], or vllm: key [blocks, Hkv, D / x, block_size, x]
    and value [blocks, Hkv, D, block_size]. ``dtype`` is the type of a cache whose arrays are uint8, "e4m3" mostly.
    Raises LaunchError for arrays that do not lie alike, or that no kernel can walk.
    """
    axes = {"hnd": (1, 2, 2), "nhd": (2, 1, 1), "vllm": (1, 3, 3)}
    if layout not in axes:
        raise LaunchError(f"layout must be one of {', '.join(axes)}, not {layout!r}")
    head, slot, value_slot = axes[layout]
    if key.ndim != (5 if layout == "vllm" else 4) or value.ndim != 4:
        raise LaunchError(f"key has {key.ndim} axes and value {value.ndim}, which is not how {layout} lies")
    strides = [_elements(key, axis) for axis in (0, head, slot)]
    if strides[:2] != [_elements(value, axis) for axis in (0, head)]:
        raise LaunchError(
            "key and value lie differently from block to block or from head to head; views of one cache do"
        )
    return PagedKV(
        key=_address(key),
        value=_address(value),
        dtype=dtype or key.dtype.name,
        layout=layout,
        block_size=value.shape[value_slot],
        kv_heads=value.shape[head],
        head_dim=value.shape[2] if layout == "vllm" else value.shape[3],
        block_stride=strides[0],
        head_stride=strides[1],
        slot_stride=strides[2],
    )


def _elements(array: Array, axis: int) -> int:
    return int(array.strides[axis] // array.itemsize)


def _address(array: Array) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
