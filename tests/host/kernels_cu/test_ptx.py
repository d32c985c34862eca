"""Every instruction of ptx.cuh on a CPU against a plain model of what the PTX documentation says of it."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernels_cu import CompilerMissingError, HostRun, HostTarget, KernelError, nvrtc
from kernels_cu.checked_launch import launch_checked
from kernels_cu.host_run import COPIES, SCHEDULES
from kernels_cu.nvrtc import compile_cubin
from kernels_cu.source import PACKAGE, gpu_source

KERNEL = Path(__file__).with_name("ptx.cu")
KINDS = re.findall(r"\w+", re.search(r"enum \{(.*?)\}", KERNEL.read_text(), re.DOTALL)[1])
LANES = np.arange(32)
MATRIX_TYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16}


@pytest.fixture
def run(target):  # noqa: ARG001 - skips without a compiler
    """Launch the kernel in one of its kinds on words [threads, 32]; what each thread wrote, in the same shape."""

    def launch(kind, words, host_run=None, **constants):
        given = np.zeros((len(words), 32), np.uint32)
        given[:, : words.shape[1]] = words
        out = np.full_like(given, 0xEEEEEEEE)
        launch_checked(
            HostTarget(host_run),
            KERNEL,
            constants,
            (1, 1, 1),
            (len(given), 1, 1),
            (np.uint64(out.ctypes.data), np.uint64(given.ctypes.data), np.int32(KINDS.index(kind))),
            stream=0,
            keepalive=(out, given),
            shared_bytes=48 * len(given),
        )
        return out

    return launch


def _bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


def _column(bits):
    """One word a thread, padded to whole warps."""
    padded = np.zeros((-(-len(bits) // 32) * 32, 1), np.uint32)
    padded[: len(bits), 0] = bits
    return padded


def _by_thread(run, kind, words, **constants):
    """Results of a kind that each thread computes for itself, over any number of threads."""
    columns = words.reshape(len(words), -1)
    pieces = [run(kind, columns[i : i + 1024], **constants)[:, 0] for i in range(0, len(words), 1024)]
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


def test_powers_of_two_and_their_inverse(run):
    x = np.linspace(-130, 127, 1024, dtype=np.float32)
    x[0] = -np.inf
    wanted = np.exp2(x.astype(np.float64))
    found = _by_thread(run, "EXP2", _bits(x)).view(np.float32)
    assert found[0] == 0
    normal = wanted > 2.0**-126
    assert np.allclose(found[normal], wanted[normal], rtol=3e-7, atol=0)
    found = _by_thread(run, "LOG2", _bits(wanted[normal]))[: normal.sum()].view(np.float32)
    assert np.allclose(found, x[normal], rtol=3e-7, atol=2e-7)
    found = _by_thread(run, "RECIPROCAL", _bits(x)).view(np.float32)
    assert np.allclose(found, 1 / x.astype(np.float64), rtol=2e-7, atol=0)


def test_conversions_round_to_the_nearest_even(run):
    bits = _floats()
    x = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        half, bfloat = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    number = ~np.isnan(x)
    for kind, wanted in (("TO_HALF", half), ("TO_BFLOAT16", bfloat)):
        found = _by_thread(run, kind, bits)
        assert (found[number] == wanted.view(np.uint16)[number]).all()
        assert np.isnan(found.astype(np.uint16)[~number].view(wanted.dtype)).all()
    every = np.arange(1 << 16, dtype=np.uint32)
    found = _by_thread(run, "HALF_TO_FLOAT", every).view(np.float32)
    np.testing.assert_array_equal(found, every.astype(np.uint16).view(np.float16).astype(np.float32))


def test_pairs_have_their_first_value_in_the_lower_half(run):
    pair = np.array([[1.5, -2.0]] * 32, np.float32)
    for kind, dtype in (("HALF2", np.float16), ("BFLOAT162", ml_dtypes.bfloat16)):
        low, high = (int(np.array(x, dtype).view(np.uint16)) for x in (1.5, -2.0))
        assert (run(kind, _bits(pair))[:, 0] == (low | high << 16)).all()


@pytest.mark.parametrize(("kind", "operation"), [("MULTIPLY", np.multiply), ("SUBTRACT", np.subtract)])
def test_arithmetic_of_pairs(run, kind, operation):
    values = np.random.default_rng(1).integers(0, 0x7BFF, (1024, 2, 2)).astype(np.uint16)
    values[::2, 0] |= 0x8000
    a, b = (np.ascontiguousarray(values[:, i]).view(np.float16).astype(np.float64) for i in (0, 1))
    with np.errstate(over="ignore"):
        wanted = operation(a, b).astype(np.float16)
    found = _by_thread(run, kind, values.reshape(1024, 4).view(np.uint32))
    assert (found.view(np.float16).reshape(1024, 2) == wanted).all()


def test_bytes_change_places(run):
    words = np.array([[0x33221100, 0xF7665544, selector] for selector in (0x3210, 0x7654, 0x1404, 0x0F73, 0x8888)] * 8)
    wanted = [0x33221100, 0xF7665544, 0x11440044, 0x00FFF733, 0x00000000] * 8
    assert run("PERMUTE", words[:32])[:, 0].tolist() == wanted[:32]


def test_int8_is_held_and_rounds_to_even(run):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.4, 127.5, 128, 1e9, -128.5, -129, -np.inf, np.inf, np.nan, 3.49, -0.0])
    wanted = [0, 2, 2, 0, -2, 127, 127, 127, 127, -128, -128, -128, 127, 0, 3, 0]
    assert run("TO_INT8", _column(_bits(x)))[: len(x), 0].view(np.int32).tolist() == wanted


@pytest.mark.parametrize("by_shifts", [False, True])
def test_e4m3_to_float16_is_exact(run, by_shifts):
    every = np.arange(1 << 16, dtype=np.uint32)
    constants = {"E4M3_BY_SHIFTS": 1} if by_shifts else {}
    found = _by_thread(run, "FROM_E4M3", every, **constants).view(np.float16).astype(np.float32).reshape(-1, 2)
    wanted = every.astype(np.uint16).view(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32).reshape(-1, 2)
    if by_shifts:
        missing = np.isnan(wanted)
        assert (found[missing] == np.where(every[:, None] >> (0, 8) & 0x80, -480, 480)[missing]).all()
        wanted[missing] = found[missing]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("by_shifts", [False, True])
def test_float_to_e4m3_rounds_to_even_and_stays_finite(run, by_shifts):
    bits = _floats()
    steps = np.arange(0, 1 << 13, dtype=np.float32) * 2.0**-12  # every value below 2 and what lies halfway
    bits = np.concatenate([bits, _bits(steps), _bits(-steps)])
    x = bits.view(np.float32)
    found = _by_thread(run, "TO_E4M3", bits, **({"E4M3_BY_SHIFTS": 1} if by_shifts else {})).astype(np.uint8)
    number = ~np.isnan(x)
    wanted = np.clip(np.where(number, x, 0), -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (found[number] == wanted[number]).all()
    assert (found[~number] == 0x7F).all()


@pytest.mark.parametrize("copies", COPIES)
def test_copies_end_in_zeros(run, copies):
    words = np.random.default_rng(2).integers(1, 1 << 32, (32, 32), np.uint32)
    words[:, 28], words[:, 29], words[:, 30] = LANES % 17, LANES % 9, LANES % 5
    found = run("COPY", words, HostRun(copies=copies))[:, :7].copy().view(np.uint8)
    wanted = words[:, :7].copy().view(np.uint8)
    for begin, size in ((0, 16), (16, 8), (24, 4)):
        column = np.arange(size)
        wanted[:, begin : begin + size][column >= (LANES % (size + 1))[:, None]] = 0
    assert (found == wanted).all()


@pytest.mark.parametrize("copies", COPIES)
def test_a_ring_that_waits_for_each_stage(run, copies):
    words = np.random.default_rng(3).integers(0, 1 << 32, (64, 32), np.uint32)
    assert (run("RING", words, HostRun(copies=copies)) == words).all()


def test_lazy_copies_show_a_wait_that_ends_too_early(run):
    words = np.random.default_rng(4).integers(0, 1 << 31, (64, 32), np.uint32)
    assert (run("LATE_WAIT", words, HostRun(copies="eager")) == words).all()
    assert (run("LATE_WAIT", words)[:, :4] == 0xFFFFFFFF).all()  # what shared memory holds before anybody wrote to it


def _fragments(matrix, first):
    """The pairs (rows by columns, each 8 x 8 quarter by itself) that each lane holds, from column ``first`` on."""
    row, column = LANES // 4, LANES % 4 * 2 + first
    bits = matrix.view(np.uint16).astype(np.uint32)
    return bits[row, column] | bits[row, column + 1] << 16


def _rows(rng):
    """32 rows of 16 bytes in shared memory, and the order in which lanes name them."""
    memory = rng.integers(0, 1 << 16, (32, 8)).astype(np.uint16)
    return memory, rng.permutation(32)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ldmatrix(run, matrices, transposed, schedule):
    memory, order = _rows(np.random.default_rng(5))
    words = np.zeros((32, 11), np.uint32)
    words[:, :4] = memory.view(np.uint32)
    words[:, 10] = order
    found = run(f"LDMATRIX_X{matrices}{'_TRANS' * transposed}", words, HostRun(schedule))
    for m in range(4):
        matrix = memory[order[8 * m : 8 * m + 8]]
        wanted = _fragments(np.ascontiguousarray(matrix.T) if transposed else matrix, 0)
        assert (found[:, m] == (wanted if m < matrices else 0)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_movmatrix(run, schedule):
    matrix = np.random.default_rng(6).integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    found = run("MOVMATRIX", _fragments(matrix, 0)[:, None], HostRun(schedule))
    assert (found[:, 0] == _fragments(np.ascontiguousarray(matrix.T), 0)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", MATRIX_TYPES)
@pytest.mark.parametrize("k", [8, 16])
def test_mma(run, k, dtype, schedule):
    """Small whole numbers, so that every order of addition gives the same sum."""
    rng = np.random.default_rng(7)
    words, wanted = [], []
    for _ in range(3):  # warps
        a, b, d = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((16, k), (k, 8), (16, 8)))
        wanted.append(a @ b + d)
        words.append(_operands(a.astype(MATRIX_TYPES[dtype]), b.astype(MATRIX_TYPES[dtype]), d))
    found = run(f"MMA_K{k}_{dtype}", np.concatenate(words), HostRun(schedule))[:, :4].copy().view(np.float32)
    for warp, product in enumerate(wanted):
        row, column = LANES // 4, LANES % 4 * 2
        mine = found[32 * warp : 32 * warp + 32]
        for i, (down, right) in enumerate(((0, 0), (0, 1), (8, 0), (8, 1))):
            assert (mine[:, i] == product[row + down, column + right]).all()


def _operands(a, b, d):
    """The registers of a warp, as the documentation of mma.m16n8k16 and m16n8k8 draws them."""
    words = np.zeros((32, 10), np.uint32)
    for first in range(0, a.shape[1], 8):
        words[:, first // 4] = _fragments(a[:8], first)
        words[:, first // 4 + 1] = _fragments(a[8:], first)
        words[:, 4 + first // 8] = _fragments(np.ascontiguousarray(b.T), first)
    row, column = LANES // 4, LANES % 4 * 2
    for i, (down, right) in enumerate(((0, 0), (0, 1), (8, 0), (8, 1))):
        words[:, 6 + i] = _bits(d[row + down, column + right])
    return words


def test_products_of_float16_are_exact_and_sums_are_float32(run):
    """2048 * 2048 has no float16, and 1 beside it is lost if the sum is not float32."""
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)
    a[:, 0], b[0], a[:, 1], b[1] = 2048, 2048, 1, 1
    found = run("MMA_K16_F16", _operands(a, b, np.zeros((16, 8), np.float32)))[:, :4].copy().view(np.float32)
    assert (found == 2048 * 2048 + 1).all()


def test_votes(run):
    for votes in (np.zeros(32, int), np.ones(32, int), LANES % 3, LANES * 8):
        found = run("VOTES", votes[:, None])
        ballot = sum(1 << lane for lane in range(32) if votes[lane])
        assert (found[:, 0] == ballot).all()
        assert (found[:, 1] == votes.any()).all()
        assert (found[:, 2] == votes.all()).all()
        assert (found[16:, 3] == ballot >> 16 << 16).all()


def test_loads_and_stores_with_a_hint(run):
    words = np.arange(128, dtype=np.uint32).reshape(32, 4)
    assert (run("LOAD_ONCE", words)[:, :4] == words).all()


def test_lanes_that_meet_in_different_operations_are_an_error(run):
    with pytest.raises(KernelError, match="lanes of one warp wait in different barriers, shuffles or"):
        run("MIXED", np.zeros((32, 1), np.uint32))


def test_an_address_that_no_copy_may_have_is_an_error(run):
    with pytest.raises(KernelError, match=r"an asynchronous copy .* begins at 0x[0-9a-f]+4, which is not a multiple"):
        run("MISALIGNED", np.zeros((32, 32), np.uint32))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("COPY_ELSEWHERE", "an asynchronous copy goes to .* which is not shared memory"),
        ("ROW_ELSEWHERE", "a row of a matrix lies there, which is not shared memory"),
        ("ROW_MISALIGNED", "a row of a matrix begins at 0x[0-9a-f]+4, which is not a multiple of its size"),
    ],
)
def test_addresses_that_the_hardware_would_not_take_are_errors(run, kind, text):
    with pytest.raises(KernelError, match=text):
        run(kind, np.zeros((32, 32), np.uint32))


def test_shared_memory_ends_where_the_launch_said(run):
    last = np.full((32, 1), 48 * 32 - 1, np.uint32)
    run("PAST_THE_END", last)
    with pytest.raises(
        KernelError, match=r"ptx, .*touches byte 1536 of dynamic shared memory, of which the launch gave 1536"
    ):
        run("PAST_THE_END", last + 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_assembles_every_instruction(arch):
    try:
        nvrtc.nvrtc_version()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    assert len(compile_cubin("ptx", gpu_source(KERNEL), (), arch).cubin) > 1000


def test_only_the_header_speaks_ptx():
    sources = [path for path in PACKAGE.glob("*.cu*") if "asm" in path.read_text()]
    assert [path.name for path in sources] == ["ptx.cuh"]
