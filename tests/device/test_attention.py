"""attention and span_attention on a GPU: prefill, options, narrow pools and spans, by either kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import paged
from kernels_cu import Scoring, reference_append, reference_attention
from paged import attention, span_attention

LENGTHS, NEW = (1, 17, 333, 2000), (1, 5, 333, 100)
HEADS, D = 8, 128
BOUND = 5 * 1.6e-2
"""Of bfloat16 for values of up to 5."""


def _drawn(rows):
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal((2, n, 2, D), np.float32).astype(ml_dtypes.bfloat16) for n in LENGTHS]
    return drawn, rng.standard_normal((rows, HEADS, D), np.float32).astype(ml_dtypes.bfloat16)


def _wanted(drawn, query, new, **options):
    rows = np.split(query, np.cumsum(new)[:-1])
    found = [reference_attention.attention(part, *kv, **options) for part, kv in zip(rows, drawn, strict=True)]
    return np.concatenate([out for out, _ in found]), np.concatenate([lse for _, lse in found])


def _error(gpu, out, wanted):
    gpu.synchronize()
    return np.abs(out.get().astype(np.float64) - wanted).max()


def _fill(pool, drawn, side, **scales):
    sequences = [pool.sequence() for _ in LENGTHS]
    for sequence, rows in zip(sequences, drawn, strict=True):
        key, value = (np.asarray(part, like=side) for part in rows)
        attention.append(pool, 1, key, value, sequence.append(len(key)), **scales)
    return sequences


def test_prefill_by_either_kernel_and_with_options(gpu, cupy):
    drawn, query = _drawn(sum(NEW))
    with paged.KVPool(gpu, paged.KVLayout(paged.KVSpec(2, 2, D, "bfloat16")), blocks=256) as pool:
        side = cupy.empty(0, np.float32)
        sequences, queries = _fill(pool, drawn, side), np.asarray(query, like=side)
        for kernel in (None, "fast", "simple"):
            out = attention.prefill(pool, 1, queries, sequences, NEW, kernel=kernel)
            assert _error(gpu, out, _wanted(drawn, query, NEW)[0]) <= BOUND, kernel
        lse = cupy.full(query.shape[:2], np.nan, np.float32)
        sinks = np.linspace(-1, 1, HEADS, dtype=np.float32)
        scoring = Scoring(soft_cap=8.0, sinks=cupy.asarray(sinks))
        out = attention.prefill(pool, 1, queries, sequences, NEW, window=50, scoring=scoring, lse=lse)
        wanted, sums = _wanted(drawn, query, NEW, window=50, soft_cap=8.0, sinks=sinks)
        assert _error(gpu, out, wanted) <= BOUND
        assert np.allclose(lse.get(), sums, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["e4m3", "int8"])
def test_a_narrow_pool(gpu, cupy, dtype):
    drawn, query = _drawn(len(LENGTHS))
    scale = np.full(1, 0.03, np.float32)
    scales = {"key_scale": cupy.asarray(scale), "value_scale": cupy.asarray(scale)}
    kept = [
        [reference_append.dequantised(reference_append.quantised(part, dtype, scale), scale) for part in rows]
        for rows in drawn
    ]
    with paged.KVPool(gpu, paged.KVLayout(paged.KVSpec(2, 2, D, dtype)), blocks=256) as pool:
        sequences = _fill(pool, drawn, scales["key_scale"], **scales)
        found = attention.gather(pool, 1, sequences[2], **scales)
        np.testing.assert_allclose(found[0].get(), kept[2][0], rtol=1e-6)
        out = attention.decode(pool, 1, cupy.asarray(query), sequences, scoring=Scoring(**scales))
        assert _error(gpu, out, _wanted(kept, query, (1,) * len(LENGTHS))[0]) <= BOUND


@pytest.mark.parametrize("order", ["layer", "token"])
def test_spans(gpu, cupy, order):
    drawn, query = _drawn(len(LENGTHS))
    with paged.ContiguousKV(gpu, paged.KVSpec(2, 2, D, "bfloat16"), 2048, len(LENGTHS), order=order) as kv:
        spans = [kv.open() for _ in LENGTHS]
        for span, length in zip(spans, LENGTHS, strict=True):
            span.append(length)
        key, value = (cupy.asarray(np.concatenate(rows)) for rows in zip(*drawn, strict=True))
        span_attention.append(kv, 1, key, value, spans, LENGTHS)
        assert np.array_equal(span_attention.gather(kv, 1, spans[3])[0].get(), drawn[3][0])
        for kernel in (None, "fast", "simple"):
            out = span_attention.decode(kv, 1, cupy.asarray(query), spans, kernel=kernel)
            assert _error(gpu, out, _wanted(drawn, query, (1,) * len(LENGTHS))[0]) <= BOUND, kernel
