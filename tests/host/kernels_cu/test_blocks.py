"""copy_blocks, swap_blocks and fill_blocks on the CPU: every byte of the memory is compared."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, launch, reference_blocks
from kernels_cu.blocks import Blocks, check_pairs, runs_of


def _memory(rng, planes, blocks, block_bytes):
    return rng.integers(0, 256, (planes, blocks, block_bytes)).astype(np.uint8)


def _blocks(memory, used=None):
    planes, _, size = memory.shape
    return Blocks(memory.ctypes.data, used or size, memory.strides[1], planes, memory.strides[0])


def _pairs(*rows):
    return np.array(rows, np.int64).reshape(-1, 2)


@pytest.mark.parametrize("block_bytes", [16, 4096, 16384, 16400, 40000])
def test_pairs_are_copied_in_every_plane_and_nothing_else_changes(target, block_bytes):
    rng = np.random.default_rng(block_bytes)
    memory = _memory(rng, 3, 11, block_bytes)
    wanted = memory.copy()
    pairs = _pairs((0, 5), (1, 6), (0, 7), (10, 2), (-1, 3), (4, -1))
    reference_blocks.copy_blocks(wanted, wanted, pairs)
    launch.copy_blocks(target, _blocks(memory), _blocks(memory), pairs)
    assert (memory == wanted).all()
    assert (memory[:, 5] == memory[:, 0]).all()


def test_one_thread_block_does_the_same_as_many_in_any_schedule(cases, target):  # noqa: ARG001
    rng = np.random.default_rng(1)
    memory = _memory(rng, 2, 6, 50000)
    results = set()
    for thread_blocks, run in [
        (1, HostRun("descending")),
        (3, HostRun("interleaved", "shuffled", 2)),
        (500, HostRun()),
    ]:
        mine = memory.copy()
        launch.copy_blocks(
            HostTarget(run), _blocks(mine), _blocks(mine), _pairs((0, 3), (1, 4)), thread_blocks=thread_blocks
        )
        results.add(mine.tobytes())
    reference_blocks.copy_blocks(memory, memory, _pairs((0, 3), (1, 4)))
    assert results == {memory.tobytes()}


def test_between_two_pools_with_other_strides(target):
    rng = np.random.default_rng(2)
    pool, host = _memory(rng, 4, 6, 96), _memory(rng, 4, 9, 64)
    wanted = host.copy()
    pairs = _pairs((5, 0), (0, 5), (2, 8))  # ids of the two pools have nothing to do with each other
    reference_blocks.copy_blocks(pool[:, :, :64], wanted, pairs)
    launch.swap_blocks(target, _blocks(pool, 64), _blocks(host), pairs)
    assert (host == wanted).all()
    back, before = pool.copy(), pool.copy()
    launch.swap_blocks(target, _blocks(host), _blocks(back, 64), pairs[:, ::-1].copy())
    assert (back == before).all()


def test_swap_runs_copies_the_same_on_the_cpu(target):
    rng = np.random.default_rng(5)
    pool, host = _memory(rng, 4, 6, 96), _memory(rng, 4, 9, 64)
    wanted = host.copy()
    pairs = _pairs((5, 0), (0, 5), (1, 6), (-1, 3))
    reference_blocks.copy_blocks(pool[:, :, :64], wanted, pairs)
    launch.swap_runs(target, _blocks(pool, 64), _blocks(host), pairs)
    assert (host == wanted).all()


class _CopyEngine:
    """CuPy's runtime as far as it copies: what it is asked for, and the bytes moved."""

    def __init__(self):
        self.calls = 0

    def memcpyAsync(self, to, start, size, kind, stream):  # noqa: N802 - CuPy's name
        assert (kind, stream) == (4, 7)
        self.calls += 1
        ctypes.memmove(to, start, size)

    def memcpy2DAsync(self, to, to_pitch, start, pitch, width, height, kind, stream):  # noqa: N802 - CuPy's name
        assert (kind, stream) == (4, 7)
        self.calls += 1
        for row in range(height):
            ctypes.memmove(to + row * to_pitch, start + row * pitch, width)


class _GpuTarget(HostTarget):
    arch = "sm_90"


@pytest.mark.parametrize("used", [64, 96])
def test_swap_runs_is_one_copy_a_run_and_plane_on_a_gpu(monkeypatch, used):
    rng = np.random.default_rng(6)
    pool, host = _memory(rng, 4, 9, 96), _memory(rng, 4, 9, used)
    wanted, engine = host.copy(), _CopyEngine()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=engine)))
    pairs = _pairs((2, 0), (3, 1), (4, 2), (8, 7), (-1, 3))
    reference_blocks.copy_blocks(pool[:, :, :used], wanted, pairs)
    launch.swap_runs(_GpuTarget(), _blocks(pool, used), _blocks(host), pairs, stream=7)
    assert (host == wanted).all()
    assert engine.calls == 2 * 4


def test_swap_runs_of_what_overlaps_or_differs_is_refused(never):
    one = Blocks(0, 64, 64)
    with pytest.raises(LaunchError, match="blocks of 64 bytes that lie 32 apart overlap"):
        launch.swap_runs(never, one, Blocks(1 << 20, 64, 32), _pairs((0, 1)))
    with pytest.raises(LaunchError, match="same shape on both sides"):
        launch.swap_runs(never, one, Blocks(1 << 20, 32, 32), _pairs((0, 1)))
    launch.swap_runs(never, one, Blocks(1 << 20, 64, 64), _pairs())


