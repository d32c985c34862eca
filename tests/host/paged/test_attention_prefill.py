"""attention.prefill: whole prompts and chunks, by either kernel, against float64 and against decode."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import paged
import vmm
from kernels_cu import Scoring, launch, net, reference_attention
from paged import attention
from paged.attention import kernel_choice, prefill_kernel

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
BOUNDS = {"float32": 4e-5, "float16": 4 * 2e-3, "bfloat16": 4 * 1.6e-2}
LENGTHS, NEW = (1, 5, 47, 0, 300), (1, 3, 47, 0, 70)
KERNELS = ("simple", "fast")


@contextlib.contextmanager
def _filled(device, dtype="float16", head_dim=64, *, order="block", layout="hnd", block_size=16):
    rng = np.random.default_rng(0)
    spec = paged.KVSpec(2, 2, head_dim, dtype)
    with paged.KVPool(device, paged.KVLayout(spec, block_size, order, layout), blocks=960 // block_size) as pool:
        drawn = [rng.standard_normal((2, n, 2, head_dim)).astype(DTYPES[dtype]) for n in LENGTHS]
        found = SimpleNamespace(pool=pool, drawn=drawn, sequences=[pool.sequence() for _ in LENGTHS])
        for sequence, (key, value) in zip(found.sequences, drawn, strict=True):
            attention.append(pool, 1, key, value, sequence.append(len(key)))
        found.query = rng.standard_normal((sum(NEW), 8, head_dim)).astype(DTYPES[dtype])
        yield found


pytestmark = pytest.mark.usefixtures("compiler")


def _wanted(found, **options):
    ends = np.cumsum(NEW)
    rows = [
        reference_attention.attention(found.query[end - new : end], key, value, **options)
        for end, new, (key, value) in zip(ends, NEW, found.drawn, strict=True)
    ]
    return np.concatenate([out for out, _ in rows]), np.concatenate([lse for _, lse in rows])


def _prefill(found, **options):
    return attention.prefill(found.pool, 1, found.query, found.sequences, NEW, **options)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_either_kernel_agrees_with_float64(device, dtype, kernel, causal):
    with _filled(device, dtype) as found:
        out = _prefill(found, kernel=kernel, causal=causal)
        assert out.dtype == found.query.dtype
        assert np.abs(out.astype(np.float64) - _wanted(found, causal=causal)[0]).max() <= BOUNDS[dtype]


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("shape", [{"dtype": "float32"}, {"head_dim": 16}, {"layout": "vllm"}, {"layout": "nhd"}])
def test_the_simple_kernel_takes_every_cache(device, shape, order):
    with _filled(device, order=order, **shape) as found:
        out = _prefill(found)
        bound = BOUNDS[shape.get("dtype", "float16")]
        assert np.abs(out.astype(np.float64) - _wanted(found)[0]).max() <= bound


def test_chunks_give_what_the_whole_prompt_gives(device):
    with _filled(device) as found:
        key, value = found.drawn[4]
        whole, pieces = found.pool.sequence(), []
        query = np.random.default_rng(2).standard_normal((len(key), 8, 64)).astype(np.float16)
        for start in range(0, len(key), 90):
            rows = slice(start, min(start + 90, len(key)))
            count = rows.stop - rows.start
            attention.append(found.pool, 1, key[rows], value[rows], whole.append(count))
            pieces.append(attention.prefill(found.pool, 1, query[rows], [whole], [count], kernel="fast"))
        at_once = attention.prefill(found.pool, 1, query, [whole], [len(key)], kernel="fast")
        assert np.abs(np.concatenate(pieces).astype(np.float64) - at_once).max() <= 2e-3


def test_the_last_token_is_what_decode_gives(device):
    with _filled(device) as found:
        ends = [end for end, new in zip(np.cumsum(NEW), NEW, strict=True) if new]
        asked = [sequence for sequence, new in zip(found.sequences, NEW, strict=True) if new]
        rows = np.ascontiguousarray(found.query[np.array(ends) - 1])
        decoded = attention.decode(found.pool, 1, rows, asked, kernel="simple")
        assert np.array_equal(_prefill(found, kernel="simple")[np.array(ends) - 1], decoded)


def test_options_take_the_fast_kernel_by_themselves(device):
    slopes = np.linspace(0.02, 0.3, 8, dtype=np.float32)
    with _filled(device) as found:
        lse = np.full((sum(NEW), 8), np.nan, np.float32)
        out = _prefill(found, window=30, scoring=Scoring(scale=0.2, soft_cap=9.0, alibi=slopes, sinks=slopes), lse=lse)
        wanted, wanted_lse = _wanted(found, window=30, scale=0.2, soft_cap=9.0, alibi=slopes, sinks=slopes)
        assert np.abs(out.astype(np.float64) - wanted).max() <= BOUNDS["float16"]
        assert np.allclose(lse, wanted_lse, rtol=1e-5, atol=2e-5)


def test_more_tokens_than_a_launch_of_the_simple_kernel_takes(device, monkeypatch):
    monkeypatch.setattr(prefill_kernel, "MOST_ROWS", 16)
    with _filled(device) as found:
        assert np.abs(_prefill(found).astype(np.float64) - _wanted(found)[0]).max() <= BOUNDS["float16"]


def test_layers_share_a_plan_and_another_batch_does_not(device, monkeypatch):
    moved, plan_on = [], prefill_kernel.PrefillPlan.on
    monkeypatch.setattr(prefill_kernel.PrefillPlan, "on", lambda plan, move: moved.append(plan) or plan_on(plan, move))
    with _filled(device) as found:
        for layer in (0, 1, 1):
            attention.prefill(found.pool, layer, found.query, found.sequences, NEW, kernel="fast")
        assert len(moved) == 1
        fewer = attention.prefill(found.pool, 1, found.query[:4], found.sequences[:2], NEW[:2], kernel="fast")
        assert len(moved) == 2
        assert np.abs(fewer.astype(np.float64) - _wanted(found)[0][:4]).max() <= BOUNDS["float16"]


def test_what_is_queued_lives_until_it_has_run():
    for kernel in KERNELS:
        driver = vmm.HostDriver(memory="64 MiB", streams="deferred")
        with vmm.Device(driver=driver) as device, _filled(device) as found:
            out = _prefill(found, kernel=kernel)
            out[...] = np.nan
            device.synchronize()
            assert np.abs(out.astype(np.float64) - _wanted(found)[0]).max() <= BOUNDS["float16"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"query_lengths": (1, 3, 47, 0, 71)}, "query has 121 rows, query_lengths add up to 122"),
        ({"query_lengths": (1, 6, 44, 0, 70)}, "query_lengths must be .* from 0 to the length of each sequence"),
        ({"query_lengths": (-1, 5, 47, 0, 70)}, "query_lengths must be .* from 0 to the length of each sequence"),
        ({"query_lengths": (1, 3, 47)}, "query_lengths must be"),
        ({"query_lengths": (1, 3.5, 46.5, 0, 70)}, "query_lengths must be whole numbers"),
        ({"query": np.ones((121, 7, 64), np.float16)}, "7 heads, which is not a multiple of the 2 KV heads"),
        ({"query": np.ones((121, 64), np.float16)}, "0 heads, which is not a multiple"),
        ({"query": np.ones((121, 8, 32), np.float16)}, r"query must have shape \[.*, 64\]"),
        ({"query": np.ones((121, 8, 64), np.float32)}, "query must be float16|query must be one of float16"),
        ({"kernel": "quick"}, "kernel 'quick' is unknown"),
    ],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_does_not_fit_is_one_line(device, change, text, kernel):
    with _filled(device) as found:
        given = {"query": found.query, "query_lengths": NEW, "kernel": kernel, **change}
        with pytest.raises(ValueError, match=text) as raised:
            attention.prefill(found.pool, 1, given["query"], found.sequences, given["query_lengths"],
                              kernel=given["kernel"])  # fmt: skip
        assert "\n" not in str(raised.value)


def test_nothing_to_do_gives_nothing(device):
    with _filled(device) as found:
        empty = np.empty((0, 8, 64), np.float16)
        for kernel in KERNELS:
            assert attention.prefill(found.pool, 1, empty, [], [], kernel=kernel).shape == (0, 8, 64)
            assert attention.prefill(found.pool, 1, empty, found.sequences, [0] * 5, kernel=kernel).shape == (0, 8, 64)


@pytest.mark.parametrize("right", [True, False])
def test_on_a_gpu_the_net_looks_first(device, monkeypatch, right):
    monkeypatch.setattr(kernel_choice, "CPU", "nowhere")
    monkeypatch.setattr(net, "_right", {})
    calls, before = [], dict(vars(launch))

    def counting(name):
        return lambda *arguments, **options: calls.append(name) or before[name](*arguments, **options)

    for name in ("paged_prefill", "paged_attention_simple"):
        monkeypatch.setattr(launch, name, counting(name))
    if not right:
        monkeypatch.setattr(net.launch, "paged_prefill", lambda *_, **__: None)
    with _filled(device) as found:
        if right:
            out = _prefill(found)
        else:
            with pytest.warns(RuntimeWarning, match="paged_prefill does not agree with the simple kernel"):
                out = _prefill(found)
        assert np.abs(out.astype(np.float64) - _wanted(found)[0]).max() <= BOUNDS["float16"]
    assert calls[-1] == ("paged_prefill" if right else "paged_attention_simple")
    with _filled(device, dtype="float32") as found:  # a cache that only the simple kernel takes
        looked = len(net._right)
        assert np.isfinite(_prefill(found)).all()
        assert len(net._right) == looked
