"""Every instruction of ptx.cuh on a CPU against a plain model of what the PTX documentation says of it."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernels_cu import CompilerMissingError, HostRun, KernelError, nvrtc
from kernels_cu.host_run import COPIES, SCHEDULES
from kernels_cu.nvrtc import compile_cubin
from kernels_cu.source import PACKAGE, gpu_source

KERNEL = Path(__file__).with_name("ptx.cu")
LANES = np.arange(32)
MATRIX_TYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16}


def _bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


@pytest.mark.parametrize("copies", COPIES)
def test_copies_end_in_zeros(run_ptx, copies):
    words = np.random.default_rng(2).integers(1, 1 << 32, (32, 32), np.uint32)
    words[:, 28], words[:, 29], words[:, 30] = LANES % 17, LANES % 9, LANES % 5
    found = run_ptx("COPY", words, HostRun(copies=copies))[:, :7].copy().view(np.uint8)
    wanted = words[:, :7].copy().view(np.uint8)
    for begin, size in ((0, 16), (16, 8), (24, 4)):
        column = np.arange(size)
        wanted[:, begin : begin + size][column >= (LANES % (size + 1))[:, None]] = 0
    assert (found == wanted).all()


@pytest.mark.parametrize("copies", COPIES)
def test_a_ring_that_waits_for_each_stage(run_ptx, copies):
    words = np.random.default_rng(3).integers(0, 1 << 32, (64, 32), np.uint32)
    assert (run_ptx("RING", words, HostRun(copies=copies)) == words).all()


def test_lazy_copies_show_a_wait_that_ends_too_early(run_ptx):
    words = np.random.default_rng(4).integers(0, 1 << 31, (64, 32), np.uint32)
    assert (run_ptx("LATE_WAIT", words, HostRun(copies="eager")) == words).all()
    assert (
        run_ptx("LATE_WAIT", words)[:, :4] == 0xFFFFFFFF
    ).all()  # what shared memory holds before anybody wrote to it


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
def test_ldmatrix(run_ptx, matrices, transposed, schedule):
    memory, order = _rows(np.random.default_rng(5))
    words = np.zeros((32, 11), np.uint32)
    words[:, :4] = memory.view(np.uint32)
    words[:, 10] = order
    found = run_ptx(f"LDMATRIX_X{matrices}{'_TRANS' * transposed}", words, HostRun(schedule))
    for m in range(4):
        matrix = memory[order[8 * m : 8 * m + 8]]
        wanted = _fragments(np.ascontiguousarray(matrix.T) if transposed else matrix, 0)
        assert (found[:, m] == (wanted if m < matrices else 0)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_movmatrix(run_ptx, schedule):
    matrix = np.random.default_rng(6).integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    found = run_ptx("MOVMATRIX", _fragments(matrix, 0)[:, None], HostRun(schedule))
    assert (found[:, 0] == _fragments(np.ascontiguousarray(matrix.T), 0)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", MATRIX_TYPES)
@pytest.mark.parametrize("k", [8, 16])
def test_mma(run_ptx, k, dtype, schedule):
    """Small whole numbers, so that every order of addition gives the same sum."""
    rng = np.random.default_rng(7)
    words, wanted = [], []
    for _ in range(3):  # warps
        a, b, d = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((16, k), (k, 8), (16, 8)))
        wanted.append(a @ b + d)
        words.append(_operands(a.astype(MATRIX_TYPES[dtype]), b.astype(MATRIX_TYPES[dtype]), d))
    found = run_ptx(f"MMA_K{k}_{dtype}", np.concatenate(words), HostRun(schedule))[:, :4].copy().view(np.float32)
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


def test_products_of_float16_are_exact_and_sums_are_float32(run_ptx):
    """2048 * 2048 has no float16, and 1 beside it is lost if the sum is not float32."""
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)
    a[:, 0], b[0], a[:, 1], b[1] = 2048, 2048, 1, 1
    found = run_ptx("MMA_K16_F16", _operands(a, b, np.zeros((16, 8), np.float32)))[:, :4].copy().view(np.float32)
    assert (found == 2048 * 2048 + 1).all()


def test_votes(run_ptx):
    for votes in (np.zeros(32, int), np.ones(32, int), LANES % 3, LANES * 8):
        found = run_ptx("VOTES", votes[:, None])
        ballot = sum(1 << lane for lane in range(32) if votes[lane])
        assert (found[:, 0] == ballot).all()
        assert (found[:, 1] == votes.any()).all()
        assert (found[:, 2] == votes.all()).all()
        assert (found[16:, 3] == ballot >> 16 << 16).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_that_have_returned_have_no_vote(run_ptx, schedule):
    everybody = run_ptx("LATE_VOTES", np.ones((32, 1), np.uint32), HostRun(schedule))[:20, :3]
    assert (everybody == [(1 << 20) - 1, 1, 1]).all()
    one_against = run_ptx("LATE_VOTES", (LANES != 7)[:, None], HostRun(schedule))[:20, :3]
    assert (one_against == [(1 << 20) - 1 - (1 << 7), 1, 0]).all()


def test_loads_and_stores_with_a_hint(run_ptx):
    words = np.arange(128, dtype=np.uint32).reshape(32, 4)
    assert (run_ptx("LOAD_ONCE", words)[:, :4] == words).all()


def test_lanes_that_meet_in_different_operations_are_an_error(run_ptx):
    with pytest.raises(KernelError, match="lanes of one warp wait in different barriers, shuffles or"):
        run_ptx("MIXED", np.zeros((32, 1), np.uint32))


def test_an_address_that_no_copy_may_have_is_an_error(run_ptx):
    with pytest.raises(KernelError, match=r"an asynchronous copy .* begins at 0x[0-9a-f]+4, which is not a multiple"):
        run_ptx("MISALIGNED", np.zeros((32, 32), np.uint32))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("COPY_ELSEWHERE", "an asynchronous copy goes to .* which is not shared memory"),
        ("ROW_ELSEWHERE", "a row of a matrix lies there, which is not shared memory"),
        ("ROW_MISALIGNED", "a row of a matrix begins at 0x[0-9a-f]+4, which is not a multiple of its size"),
    ],
)
def test_addresses_that_the_hardware_would_not_take_are_errors(run_ptx, kind, text):
    with pytest.raises(KernelError, match=text):
        run_ptx(kind, np.zeros((32, 32), np.uint32))


def test_shared_memory_ends_where_the_launch_said(run_ptx):
    last = np.full((32, 1), 48 * 32 - 1, np.uint32)
    run_ptx("PAST_THE_END", last)
    with pytest.raises(
        KernelError, match=r"ptx, .*touches byte 1536 of dynamic shared memory, of which the launch gave 1536"
    ):
        run_ptx("PAST_THE_END", last + 1)


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