def test_staged_pairs_are_simultaneous(target):
    rng = np.random.default_rng(3)
    memory, stage = _memory(rng, 2, 5, 2000 * 16), _memory(rng, 2, 4, 2000 * 16)
    wanted = memory.copy()
    pairs = _pairs((1, 2), (-1, 4), (2, 0), (0, 1))
    reference_blocks.copy_blocks(wanted, wanted, pairs)
    launch.copy_blocks(target, _blocks(memory), _blocks(memory), pairs, staging=_blocks(stage))
    assert (memory == wanted).all()
    with pytest.raises(LaunchError, match="block 0 is a source and a destination, and pairs have no order; pass sta"):
        launch.copy_blocks(target, _blocks(memory), _blocks(memory), pairs)


@pytest.mark.parametrize("pattern", [0xFFFFFFFF, 0x12345678])
def test_fill_writes_the_pattern_to_its_blocks_alone(target, pattern):
    memory = _memory(np.random.default_rng(4), 3, 7, 20000)
    wanted = memory.copy()
    ids = np.array([6, -1, 0, 3, 3], np.int64)
    reference_blocks.fill_blocks(wanted, ids, pattern)
    launch.fill_blocks(target, _blocks(memory), ids, pattern=pattern)
    assert (memory == wanted).all()


def test_poison_is_nan_in_every_type(target, cases):
    import ml_dtypes

    memory = np.zeros((1, 2, 32), np.uint8)
    launch.fill_blocks(target, _blocks(memory), np.array([1]))
    for dtype in (*cases.DTYPES.values(), ml_dtypes.float8_e4m3fn):
        assert np.isnan(memory[0, 1].view(dtype).astype(np.float32)).all()
    assert (memory[0, 0] == 0).all()


def test_nothing_to_do_launches_nothing(never):
    memory = np.zeros((1, 2, 32), np.uint8)
    launch.copy_blocks(never, _blocks(memory), _blocks(memory), _pairs())
    launch.fill_blocks(never, _blocks(memory), np.empty(0, np.int64))
    with pytest.raises(AssertionError, match="something was launched"):
        launch.fill_blocks(never, _blocks(memory), np.zeros(1, np.int64))


def test_pairs_without_an_order_are_refused():
    check_pairs(_pairs((0, 1), (0, 2), (-1, 0), (3, -1)))
    with pytest.raises(LaunchError, match="block 2 is the destination of two pairs; keep one of them"):
        check_pairs(_pairs((0, 2), (1, 2)))
    with pytest.raises(LaunchError, match="block 2 is a source and a destination"):
        check_pairs(_pairs((0, 2), (2, 3)))


def test_runs_join_neighbours_on_both_sides():
    pairs = _pairs((7, 3), (5, 1), (6, 2), (8, 9), (0, 0), (1, 5), (-1, 6), (2, 6))
    assert runs_of(pairs).tolist() == [[0, 0, 1], [1, 5, 2], [5, 1, 3], [8, 9, 1]]
    assert runs_of(_pairs()).shape == (0, 3)


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_same_pairs(seed):
    rng = np.random.default_rng(seed)
    pairs = np.stack([rng.permutation(30), np.sort(rng.permutation(40)[:30])], axis=1)[: rng.integers(0, 31)]
    found = [(source + i, destination + i) for source, destination, n in runs_of(pairs) for i in range(n)]
    assert found == sorted(map(tuple, pairs.tolist()))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"address": 8}, "address must be a multiple of 16 bytes, not 8"),
        ({"block_bytes": 24}, "block_bytes must be a multiple of 16 bytes, not 24"),
        ({"plane_stride": 100}, "plane_stride must be a multiple of 16 bytes, not 100"),
        ({"address": -16}, "address must be at least 0, not -16"),
        ({"address": 16.0}, "address must be a whole number, not 16.0"),
        ({"planes": 1 << 31}, "planes must be at most 2147483647, not 2147483648"),
        ({"blocks": -1}, "blocks must be at least 0, not -1"),
        ({"block_bytes": 0}, "at least 16 bytes and one plane, not 0 bytes and 1 planes"),
    ],
)
def test_blocks_that_cannot_be_copied_are_refused(wrong, text):
    with pytest.raises(LaunchError, match=text):
        Blocks(**{"address": 0, "block_bytes": 32, "block_stride": 32, **wrong})


def test_wrong_arguments_are_one_line_errors():
    small, large = Blocks(16, 32, 32), Blocks(16, 64, 64, 2)
    with pytest.raises(LaunchError, match="same shape on both sides, not 32 bytes in 1 planes and 64 bytes in 2 plan"):
        launch.copy_blocks(HostTarget(), small, large, _pairs((0, 1)))
    with pytest.raises(LaunchError, match=r"pairs must have shape \[any, 2\], not \[3\]"):
        launch.copy_blocks(HostTarget(), small, small, np.zeros(3, np.int64))
    with pytest.raises(LaunchError, match="ids must be int64, not int32"):
        launch.fill_blocks(HostTarget(), small, np.zeros(3, np.int32))
