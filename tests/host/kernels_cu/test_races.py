"""The race check: what is ordered passes under every schedule, and what is not is reported with both of its lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget
from kernels_cu.checked_launch import launch_checked
from kernels_cu.host_run import COPIES, SCHEDULES
from kernels_cu.race import RaceError

KERNEL = Path(__file__).with_name("races.cu")
TEXT = KERNEL.read_text()
KINDS = re.findall(r"\w+", re.search(r"enum \{(.*?)\}", TEXT, re.DOTALL)[1])
RACES = {
    "NOTHING": "__syncwarp",
    "WARP_BARRIER_FOR_BLOCK": "__syncthreads",
    "SHUFFLE": "__syncwarp",
    "READ_THEN_WRITE": "__syncwarp",
    "OTHER_HALF_MASK": "__syncwarp",
    "SAME_BYTE": "__syncwarp",
    "COPY_WAIT": "__syncwarp",
    "COPY_BARRIER": "wait for its group",
    "COPY_OVER_READ": "__syncwarp",
    "OWN_COPY": "wait for its group",
    "MATRIX": "__syncwarp",
    "DYNAMIC": "__syncwarp",
}
"""What each of them lacks. The others are ordered."""


@pytest.fixture
def run(target):  # noqa: ARG001 - skips without a compiler
    def launch(kind, host_run, threads=64, grid=1):
        out, given = np.zeros(threads, np.uint32), np.arange(256, dtype=np.uint32)
        arguments = (np.uint64(out.ctypes.data), np.uint64(given.ctypes.data))
        extents = (grid, 1, 1), (threads, 1, 1)
        keepalive = (out, given)
        constants = {"KIND": kind}
        launch_checked(
            HostTarget(host_run),
            KERNEL,
            constants,
            *extents,
            arguments,
            stream=0,
            keepalive=keepalive,
            shared_bytes=1024,
        )
        return out

    return launch


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_race_is_found_whatever_the_schedule(run, kind, schedule, copies):
    host_run = HostRun(schedule, copies=copies, race_check=True)
    if kind not in RACES:
        run(kind, host_run, grid=3)
        return
    with pytest.raises(RaceError, match=re.escape(RACES[kind])) as caught:
        run(kind, host_run)
    lines = TEXT.splitlines()
    for access in (caught.value.before, caught.value.now):
        file, line = access.line.split(":")
        assert file == "races.cu"
        body = "\n".join(lines[int(line) - 1 : int(line) + 1])
        assert re.search("word|dynamic|shared", body)


def test_the_report_names_both_threads_and_lines(run):
    first = 1 + next(i for i, line in enumerate(TEXT.splitlines()) if "the first access" in line)
    with pytest.raises(RaceError) as caught:
        run("NOTHING", HostRun(race_check=True, threads=1))
    assert str(caught.value) == (
        "races, block (0, 0, 0): a race for byte 1028 of shared memory: "
        f"thread 0 reads it at races.cu:{first + 1}, then thread 1 writes it at races.cu:{first}; "
        "a __syncwarp() must stand between"
    )


def test_without_the_check_the_same_kernel_runs(run):
    assert (run("NOTHING", HostRun("interleaved")) != 0).any()


def test_a_block_owes_nothing_to_the_one_before_it(run):
    run("OWN_COPY_WAIT", HostRun(race_check=True, threads=1), grid=100)
    with pytest.raises(RaceError):
        run("NOTHING", HostRun(race_check=True), grid=100)


OF_KERNELS = ("append", "attention", "blocks", "contiguous", "decode", "merge", "prefill", "table")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("name", OF_KERNELS)
def test_no_test_of_a_kernel_has_a_race(name):
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "race_checked", str(here / f"test_{name}.py")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(here)},
        cwd=here.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\d+ passed", done.stdout)
