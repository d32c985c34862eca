"""CUDA's everyday functions on the CPU: what NumPy computes, and what the CUDA manual says of bits and atomics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from kernels_cu import CompilerMissingError, HostRun, HostTarget, KernelError
from kernels_cu.checked_launch import launch_checked
from kernels_cu.host_run import SCHEDULES
from kernels_cu.nvrtc import compile_cubin
from kernels_cu.source import gpu_source

KERNEL = Path(__file__).with_name("everyday.cu")
KINDS = ["FLOATS", "DOUBLES", "WORDS", "CONVERSIONS", "ATOMICS", "WARPS"]
THREADS = 64
RNG = np.random.default_rng(7)


def _run(kind, given, out=None, blocks=1, host_run=None):
    """One kind on int32 [threads, 2]; what it wrote, int32 [threads, 64]."""
    out = np.zeros((len(given), 64), np.int32) if out is None else out
    arguments = (np.uint64(out.ctypes.data), np.uint64(given.ctypes.data), np.int32(KINDS.index(kind)))
    block = (len(given) // blocks, 1, 1)
    launch_checked(HostTarget(host_run), KERNEL, {}, (blocks, 1, 1), block, arguments, stream=0, keepalive=out)
    return out


def _pairs(x):
    given = np.zeros((len(x), 2), np.int32)
    given[:, 0] = x.view(np.int32)
    return given


def _each(function, x):
    return np.array([function(v) for v in x.tolist()])


@pytest.mark.usefixtures("target")
def test_single_precision_is_numpys_double_rounded():
    x = RNG.uniform(0.01, 7, THREADS).astype(np.float32)
    d = x.astype(np.float64)
    expected = [
        *(np.exp(d), np.exp2(d), 10**d, np.expm1(d), np.log(d), np.log2(d), np.log10(d), np.log1p(d)),
        *(np.sin(d), np.cos(d), np.tan(d), np.tanh(d), _each(math.erf, d), _each(math.erfc, d), np.sqrt(d), np.cbrt(d)),
        *(np.sqrt(d), np.exp(d), np.log(d), d, np.exp(d), np.log(d), np.sin(d), np.cos(d)),
        *(d**1.5, d**1.5, np.hypot(d, 2), np.arctan2(d, 2), np.fmod(d, float(np.float32(0.3))), d**-0.5, d / 3, 1 / d),
        *(np.arcsin(d / 8), np.arccos(d / 8), np.arctan(d), np.sinh(d), np.floor(d), np.ceil(d), np.trunc(-d)),
        *(np.floor(d + 0.5), np.rint(d), -d, np.clip(d, 0, 1), d * d + 1),
    ]
    found = _run("FLOATS", _pairs(x)).view(np.float32)[:, : len(expected)]
    # Absolute near 0, where sin, cos, tan and log cross it.
    error = np.abs(found - np.array(expected).T) / np.maximum(np.abs(np.array(expected).T), 1)
    assert error.max() < 4 * np.finfo(np.float32).eps
    assert (np.abs(found).max(axis=0) > 0).all()


@pytest.mark.usefixtures("target")
def test_without_an_f_a_function_of_a_double_is_one_in_double_precision():
    x = RNG.uniform(0.01, 3, THREADS)
    expected = [
        *(np.sqrt(x), np.exp(x), np.log(x), np.sin(x), np.cos(x), np.tanh(x), _each(math.erf, x), x**1.5, x * x + 1),
        *(x, np.floor(x), x**-0.5, np.maximum(x, 1), np.minimum(x, 1)),
    ]
    found = _run("DOUBLES", x.view(np.int32).reshape(-1, 2)).view(np.float64)[:, : len(expected)]
    assert np.abs(found - np.array(expected).T).max() < 8 * np.finfo(np.float64).eps * np.abs(expected).max()


WORDS = [0, 1, 2, 3, 0x80, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF]


def _signed(x):
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)


def _lowest(x):
    return (x & -x).bit_length()


@pytest.mark.usefixtures("target")
def test_bits():
    pairs = [(x, y) for x in WORDS for y in (0, 5, 0x87654321, 0xFFFF0000)]
    found = _run("WORDS", np.array(pairs, np.uint32).view(np.int32))
    for (x, y), row in zip(pairs, found, strict=True):
        both = y << 32 | x
        taken = [(both >> 8 * digit & 0xFF) for digit in (0, 6, 5, 2)]  # selector 0x2560, its lowest digit first
        expected = [
            *(x.bit_count(), 32 - x.bit_length(), _lowest(x), int(f"{x:032b}"[::-1], 2)),
            *(_signed(x) * _signed(y) >> 32, x * y >> 32, int.from_bytes(bytes(taken), "little")),
            *(both << 5 >> 32, both >> 5, x, x),
            *(both.bit_count(), 64 - both.bit_length(), _lowest(both)),
            *(min(_signed(x), _signed(y)), max(_signed(x), _signed(y)), max(x, y), abs(_signed(y | 1))),
        ]
        assert [int(v) for v in row[:18]] == [_signed(v) for v in expected], (hex(x), hex(y))
        assert row[18:22].tolist() == [row[0], 32, _signed(x), 250 + 2 + 1 - 4]


@pytest.mark.usefixtures("target")
def test_floats_to_ints_and_what_a_float_is():
    x = np.array([0.5, 1.5, -1.5, -0.0, 2.5, 1e10, -1e10, np.nan, np.inf, -np.inf, -2147483648.0], np.float32)
    found = _run("CONVERSIONS", _pairs(x))
    with np.errstate(invalid="ignore"):
        wide = np.clip(np.nan_to_num(x.astype(np.float64), posinf=1e30, neginf=-1e30), -(2.0**31), 2.0**31 - 1)
    for i, rounded in enumerate((np.trunc, np.rint, np.floor, np.ceil)):
        assert found[:, i].tolist() == rounded(wide).tolist()
    kinds = [np.isnan(x), np.isinf(x), np.isfinite(x), np.signbit(x)]
    assert (found[:, 4:8] == np.array(kinds).T)[~np.isnan(x)].all()
    assert found[7, 4:7].tolist() == [1, 0, 0]
    assert (found[:, 8].view(np.float32) == 16777216).all()
    assert found[:, 9].tolist() == [1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4]


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.usefixtures("target")
def test_atomics_of_many_threads(observed):
    x = RNG.integers(-(1 << 30), 1 << 30, 64 * 300).astype(np.int32)
    out = np.zeros((len(x), 64), np.int32)
    first = out[0]
    first[4], first[8] = -1, -1
    out[0, 19:20].view(np.float32)[:] = 2
    _run("ATOMICS", _pairs(x), out, blocks=300, host_run=HostRun(threads=4, race_check=observed))
    total, unsigned = int(x.astype(np.int64).sum()), x.view(np.uint32)
    assert first[:4].tolist() == [_signed(total), _signed(-total), max(x.max(), 0), min(x.min(), 0)]
    assert first[4:7].tolist() == [np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    assert first[7:9].view(np.uint32).tolist() == [unsigned.max(), unsigned.min()]
    assert first[9:11].tolist() == [len(x) % 11, -len(x) % 11]
    assert first[11:12].view(np.float32)[0] == len(x) / 2
    assert first[12:16].view(np.int64).tolist() == [len(x) << 31, int(x.max()) << 32]
    assert first[16:18].view(np.float64)[0] == len(x) / 4
    assert (first[18], first[21]) == (1, 7)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.usefixtures("target")
def test_reductions_of_a_warp_and_of_its_halves(schedule):
    x = RNG.integers(-(1 << 31), 1 << 31, THREADS).astype(np.int32)
    found = _run("WARPS", _pairs(x), host_run=HostRun(schedule))
    for warp in (slice(0, 32), slice(32, 64)):
        lanes, unsigned = x[warp], x[warp].view(np.uint32)
        both = (np.bitwise_and.reduce(lanes), np.bitwise_or.reduce(lanes), np.bitwise_xor.reduce(lanes))
        expected = [_signed(int(lanes.astype(np.int64).sum())), lanes.min(), lanes.max(), *both]
        assert (found[warp, :6] == expected).all()
        assert (found[warp, 6:8].view(np.uint32) == [unsigned.max(), unsigned.min()]).all()
    for half in range(4):
        lanes = slice(16 * half, 16 * half + 16)
        total = int(x[lanes].astype(np.int64).sum())
        assert (found[lanes, 8:11] == [_signed(total + 16 * i) for i in range(3)]).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_gpus_compiler_knows_them_all(arch):
    try:
        assert compile_cubin("everyday", gpu_source(KERNEL), (), arch).cubin
    except CompilerMissingError as error:
        pytest.skip(str(error))


SPEAKS = r"""
extern "C" __global__ void speaks(int kind) {
    if (threadIdx.x == 2) printf("thread %u of %d: %.2f %s\n", threadIdx.x, warpSize, 0.5f, "half");
    if (kind == 1) __trap();
    assert(kind !=
           2);
    if (kind == 3 && threadIdx.x == 1) assert(kind == 4);
}
"""


def _speak(tmp_path, kind):
    source = tmp_path / "speaks.cu"
    source.write_text(SPEAKS)
    launch_checked(HostTarget(), source, {}, (1, 1, 1), (3, 1, 1), (np.int32(kind),), stream=0, keepalive=None)


@pytest.mark.usefixtures("target")
def test_a_kernel_prints(tmp_path, capfd):
    _speak(tmp_path, 0)
    assert capfd.readouterr().out == "thread 2 of 32: 0.50 half\n"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (1, r"ends the kernel by __trap\(\)"),
        (2, r"speaks, block \(0, 0, 0\): an assert fails in line [56] of the source"),
        (3, r"an assert fails in line 7 of the source; a GPU stops with CUDA_ERROR_ASSERT \(710\)"),
    ],
)
@pytest.mark.usefixtures("target")
def test_a_trap_and_a_failed_assert_are_errors(tmp_path, kind, text):
    with pytest.raises(KernelError, match=text):
        _speak(tmp_path, kind)
