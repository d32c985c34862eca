"""The CPU's warp and block functions are exact: every result follows from the function's definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, KernelError, LaunchError
from kernels_cu.checked_launch import launch_checked
from kernels_cu.host_run import ORDERS, SCHEDULES

KERNEL = Path(__file__).with_name("warps.cu")
KINDS = [
    "SHUFFLE",
    "UP",
    "DOWN",
    "XOR",
    "HALVES",
    "PART_ABSENT",
    "SHARED",
    "LATE_RETURN",
    "BLOCK_SUM",
    "DIVERGENT",
    "STACK",
    "STUCK",
    "TICKET",
    "COUNT",
]


def _launch(host_run, kind, n=0, width=32, grid=1, threads=32):
    out = np.full((grid, threads), -2, np.int64)
    launch_checked(
        HostTarget(host_run),
        KERNEL,
        {},
        (grid, 1, 1),
        (threads, 1, 1),
        (np.uint64(out.ctypes.data), np.int32(KINDS.index(kind)), np.int32(n), np.int32(width)),
        stream=0,
        keepalive=out,
    )
    return out


@pytest.fixture(params=SCHEDULES)
def run(request, target):  # noqa: ARG001 - skips without a compiler
    """Launch the kernel in one of its kinds, under each schedule; the result of every thread."""

    def launch(kind, n=0, width=32, grid=1, threads=32, host_threads=1):
        return _launch(HostRun(request.param, threads=host_threads), kind, n, width, grid, threads)

    return launch


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("n", [0, 1, 3, 5, 17, 31])
def test_shuffles(run, n, width):
    lanes = np.arange(32)
    first, last = lanes // width * width, lanes // width * width + width - 1

    def inside(source):
        return np.where((source < first) | (source > last), lanes, source)

    assert (run("SHUFFLE", n, width) == first + n % width).all()
    assert (run("UP", n, width) == inside(lanes - n)).all()
    assert (run("DOWN", n, width) == inside(lanes + n)).all()
    assert (run("XOR", n, width) == inside(lanes ^ n)).all()


def test_parts_of_a_warp_exchange_by_themselves(run):
    x = np.arange(32)
    for _ in range(5):
        x[:16] = x[:16] + x[np.arange(16) ^ 1]
    for _ in range(2):
        x[16:] = x[16:] + x[np.arange(16, 32) ^ 2]
    assert (run("HALVES") == x[np.arange(32) ^ 16]).all()


def test_a_lane_outside_the_mask_gives_all_bits(run):
    assert (run("PART_ABSENT", n=3)[0, :8] == 3).all()
    assert (run("PART_ABSENT", n=9)[0, :8] == -1).all()


def test_shared_memory_holds_no_zeros_for_any_block(run):
    assert (run("SHARED", grid=40, threads=64) == 0xFFFFFFFF).all()


def test_nobody_waits_for_a_thread_that_has_returned(run):
    out = run("LATE_RETURN", threads=96)[0]
    threads = np.arange(96)
    assert (out == np.where(threads % 32 % 3 == 2, threads, -2)).all()


def test_a_block_barrier_stands_between_what_warps_write_and_read(run):
    assert (run("BLOCK_SUM", threads=1024) == 32 * 33 // 2).all()
    assert (run("BLOCK_SUM", threads=40, grid=3) == 3).all()


@pytest.mark.parametrize("kind", ["DIVERGENT", "STUCK"])
def test_a_barrier_that_a_part_never_reaches_is_an_error(run, kind):
    with pytest.raises(
        KernelError, match=r"warps, block \(0, 0, 0\): a barrier or shuffle waits for threads that never"
    ):
        run(kind)
    assert (run("XOR", 1) == np.arange(32) ^ 1).all()


def test_a_full_stack_is_an_error(run):
    assert (run("STACK", n=3) == 6).all()
    with pytest.raises(KernelError, match="a thread's stack is full"):
        run("STACK", n=10_000)
    assert (run("XOR", 1) == np.arange(32) ^ 1).all()


def test_many_blocks_run_once_each_on_several_host_threads(run):
    out = run("BLOCK_SUM", threads=64, grid=3000, host_threads=4)
    assert (out == 3).all()


@pytest.mark.usefixtures("target")
def test_who_comes_next():
    def warps(schedule):
        return (np.argsort(_launch(HostRun(schedule), "TICKET", threads=128)[0]) // 32).tolist()

    assert warps("ascending") == [0] * 32 + [1] * 32 + [2] * 32 + [3] * 32
    assert warps("descending") == warps("ascending")[::-1]
    assert warps("interleaved") == [1, 2, 3, 0] * 32


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("order", ORDERS)
def test_every_block_runs_once_in_every_order(order):
    for grid in (1, 2, 3, 4, 30, 64, 97, 1000):
        for seed in (0, 1, 2**64 - 1):
            assert (_launch(HostRun(order=order, seed=seed), "COUNT", grid=grid) == -2 + 1).all()


@pytest.mark.usefixtures("target")
def test_a_seed_is_a_schedule_and_each_block_has_its_own():
    tickets = [_launch(HostRun("shuffled", seed=seed), "TICKET", threads=128, grid=3) for seed in (1, 1, 2)]
    assert (tickets[0] == tickets[1]).all()
    assert (tickets[0] != tickets[2]).any()
    assert (tickets[0][0] != tickets[0][1]).any()
    warps = np.argsort(tickets[0][0])[:12] // 32
    assert len(set(warps)) > 1  # any warp may come next, not one until it waits


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"schedule": "random"}, "schedule must be one of ascending, descending, interleaved, shuffled, not 'random'"),
        ({"order": "up"}, "order must be one of forward, backward, shuffled, not 'up'"),
        ({"threads": 0}, "threads must be at least 1, not 0"),
        ({"copies": "late"}, "copies must be one of lazy, eager, not 'late'"),
        ({"seed": -1}, r"seed must be 0 to 2\^64 - 1, not -1"),
    ],
)
def test_a_run_that_the_runtime_does_not_know_is_refused(wrong, text):
    with pytest.raises(LaunchError, match=text):
        HostRun(**wrong)
