"""Conventions of vLLM and FlashInfer, each against its own definition written out here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels_cu import LaunchError, conventions, launch, reference_attention

ROWS = [(3, [7, 2, 9]), (16, [5, 1]), (1, []), (2, [4])]
"""Of each sequence: last_page_len and pages, as FlashInfer has them, with pages of 16 tokens."""


@pytest.fixture
def csr():
    pages = [page for _, page in ROWS]
    indptr = np.cumsum([0, *map(len, pages)]).astype(np.int32)
    return indptr, np.array(sum(pages, []), np.int32), np.array([last for last, _ in ROWS], np.int32)  # noqa: RUF017


@pytest.mark.parametrize("window_left", [-1, 0, 3, 128])
def test_a_window_counts_the_querys_own_token(window_left):
    """FlashInfer keeps a token t of L if t + 1 + window_left >= L, for the one query at the end."""
    length = 50
    kept = [t for t in range(length) if window_left < 0 or t + 1 + window_left >= length]
    window = conventions.window_of(window_left)
    assert len(kept) == (length if window is None else min(window, length))
    assert conventions.window_left_of(window) == window_left


def test_no_soft_cap_is_none():
    assert conventions.soft_cap_of(0.0) is None
    assert conventions.soft_cap_of(30.0) == 30.0


def test_lse_of_vllm_is_natural_and_by_head():
    scores = np.random.default_rng(1).normal(0, 3, (4, 3, 20))  # [N, H, L]
    theirs = np.log(np.exp(scores).sum(axis=2)).T.astype(np.float32)
    theirs[1, 2], theirs[0, 3] = -np.inf, np.inf
    ours = conventions.lse_of_vllm(theirs)
    wanted = np.log2(np.exp(scores).sum(axis=2))
    wanted[2, 1] = wanted[3, 0] = -np.inf
    assert ours.shape == (4, 3)
    assert ours.dtype == np.float32
    assert np.allclose(ours, wanted, rtol=1e-6)
    theirs[0, 3] = -np.inf
    assert np.allclose(conventions.lse_to_vllm(ours), theirs, rtol=1e-6)


def test_lse_of_flashinfers_alibi_is_shifted():
    rng = np.random.default_rng(2)
    query, key = rng.standard_normal((1, 2, 8)), rng.standard_normal((30, 2, 8))
    slopes = np.array([0.5, 0.1], np.float32)
    scores = np.einsum("hd,lhd->hl", query[0], key) / math.sqrt(8) + slopes[:, None] * np.arange(30)
    theirs = np.log2(np.exp(scores).sum(axis=1))[None].astype(np.float32)
    _, ours = reference_attention.attention(query, key, key, alibi=slopes)
    found = conventions.lse_of_flashinfer_alibi(theirs, slopes, np.array([30]))
    assert np.allclose(found, ours, rtol=1e-5, atol=1e-5)


def test_csr_becomes_a_padded_table_and_back(csr):
    indptr, indices, last = csr
    tables = conventions.block_tables_of(indptr, indices, no_block=-7)
    lengths = conventions.lengths_of(indptr, last, 16)
    assert tables.tolist() == [[7, 2, 9], [5, 1, -7], [-7, -7, -7], [4, -7, -7]]
    assert lengths.tolist() == [35, 32, 0, 2]
    assert (tables.dtype, lengths.dtype) == (np.int32, np.int32)
    back = conventions.csr_of(tables, lengths, 16)
    assert back[0].tolist() == indptr.tolist()
    assert back[1].tolist() == indices.tolist()
    assert back[2].tolist() == [3, 16, 0, 2]
    assert conventions.block_tables_of(np.zeros(1, np.int32), np.empty(0, np.int32)).shape == (0, 0)


def test_slots_follow_from_batch_indices_and_positions(csr):
    indptr, indices, last = csr
    tables, lengths = conventions.block_tables_of(indptr, indices), conventions.lengths_of(indptr, last, 16)
    batch, positions = conventions.batch_positions_of(np.array([0, 2, 5, 5, 7]), lengths)
    assert batch.tolist() == [0, 0, 1, 1, 1, 3, 3]
    assert positions.tolist() == [33, 34, 29, 30, 31, 0, 1]
    slots = conventions.slots_of(tables, batch, positions, 16)
    assert slots.tolist() == [9 * 16 + 1, 9 * 16 + 2, 16 + 13, 16 + 14, 16 + 15, 64, 65]
    batch[1], positions[3] = -1, -1
    assert conventions.slots_of(tables, batch, positions, 16)[[1, 3]].tolist() == [-1, -1]


@pytest.mark.parametrize(("kv_layout", "shape"), [("NHD", (6, 2, 16, 2, 64)), ("HND", (6, 2, 2, 16, 64))])
def test_attention_over_flashinfers_one_cache(target, cases, kv_layout, shape):
    """[pages, 2, ...]: K and V of a page lie side by side, so a block is two pages' extent from the next."""
    layout = conventions.layout_of(kv_layout)
    cache = np.full(shape, np.nan, np.float16)
    key, value = conventions.split_flashinfer(cache)
    case = cases.Case("float16", layout, head_dim=64, group=2, lengths=(40, 20))
    assert case.tables[case.tables != cases.NO_BLOCK].max() < 8
    case.tables = np.array([[5, 0, 3], [2, 4, 0]], np.int32)
    kv = conventions.pool_of(key, value, layout)
    assert kv.block_stride == 2 * 2 * 16 * 64
    launch.append_kv(target, kv, np.concatenate(case.keys), np.concatenate(case.values), case.slots())
    out = np.empty_like(case.query)
    launch.paged_attention_simple(target, kv, case.query, case.tables, np.array(case.lengths, np.int32), out)
    assert case.error(out) <= 2e-3


