"""Attention on a ContiguousKV, in both orders: what was appended is found again, and decode agrees with float64."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import paged
import vmm
from kernels_cu import LaunchError, Scoring, net, reference, reference_append, reference_attention
from paged import attention, span_attention
from paged.attention import kernel_choice

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
BOUNDS = {"float32": 4e-5, "float16": 4 * 2e-3, "bfloat16": 4 * 1.6e-2}
LENGTHS = (1, 0, 16, 333)


@contextlib.contextmanager
def _filled(device, dtype="float16", head_dim=64, *, order="layer", kv_heads=2, max_length=700, **spec):
    """Spans with tokens in the second of two layers, appended in two steps, in spans that were used before."""
    rng = np.random.default_rng(0)
    spec = paged.KVSpec(2, kv_heads, head_dim, dtype, **spec)
    with paged.ContiguousKV(device, spec, max_length, len(LENGTHS) + 1, order=order) as kv:
        first = kv.open()
        found = SimpleNamespace(kv=kv, spans=[kv.open() for _ in LENGTHS])
        first.close()
        found.drawn = [rng.standard_normal((2, n, kv_heads, head_dim)).astype(DTYPES[dtype]) for n in LENGTHS]
        for part in (lambda n: n - n // 3, lambda n: n // 3):
            counts = [part(n) for n in LENGTHS]
            for span, count in zip(found.spans, counts, strict=True):
                span.append(count)
            ends = [span.length for span in found.spans]
            new = [
                np.concatenate([rows[c][e - n : e] for rows, e, n in zip(found.drawn, ends, counts, strict=True)])
                for c in (0, 1)
            ]
            span_attention.append(kv, 1, *new, found.spans, counts)
        found.query = rng.standard_normal((len(LENGTHS), 4 * kv_heads, head_dim)).astype(DTYPES[dtype])
        found.wanted = reference.paged_attention(found.query, *zip(*found.drawn, strict=True))
        yield found


pytestmark = pytest.mark.usefixtures("compiler")


def _decode(found, **options):
    return span_attention.decode(found.kv, 1, found.query, found.spans, **options).astype(np.float64)


@pytest.mark.parametrize("order", ["layer", "token"])
@pytest.mark.parametrize(
    ("dtype", "head_dim", "kv_heads"), [("float32", 16, 1), ("float16", 64, 2), ("bfloat16", 64, 3), ("float16", 24, 5)]
)
def test_what_is_appended_is_gathered_and_attended_to(device, dtype, head_dim, kv_heads, order):
    with _filled(device, dtype, head_dim, kv_heads=kv_heads, order=order) as found:
        for span, rows in zip(found.spans, found.drawn, strict=True):
            gathered = span_attention.gather(found.kv, 1, span)
            assert all(np.array_equal(a, b) for a, b in zip(gathered, rows, strict=True))
        assert np.abs(_decode(found) - found.wanted).max() <= BOUNDS[dtype]
        found.kv.check()


@pytest.mark.parametrize("order", ["layer", "token"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_fast_kernel_needs_no_block_table(device, dtype, order):
    with _filled(device, dtype, order=order) as found:
        assert np.abs(_decode(found, kernel="fast") - found.wanted).max() <= BOUNDS[dtype]


def test_bytes_lie_where_the_addresses_say(device):
    with _filled(device, order="token", kv_heads=3) as found:
        span, (key, value) = found.spans[3], found.drawn[3]
        for component, rows in enumerate((key, value)):
            address = found.kv.address(span, 200, 1, component, head=2, d=8)
            offset = address - found.kv.range.base
            assert np.array_equal(found.kv.range.array("float16", 8, offset), rows[200, 2, 8:16])


def test_options_take_the_fast_kernel_by_themselves(device):
    sinks, lse = np.linspace(-1, 1, 8, dtype=np.float32), np.full((4, 8), np.nan, np.float32)
    with _filled(device) as found:
        out = _decode(found, window=20, scoring=Scoring(soft_cap=6.0, sinks=sinks), lse=lse)
        for b, (query, (key, value)) in enumerate(zip(found.query, found.drawn, strict=True)):
            wanted, sums = reference_attention.attention(query[None], key, value, window=20, soft_cap=6.0, sinks=sinks)
            assert np.abs(out[b] - wanted).max() <= BOUNDS["float16"]
            assert np.allclose(lse[b], sums, rtol=1e-5, atol=2e-5)


def test_the_window_of_the_spec_is_used(device):
    with _filled(device, window=20) as found:
        assert np.array_equal(_decode(found), _decode(found, window=20))
        assert np.abs(_decode(found, window=1000) - found.wanted).max() <= BOUNDS["float16"]


def test_a_narrow_cache(device):
    scales = {"key_scale": np.array([0.03], np.float32), "value_scale": np.array([0.04], np.float32)}
    rng, spec = np.random.default_rng(3), paged.KVSpec(2, 2, 64, "e4m3")
    key, value = rng.standard_normal((2, 50, 2, 64), np.float32).astype(np.float16)
    query = rng.standard_normal((1, 8, 64), np.float32).astype(np.float16)
    with paged.ContiguousKV(device, spec, 100, 2) as kv:
        span = kv.open()
        span.append(50)
        span_attention.append(kv, 0, key, value, [span], [50], **scales)
        kept = [
            reference_append.dequantised(reference_append.quantised(rows, "e4m3", scale), scale)
            for rows, scale in ((key, scales["key_scale"]), (value, scales["value_scale"]))
        ]
        for rows, wanted in zip(span_attention.gather(kv, 0, span, **scales), kept, strict=True):
            np.testing.assert_allclose(rows, wanted, rtol=1e-6)
        out = span_attention.decode(kv, 0, query, [span], scoring=Scoring(**scales))
        assert np.abs(out.astype(np.float64) - reference_attention.attention(query, *kept)[0]).max() <= 8e-3


def test_what_is_queued_lives_until_it_has_run():
    driver = vmm.HostDriver(memory="64 MiB", streams="deferred")
    for kernel in ("simple", "fast"):
        with vmm.Device(driver=driver) as device, _filled(device) as found:
            out = span_attention.decode(found.kv, 1, found.query, found.spans, kernel=kernel)
            out[...] = np.nan
            device.synchronize()
            assert np.abs(out.astype(np.float64) - found.wanted).max() <= BOUNDS["float16"]


def test_the_net_looks_at_contiguous_decode(device, monkeypatch):
    monkeypatch.setattr(kernel_choice, "CPU", "nowhere")
    monkeypatch.setattr(net, "_right", {})
    with _filled(device) as found:
        assert np.abs(_decode(found) - found.wanted).max() <= BOUNDS["float16"]
        assert [key[2] for key, right in net._right.items() if right] == ["contiguous_decode"]
        monkeypatch.setattr(net, "_right", {})
        monkeypatch.setattr(net.launch, "contiguous_decode", lambda *_, **__: None)
        with pytest.warns(RuntimeWarning, match="contiguous_decode does not agree with the simple kernel"):
            assert np.abs(_decode(found) - found.wanted).max() <= BOUNDS["float16"]


def test_what_is_not_there_is_refused_in_one_line(device):
    with _filled(device) as found, _filled(device) as other:
        kv, ones, closed, first = found.kv, np.ones((1, 2, 64), np.float16), found.kv.open(), found.spans[:1]
        closed.close()
        refused = [
            (vmm.RangeError, "layer 2 is not there", lambda: span_attention.append(kv, 2, ones, ones, first, [1])),
            (vmm.RangeError, "layer -1 is not there", lambda: span_attention.gather(kv, -1, found.spans[0])),
            (vmm.RangeError, "1 tokens, 2 cannot be its last",
             lambda: span_attention.append(kv, 1, ones, ones, first, [2])),
            (ValueError, "2 counts for 1 spans", lambda: span_attention.append(kv, 1, ones, ones, first, [1, 1])),
            (LaunchError, r"key must have shape \[16, 2, 64\]",
             lambda: span_attention.append(kv, 1, ones, ones, [found.spans[2]], [16])),
            (vmm.ClosedError, "the span was closed", lambda: span_attention.gather(kv, 1, closed)),
            (vmm.ClosedError, "the span was closed", lambda: kv.address(closed, 0)),
            (vmm.StateError, "is not a span of", lambda: span_attention.gather(kv, 1, other.spans[0])),
            (ValueError, "a span is needed, as open.. gives it, not int", lambda: span_attention.gather(kv, 1, 3)),
            (ValueError, "4 rows for 1 spans", lambda: span_attention.decode(kv, 1, found.query, found.spans[:1])),
            (ValueError, "kernel 'x' is unknown", lambda: _decode(found, kernel="x")),
            (vmm.RangeError, "layer 2 is not there", lambda: kv.address(found.spans[0], 0, 2)),
            (vmm.RangeError, "token 700 is not there", lambda: kv.address(found.spans[0], 700)),
            (vmm.RangeError, "component 2 is not there", lambda: kv.address(found.spans[0], 0, 0, 2)),
            (vmm.RangeError, "head 2 is not there", lambda: kv.address(found.spans[0], 0, head=2)),
            (vmm.RangeError, "d -1 is not there", lambda: kv.address(found.spans[0], 0, d=-1)),
        ]  # fmt: skip
        for error, text, act in refused:
            with pytest.raises(error, match=text) as raised:
                act()
            assert "\n" not in str(raised.value)
    with pytest.raises(vmm.ClosedError):
        _decode(found)


def test_a_pool_and_spans_give_the_same(device):
    """The block table changes where tokens lie, and nothing else."""
    with _filled(device) as found, paged.KVPool(device, paged.KVLayout(found.kv.spec), blocks=40) as pool:
        sequences = [pool.sequence() for _ in LENGTHS]
        for sequence, rows in zip(sequences, found.drawn, strict=True):
            attention.append(pool, 1, *rows, sequence.append(len(rows[0])))
        paged_out = attention.decode(pool, 1, found.query, sequences, kernel="fast")
        assert np.array_equal(_decode(found, kernel="fast"), paged_out.astype(np.float64))
