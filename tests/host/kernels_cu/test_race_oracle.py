"""Random programs of accesses and barriers: the race check says what an oracle says that keeps the whole history.

Barriers alone order accesses, so whether a program races does not depend on the schedule. The check remembers four
accesses a word, and the programs touch no word more often: then it must miss nothing, and never may it invent anything.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget
from kernels_cu.checked_launch import launch_checked
from kernels_cu.host_run import SCHEDULES
from kernels_cu.race import RaceError

KERNEL = Path(__file__).with_name("program.cu")
END, WARP_BARRIER, BLOCK_BARRIER = 0, 7, 8
THREADS, LIVELY, WORDS = 64, 6, 4
REMEMBERED = 4


class Program:
    """Phases of accesses by a few threads of both warps, each phase ended by a barrier of some of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.steps = [[] for _ in range(THREADS)]
        self.accesses = []  # thread, bytes, write, what the thread knew of every thread's clock
        self.clock = np.eye(THREADS, dtype=int)
        left = dict.fromkeys(range(WORDS), REMEMBERED)
        some = [*self.rng.choice(32, LIVELY // 2, False), *(32 + self.rng.choice(32, LIVELY // 2, False))]
        self.some = [int(thread) for thread in some]
        for _ in range(self.rng.integers(1, 9)):
            for _ in range(self.rng.integers(0, 4)):
                self._access(left)
            self._barrier()

    def _access(self, left) -> None:
        word = int(self.rng.integers(WORDS))
        if not left[word]:
            return
        left[word] -= 1
        thread, size, write = (
            int(self.rng.choice(self.some)),
            int(self.rng.choice([1, 2, 4])),
            bool(self.rng.random() < 0.5),
        )
        place = 4 * word + size * int(self.rng.integers(4 // size))
        self.steps[thread].append((1 + {1: 0, 2: 1, 4: 2}[size] + 3 * write, place))
        self.accesses.append((thread, set(range(place, place + size)), write, self.clock[thread].copy()))

    def _barrier(self) -> None:
        kind = self.rng.integers(4)
        warp = 32 * int(self.rng.integers(2))
        whole = range(warp, warp + 32)
        if kind == 0:
            self._meet(range(THREADS), (BLOCK_BARRIER, 0))
        elif kind == 1:
            self._meet(whole, (WARP_BARRIER, 0xFFFFFFFF))
        else:
            part = [thread for thread in whole if self.rng.random() < 0.6] or [warp]
            mask = sum(1 << thread % 32 for thread in part)
            self._meet(part, (WARP_BARRIER, mask))

    def _meet(self, threads, step) -> None:
        known = self.clock[list(threads)].max(axis=0)
        for thread in threads:
            self.steps[thread].append(step)
            self.clock[thread] = known
        for thread in threads:
            self.clock[thread, thread] += 1

    def races(self) -> bool:
        """Whether two accesses to a byte, one a write, have no order: neither's thread had heard of the other."""
        for (one, first, writes, knew), (other, second, wrote, known) in itertools.combinations(self.accesses, 2):
            ordered = one == other or known[one] >= knew[one] or knew[other] >= known[other]
            if first & second and (writes or wrote) and not ordered:
                return True
        return False

    def words(self):
        """The steps as the kernel reads them: [threads, most, 2]."""
        most = 1 + max(map(len, self.steps))
        words = np.zeros((THREADS, most, 2), np.uint32)
        for thread, steps in enumerate(self.steps):
            if steps:
                words[thread, : len(steps)] = steps
        return words


def _found(program, host_run) -> bool:
    words, out = program.words(), np.zeros(THREADS, np.uint32)
    arguments = (np.uint64(out.ctypes.data), np.uint64(words.ctypes.data), np.int32(words.shape[1]))
    extents, options = ((1, 1, 1), (THREADS, 1, 1)), {"stream": 0, "shared_bytes": 4 * WORDS}
    try:
        launch_checked(HostTarget(host_run), KERNEL, {}, *extents, arguments, keepalive=(words, out), **options)
    except RaceError:
        return True
    return False


def _compare(seeds) -> tuple[int, int]:
    counts = [0, 0]
    for seed in seeds:
        program = Program(seed)
        races = program.races()
        counts[races] += 1
        for schedule in SCHEDULES:
            host_run = HostRun(schedule, race_check=True, seed=seed, threads=1)
            assert _found(program, host_run) == races, (seed, schedule)
    return tuple(counts)


@pytest.mark.usefixtures("target")
def test_the_check_agrees_with_the_oracle():
    clean, racing = _compare(range(1000))
    assert min(clean, racing) > 100  # both kinds are there


@pytest.mark.exhaustive
@pytest.mark.usefixtures("target")
def test_the_same_for_many_more():
    _compare(range(1000, 20_000))