def test_a_cache_of_vllm_is_two_halves():
    cache = np.zeros((2, 5, 16, 2, 64), np.float16)
    kv = conventions.pool_of(*conventions.split_vllm(cache), "nhd")
    assert kv.value - kv.key == cache[0].nbytes
    assert (kv.block_stride, kv.head_stride, kv.slot_stride) == (16 * 2 * 64, 64, 2 * 64)
    assert (kv.block_size, kv.kv_heads, kv.head_dim, kv.dtype) == (16, 2, 64, "float16")


@pytest.mark.parametrize("layout", ["hnd", "nhd", "vllm"])
@pytest.mark.parametrize("dtype", ["float16", "e4m3"])
def test_a_pool_of_arrays_is_the_pool_of_their_strides(cases, layout, dtype):
    pools = cases.empty_pools(layout, dtype, 3, 16, 2, 64)
    wanted = cases.paged_kv(layout, dtype, *pools)
    if dtype == "e4m3":
        pools = [pool.view(np.uint8) for pool in pools]
    assert conventions.pool_of(*pools, layout, dtype) == wanted


def test_names_of_types():
    assert conventions.dtype_of_cache("auto", "bfloat16") == "bfloat16"
    assert conventions.dtype_of_cache("auto", "half") == "float16"
    assert conventions.dtype_of_cache("fp8", "bfloat16") == conventions.dtype_of_cache("fp8_e4m3", "half") == "e4m3"


def test_what_does_not_fit_is_refused():
    key = np.zeros((3, 2, 16, 64), np.float16)
    with pytest.raises(LaunchError, match="kv_layout must be one of NHD, HND, not 'DNH'"):
        conventions.layout_of("DNH")
    with pytest.raises(LaunchError, match="layout must be one of hnd, nhd, vllm, not 'HND'"):
        conventions.pool_of(key, key, "HND")
    with pytest.raises(LaunchError, match="key has 4 axes and value 4, which is not how vllm lies"):
        conventions.pool_of(key, key, "vllm")
    with pytest.raises(LaunchError, match="key and value lie differently from block to block"):
        conventions.pool_of(key, np.zeros((3, 2, 32, 64), np.float16), "hnd")
