"""A launch that a GPU refuses is refused on the CPU too, before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostTarget, LaunchError
from kernels_cu.checked_launch import launch_checked
from kernels_cu.launch_shape import check_shape

KERNEL = Path(__file__).with_name("mixed.cu")
GRID_MOST = "at most 2147483647, 65535 and 65535"
BLOCK_MOST = "at most 1024, 1024 and 64"


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((1, 1, 1), (1, 1, 1)),
        (((1 << 31) - 1, 65_535, 65_535), (1024, 1, 1)),
        ((1, 1, 1), (1, 1024, 1)),
        ((1, 1, 1), (16, 1, 64)),
        ((0, 1, 1), (32, 1, 1)),
    ],
)
def test_what_a_gpu_takes(grid, block):
    check_shape("k", "sm_90", grid, block, 0)


@pytest.mark.parametrize(
    "grid",
    [(1, 1), (1,), (1 << 31, 1, 1), (1, 65_536, 1), (1, 1, 65_536), (-1, 1, 1), (0, -1, 1), (1, 1.0, 1), [1, 1, 1], 1],
)
def test_a_grid_that_a_gpu_refuses(never, grid):
    with pytest.raises(LaunchError) as refused:
        launch_checked(never, KERNEL, {}, grid, (32, 1, 1), (), stream=0, keepalive=None)
    text = f"mixed: grid must be a tuple of three positive ints, (x, y, z), {GRID_MOST}, not {grid!r}"
    assert str(refused.value) == text


@pytest.mark.parametrize("block", [(32,), (0, 1, 1), (1025, 1, 1), (1, 1025, 1), (1, 1, 65), (32, True, 1)])
def test_a_block_that_a_gpu_refuses(never, block):
    with pytest.raises(LaunchError) as refused:
        launch_checked(never, KERNEL, {}, (1, 1, 1), block, (), stream=0, keepalive=None)
    text = f"mixed: block must be a tuple of three positive ints, (x, y, z), {BLOCK_MOST}, not {block!r}"
    assert str(refused.value) == text


@pytest.mark.parametrize(("block", "threads"), [((1024, 2, 1), 2048), ((33, 1, 32), 1056), ((1024, 1024, 64), 1 << 26)])
def test_more_threads_than_a_block_may_have(never, block, threads):
    with pytest.raises(LaunchError, match=rf"has {threads} threads; a GPU takes at most 1024$"):
        launch_checked(never, KERNEL, {}, (1, 1, 1), block, (), stream=0, keepalive=None)


@pytest.mark.parametrize(
    ("arch", "most"), [("sm_80", 163 << 10), ("sm_86", 99 << 10), ("sm_90", 227 << 10), ("host", 227 << 10)]
)
def test_dynamic_shared_memory_up_to_what_the_architecture_has(arch, most):
    check_shape("k", arch, (1, 1, 1), (32, 1, 1), most)
    with pytest.raises(
        LaunchError, match=f"k: shared_bytes is {most + 1}; {arch} has at most {most} for a thread block"
    ):
        check_shape("k", arch, (1, 1, 1), (32, 1, 1), most + 1)


@pytest.mark.parametrize("shared_bytes", [-1, 0.5, True, None])
def test_shared_bytes_are_a_number_of_bytes(never, shared_bytes):
    with pytest.raises(LaunchError, match=f"shared_bytes must be an int of at least 0, not {shared_bytes}"):
        launch_checked(
            never, KERNEL, {}, (1, 1, 1), (32, 1, 1), (), stream=0, keepalive=None, shared_bytes=shared_bytes
        )


@pytest.mark.usefixtures("target")
def test_the_largest_block_runs_with_the_most_shared_memory():
    out = np.zeros(6)
    arguments = (np.uint64(out.ctypes.data), np.int32(-3), np.int64(2), np.float32(1), np.float64(1), np.uint32(1))
    launch_checked(
        HostTarget(), KERNEL, {}, (1, 1, 1), (16, 1, 64), (*arguments, np.uint64(7)),
        stream=0, keepalive=out, shared_bytes=227 << 10,
    )  # fmt: skip
    assert out[5] == 7
