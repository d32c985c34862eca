"""The narrow types and approximations of ptx.cuh on a CPU, against NumPy and ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest


def _bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


def _column(bits):
    """One word a thread, padded to whole warps."""
    padded = np.zeros((-(-len(bits) // 32) * 32, 1), np.uint32)
    padded[: len(bits), 0] = bits
    return padded


def _by_thread(run_ptx, kind, words, **constants):
    """Results of a kind that each thread computes for itself, over any number of threads."""
    columns = words.reshape(len(words), -1)
    pieces = [run_ptx(kind, columns[i : i + 1024], **constants)[:, 0] for i in range(0, len(words), 1024)]
    return np.concatenate(pieces)


def _floats():
    """Every exponent with all kinds of fraction and sign, halfway cases of the narrow types among them, and NaN."""
    rng = np.random.default_rng(0)
    exponents = np.arange(256, dtype=np.uint32)[:, None] << 23
    fractions = np.array(
        [0, 1, 0x8000, 0x7FFF, 0x8001, 0x18000, 0x1000, 0x3000, 0x80000, 0x180000, 0x7FFFFF], np.uint32
    )
    fractions = np.concatenate([np.array(fractions, np.uint32), rng.integers(0, 1 << 23, 21, np.uint32)])
    positive = (exponents | fractions).ravel()
    return np.concatenate([positive, positive | np.uint32(1 << 31)])


def test_powers_of_two_and_their_inverse(run_ptx):
    x = np.linspace(-130, 127, 1024, dtype=np.float32)
    x[0] = -np.inf
    wanted = np.exp2(x.astype(np.float64))
    found = _by_thread(run_ptx, "EXP2", _bits(x)).view(np.float32)
    assert found[0] == 0
    normal = wanted > 2.0**-126
    assert np.allclose(found[normal], wanted[normal], rtol=3e-7, atol=0)
    found = _by_thread(run_ptx, "LOG2", _bits(wanted[normal]))[: normal.sum()].view(np.float32)
    assert np.allclose(found, x[normal], rtol=3e-7, atol=2e-7)
    found = _by_thread(run_ptx, "RECIPROCAL", _bits(x)).view(np.float32)
    assert np.allclose(found, 1 / x.astype(np.float64), rtol=2e-7, atol=0)


def test_conversions_round_to_the_nearest_even(run_ptx):
    bits = _floats()
    x = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        half, bfloat = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    number = ~np.isnan(x)
    for kind, wanted in (("TO_HALF", half), ("TO_BFLOAT16", bfloat)):
        found = _by_thread(run_ptx, kind, bits)
        assert (found[number] == wanted.view(np.uint16)[number]).all()
        assert np.isnan(found.astype(np.uint16)[~number].view(wanted.dtype)).all()
    every = np.arange(1 << 16, dtype=np.uint32)
    found = _by_thread(run_ptx, "HALF_TO_FLOAT", every).view(np.float32)
    np.testing.assert_array_equal(found, every.astype(np.uint16).view(np.float16).astype(np.float32))


def test_pairs_have_their_first_value_in_the_lower_half(run_ptx):
    pair = np.array([[1.5, -2.0]] * 32, np.float32)
    for kind, dtype in (("HALF2", np.float16), ("BFLOAT162", ml_dtypes.bfloat16)):
        low, high = (int(np.array(x, dtype).view(np.uint16)) for x in (1.5, -2.0))
        assert (run_ptx(kind, _bits(pair))[:, 0] == (low | high << 16)).all()


@pytest.mark.parametrize(("kind", "operation"), [("MULTIPLY", np.multiply), ("SUBTRACT", np.subtract)])
def test_arithmetic_of_pairs(run_ptx, kind, operation):
    values = np.random.default_rng(1).integers(0, 0x7BFF, (1024, 2, 2)).astype(np.uint16)
    values[::2, 0] |= 0x8000
    a, b = (np.ascontiguousarray(values[:, i]).view(np.float16).astype(np.float64) for i in (0, 1))
    with np.errstate(over="ignore"):
        wanted = operation(a, b).astype(np.float16)
    found = _by_thread(run_ptx, kind, values.reshape(1024, 4).view(np.uint32))
    assert (found.view(np.float16).reshape(1024, 2) == wanted).all()


def test_bytes_change_places(run_ptx):
    words = np.array([[0x33221100, 0xF7665544, selector] for selector in (0x3210, 0x7654, 0x1404, 0x0F73, 0x8888)] * 8)
    wanted = [0x33221100, 0xF7665544, 0x11440044, 0x00FFF733, 0x00000000] * 8
    assert run_ptx("PERMUTE", words[:32])[:, 0].tolist() == wanted[:32]


def test_int8_is_held_and_rounds_to_even(run_ptx):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.4, 127.5, 128, 1e9, -128.5, -129, -np.inf, np.inf, np.nan, 3.49, -0.0])
    wanted = [0, 2, 2, 0, -2, 127, 127, 127, 127, -128, -128, -128, 127, 0, 3, 0]
    assert run_ptx("TO_INT8", _column(_bits(x)))[: len(x), 0].view(np.int32).tolist() == wanted


@pytest.mark.parametrize("by_shifts", [False, True])
def test_e4m3_to_float16_is_exact(run_ptx, by_shifts):
    every = np.arange(1 << 16, dtype=np.uint32)
    constants = {"E4M3_BY_SHIFTS": 1} if by_shifts else {}
    found = _by_thread(run_ptx, "FROM_E4M3", every, **constants).view(np.float16).astype(np.float32).reshape(-1, 2)
    wanted = every.astype(np.uint16).view(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32).reshape(-1, 2)
    if by_shifts:
        missing = np.isnan(wanted)
        assert (found[missing] == np.where(every[:, None] >> (0, 8) & 0x80, -480, 480)[missing]).all()
        wanted[missing] = found[missing]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("by_shifts", [False, True])
def test_float_to_e4m3_rounds_to_even_and_stays_finite(run_ptx, by_shifts):
    bits = _floats()
    steps = np.arange(0, 1 << 13, dtype=np.float32) * 2.0**-12  # every value below 2 and what lies halfway
    bits = np.concatenate([bits, _bits(steps), _bits(-steps)])
    x = bits.view(np.float32)
    found = _by_thread(run_ptx, "TO_E4M3", bits, **({"E4M3_BY_SHIFTS": 1} if by_shifts else {})).astype(np.uint8)
    number = ~np.isnan(x)
    wanted = np.clip(np.where(number, x, 0), -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (found[number] == wanted[number]).all()
    assert (found[~number] == 0x7F).all()
