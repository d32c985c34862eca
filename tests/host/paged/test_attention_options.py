"""Options of attention on a pool: what only the kernels on tensor cores do is done by them, or refused in one line."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import paged
import vmm
from kernels_cu import LaunchError, Rotary, Scoring, net, reference_append, reference_attention
from kernels_cu.rotary import rotary_table
from paged import attention
from paged.attention import kernel_choice

LENGTHS, HEADS, D = (1, 0, 47, 200), 8, 64
SLOPES = np.linspace(0.02, 0.3, HEADS, dtype=np.float32)
SINKS = np.linspace(-1, 2, HEADS, dtype=np.float32)
HALF = 4 * 2e-3
"""Allowed error of float16 for values of up to 4."""

pytestmark = pytest.mark.usefixtures("compiler")


def _filled(pool, *, scales=None, dtype=np.float16, seed=0):
    """Four sequences with tokens in layer 1, and a query."""
    rng = np.random.default_rng(seed)
    drawn = [rng.standard_normal((2, n, 2, D), np.float32).astype(dtype) for n in LENGTHS]
    sequences = [pool.sequence() for _ in LENGTHS]
    for sequence, (key, value) in zip(sequences, drawn, strict=True):
        attention.append(pool, 1, key, value, sequence.append(len(key)), **(scales or {}))
    return SimpleNamespace(
        pool=pool,
        sequences=sequences,
        keys=[key for key, _ in drawn],
        values=[value for _, value in drawn],
        query=(3 * rng.standard_normal((len(LENGTHS), HEADS, D))).astype(dtype),
    )


def _pool(device, **spec):
    return paged.KVPool(device, paged.KVLayout(paged.KVSpec(2, 2, D, **{"dtype": "float16", **spec})), blocks=40)


def _wanted(found, **options):
    rows = [
        reference_attention.attention(query[None], key, value, **options)
        for query, key, value in zip(found.query, found.keys, found.values, strict=True)
    ]
    return np.concatenate([out for out, _ in rows]), np.concatenate([lse for _, lse in rows])


@pytest.mark.parametrize(
    ("scoring", "options"),
    [
        ({}, {"window": 20}),
        ({"soft_cap": 5.0}, {}),
        ({"alibi": SLOPES}, {}),
        ({"sinks": SINKS}, {}),
        ({"scale": 0.3, "soft_cap": 8.0, "alibi": SLOPES, "sinks": SINKS}, {"window": 33}),
    ],
    ids=lambda option: "+".join(option) or "-",
)
def test_an_option_takes_the_fast_kernel_by_itself_and_agrees_with_float64(device, scoring, options):
    with _pool(device) as pool:
        found, lse = _filled(pool), np.full((len(LENGTHS), HEADS), np.nan, np.float32)
        out = attention.decode(pool, 1, found.query, found.sequences, scoring=Scoring(**scoring), lse=lse, **options)
        wanted, wanted_lse = _wanted(found, **scoring, **options)
        assert np.abs(out.astype(np.float64) - wanted).max() <= HALF
        finite = np.isfinite(wanted_lse)
        assert np.allclose(lse[finite], wanted_lse[finite], rtol=1e-5, atol=2e-5)
        assert np.isneginf(lse[~finite]).all()


def test_the_window_of_the_spec_is_used_unless_another_is_given(device):
    with _pool(device, window=20) as pool:
        found = _filled(pool)
        for given, window in ((None, 20), (7, 7)):
            out = attention.decode(pool, 1, found.query, found.sequences, window=given)
            assert np.abs(out.astype(np.float64) - _wanted(found, window=window)[0]).max() <= HALF
        prefilled = attention.prefill(pool, 1, found.query[:1], found.sequences[:1], [1])
        assert np.array_equal(prefilled, found.values[0].repeat(4, axis=1))  # a token that sees itself alone


@pytest.mark.parametrize(
    ("head_dim", "layout", "options", "text"),
    [
        (80, "hnd", {"window": 9}, "a window needs head_dim 64, 128 or 256; this pool is of head_dim 80"),
        (
            64,
            "vllm",
            {"scoring": Scoring(soft_cap=5.0)},
            "a soft cap needs layout hnd or nhd; this pool is of layout vllm",
        ),
        (
            64,
            "vllm",
            {"scoring": Scoring(sinks=SINKS)},
            "an attention sink needs layout hnd or nhd; this pool is of layout",
        ),
    ],
)
def test_what_an_option_needs_is_said_beside_what_the_pool_is(device, head_dim, layout, options, text):
    spec = paged.KVSpec(2, 2, head_dim, "float16")
    with paged.KVPool(device, paged.KVLayout(spec, layout=layout, chunk=device.granularity), blocks=8) as pool:
        sequence = pool.sequence()
        attention.append(pool, 1, *np.zeros((2, 20, 2, head_dim), np.float16), sequence.append(20))
        with pytest.raises(LaunchError, match=text):
            attention.decode(pool, 1, np.zeros((1, HEADS, head_dim), np.float16), [sequence], **options)


def test_a_window_that_hides_nothing_needs_no_other_kernel(device):
    with _pool(device, dtype="float32") as pool:  # which only the simple kernel takes
        found = _filled(pool, dtype=np.float32)
        every = attention.decode(pool, 1, found.query, found.sequences)
        assert np.array_equal(attention.decode(pool, 1, found.query, found.sequences, window=200), every)
        with pytest.raises(LaunchError, match=r"^a window needs float16 or bfloat16; this pool is of float32$"):
            attention.decode(pool, 1, found.query, found.sequences, window=199)


@pytest.mark.parametrize("dtype", ["e4m3", "int8"])
def test_a_narrow_pool_holds_values_over_their_scales(device, dtype):
    scales = {
        "key_scale": np.array([0.03, 0.05], np.float32),
        "value_scale": np.array([0.04, 0.025], np.float32),
    }
    with _pool(device, dtype=dtype) as pool:
        assert pool.layout.spec.element_bytes == 1
        found = _filled(pool, scales=scales, dtype=ml_dtypes.bfloat16)
        for b, sequence in enumerate(found.sequences):
            rounded = [
                reference_append.dequantised(reference_append.quantised(rows[b], dtype, scale), scale)
                for rows, scale in ((found.keys, scales["key_scale"]), (found.values, scales["value_scale"]))
            ]
            gathered = attention.gather(pool, 1, sequence, **scales)
            for rows, kept in zip(gathered, rounded, strict=True):
                np.testing.assert_allclose(rows, kept, rtol=1e-6)
            found.keys[b], found.values[b] = rounded
        scoring = Scoring(**scales)
        out = attention.decode(pool, 1, found.query, found.sequences, scoring=scoring)
        assert np.abs(out.astype(np.float64) - _wanted(found)[0]).max() <= 4 * 1.6e-2
        one = attention.prefill(pool, 1, found.query[3:], found.sequences[3:], [1], scoring=scoring)
        assert np.abs(one.astype(np.float64) - _wanted(found)[0][3:]).max() <= 4 * 1.6e-2
        with pytest.raises(LaunchError, match=f"a cache of {dtype} needs key_scale"):
            attention.decode(pool, 1, found.query, found.sequences)
        with pytest.raises(LaunchError, match=f"a cache of {dtype} needs key_scale"):
            attention.gather(pool, 1, found.sequences[0])
        with pytest.raises(LaunchError, match=f"the simple kernel does not do a cache of {dtype}; leave kernel=None"):
            attention.decode(pool, 1, found.query, found.sequences, scoring=scoring, kernel="simple")


def test_append_turns_keys_by_their_positions(device):
    rng, turns = np.random.default_rng(1), rotary_table(64, D)
    key, value = rng.standard_normal((2, 5, 2, D), np.float32).astype(np.float16)
    positions = np.array([3, 9, 0, 60, 7], np.int32)
    with _pool(device) as pool:
        sequence = pool.sequence()
        attention.append(pool, 1, key, value, sequence.append(5), rotary=Rotary(turns, positions))
        found = attention.gather(pool, 1, sequence)
        wanted = reference_append.turned(key, turns, positions, "halves")
        assert np.abs(found[0].astype(np.float64) - wanted).max() <= 4e-3
        assert np.array_equal(found[1], value)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"window": 0}, vmm.RangeError, "window must be a whole number of at least 1 token, not 0"),
        ({"window": -3}, vmm.RangeError, "window must be a whole number of at least 1 token, not -3"),
        ({"window": 2.5}, vmm.RangeError, "window must be a whole number of at least 1 token, not 2.5"),
        ({"window": "3"}, vmm.RangeError, "window must be a whole number of at least 1 token, not '3'"),
        ({"scoring": 0.5}, LaunchError, "scoring must be a kernels_cu.Scoring, not float"),
        ({"kernel": "simple", "window": 5}, LaunchError, "the simple kernel does not do a window; leave kernel=None"),
        ({"lse": np.zeros((3, HEADS), np.float32)}, LaunchError, r"lse must have shape \[4, 8\], not \[3, 8\]"),
        ({"scoring": Scoring(alibi=SLOPES[:3])}, LaunchError, r"alibi must have shape \[8\], not \[3\]"),
    ],
)
def test_options_that_make_no_sense_are_one_line(device, options, error, text):
    with _pool(device) as pool:
        found = _filled(pool)
        with pytest.raises(error, match=text) as raised:
            attention.decode(pool, 1, found.query, found.sequences, **options)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("slots", [[0.7], [2**70], ["1"]])
def test_slots_that_are_no_whole_numbers_are_refused(device, slots):
    with _pool(device) as pool, pytest.raises(vmm.RangeError, match="slots must be whole numbers of 64 bits, not"):
        attention.append(pool, 0, *np.zeros((2, 1, 2, D), np.float16), slots)


def test_where_the_fast_kernel_is_wrong_its_options_are_refused(device, monkeypatch):
    monkeypatch.setattr(kernel_choice, "CPU", "nowhere")
    monkeypatch.setattr(net, "_right", {})
    monkeypatch.setattr(net.launch, "paged_decode", lambda *_, **__: None)
    with _pool(device) as pool:
        found = _filled(pool)
        with (
            pytest.warns(RuntimeWarning, match="does not agree"),
            pytest.raises(
                LaunchError, match="only the kernel on tensor cores does a soft cap: paged_decode was wrong on software"
            ),
        ):
            attention.decode(pool, 1, found.query, found.sequences, scoring=Scoring(soft_cap=5))
