"""contiguous_decode on the CPU: the same attention as paged_decode, and nothing behind the last token is touched."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from kernels_cu import LaunchError, PagedKV, launch, plan_decode

PAGE = mmap.PAGESIZE


def _decode(target, case, spans, order, **options):
    """Attention over K and V of ``spans`` [B, 2, ...], each sequence's in one piece; ``order`` is hnd or nhd."""
    heads, dim = case.kv_heads, case.head_dim
    longest = spans.shape[3] if order == "hnd" else spans.shape[2]
    head, slot = (longest * dim, dim) if order == "hnd" else (dim, heads * dim)
    base = spans[:, 0].ctypes.data
    kv = PagedKV(base, spans[:, 1].ctypes.data, case.dtype, "nhd", 1, heads, dim, 0, head, slot)
    starts = np.arange(len(spans)) * (spans.strides[0] // spans.itemsize)
    plan = plan_decode(case.lengths, heads * case.group, heads, shares=4, least_tiles=1, **options)
    out, lse = np.full_like(case.query, np.nan), np.full(case.query.shape[:2], np.nan, np.float32)
    partials = np.empty((plan.partials, 8, dim), np.float32), np.empty((plan.partials, 8), np.float32)
    lengths = np.array(case.lengths, np.int32)
    launch.contiguous_decode(
        target, kv, plan, case.query, starts, lengths, out, lse=lse, partial_out=partials[0], partial_lse=partials[1]
    )
    return out, lse


def _spans(case, order):
    """K and V of each sequence side by side, NaN behind the last token."""
    longest = max(case.lengths)
    shape = (2, 2, case.kv_heads, longest) if order == "hnd" else (2, 2, longest, case.kv_heads)
    spans = np.full((len(case.lengths), *shape[1:], case.head_dim), np.nan, case.query.dtype)
    for span, length, *rows in zip(spans, case.lengths, case.keys, case.values, strict=True):
        for part, row in zip(span, rows, strict=True):
            if order == "hnd":
                part[:, :length] = row.transpose(1, 0, 2)
            else:
                part[:length] = row
    return spans


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("order", ["hnd", "nhd"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_agrees_with_float64(target, cases, dtype, order, window):
    case = cases.Case(dtype, head_dim=64, group=4, lengths=(300, 16, 0, 1, 77))
    case.check(_decode(target, case, _spans(case, order), order, window=window), window=window)


def test_gives_the_bits_of_paged_decode(target, cases):
    case = cases.Case("float16", head_dim=64, group=2, lengths=(300, 41))
    case.append(target)
    paged = case.decode(target, shares=4)
    contiguous = _decode(target, case, _spans(case, "nhd"), "nhd")
    assert all((a == b).all() for a, b in zip(paged, contiguous, strict=True))


@pytest.mark.parametrize("length", [1, 17, 32, 63])
def test_a_span_may_end_with_its_last_token(target, cases, length):
    """K and V lie at the very end of mapped memory; an address behind it would be a fault."""
    case = cases.Case("float16", head_dim=64, group=1, kv_heads=1, lengths=(length,))
    size = length * 64 * 2
    spans = []
    for row in (case.keys[0], case.values[0]):
        memory = mmap.mmap(-1, (size // PAGE + 2) * PAGE)
        end = np.frombuffer(memory, np.uint8).ctypes.data + (size // PAGE + 1) * PAGE
        _protect(end, PAGE)
        inside = np.frombuffer(memory, np.float16)[: (size // PAGE + 1) * PAGE // 2]
        inside[-length * 64 :] = row.reshape(-1)
        spans.append((memory, end - size))
    kv = PagedKV(spans[0][1], spans[1][1], "float16", "nhd", 1, 1, 64, 0, 64, 64)
    out, lse = np.empty_like(case.query), np.empty((1, 1), np.float32)
    plan = plan_decode(case.lengths, 1, 1, shares=1)
    launch.contiguous_decode(
        target, kv, plan, case.query, np.zeros(1, np.int64), np.array([length], np.int32), out, lse=lse
    )
    case.check((out, lse))


def _protect(address, size):
    """Take away a page: who touches it faults."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), 0) == 0


def test_starts_of_another_type_are_refused(target, cases):
    case = cases.Case("float16", head_dim=64, lengths=(20,))
    plan = plan_decode(case.lengths, 2, 2, shares=1)
    lengths = np.array(case.lengths, np.int32)
    with pytest.raises(LaunchError, match="starts must be int64, not int32"):
        launch.contiguous_decode(target, case.kv, plan, case.query, lengths, lengths, np.empty_like(case.query))
