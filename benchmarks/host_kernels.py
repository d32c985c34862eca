"""How fast the kernels run on a CPU, where they are checked and not used: decode attention on one core.

    python benchmarks/host_kernels.py [--context 4096] [--rounds 5] [--threads 1] [--json]

The unit is (tokens x KV heads) a second, the K and V rows of one head that pass through the kernel. "plain" is the
build that tests run, "race check" the one whose every load and store is watched, "meter" the one that counts sectors
and pages. Best of the rounds, in processor time with one thread; every output is compared with float64.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_cu import HostRun, HostTarget, PagedKV, launch, plan_decode, reference_attention
from kernels_cu.memory_meter import MemoryMeter

BLOCK_SIZE, KV_HEADS, HEAD_DIM = 16, 2, 128
GROUPS = (1, 4, 8)
MOST_ERROR = 2e-3


@dataclass
class Case:
    """One sequence of float16 in shuffled blocks, and the query heads that share each KV head."""

    context: int
    group: int
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.group)
        blocks = -(-self.context // BLOCK_SIZE)
        self.pool = rng.standard_normal((blocks, 2, KV_HEADS, BLOCK_SIZE, HEAD_DIM), np.float32).astype(np.float16)
        self.table = rng.permutation(blocks).astype(np.int32)[None]
        self.query = rng.standard_normal((1, KV_HEADS * self.group, HEAD_DIM), np.float32).astype(np.float16)
        self.out = np.empty_like(self.query)
        self.lengths = np.array([self.context], np.int32)

    @property
    def kv(self) -> PagedKV:
        """Where the pool lies."""
        block, value, head, slot = (stride // 2 for stride in self.pool.strides[:4])
        key = self.pool.ctypes.data
        return PagedKV(key, key + 2 * value, "float16", "hnd", BLOCK_SIZE, KV_HEADS, HEAD_DIM, block, head, slot)

    def decode(self, run: HostRun) -> float:
        """Seconds of one launch."""
        plan = plan_decode(self.lengths, KV_HEADS * self.group, KV_HEADS, shares=KV_HEADS)
        start = self.clock()
        launch.paged_decode(HostTarget(run), self.kv, plan, self.query, self.table, self.lengths, self.out)
        return self.clock() - start

    def simple(self, run: HostRun) -> float:
        """Seconds of one launch of the kernel that teaches."""
        start = self.clock()
        launch.paged_attention_simple(HostTarget(run), self.kv, self.query, self.table, self.lengths, self.out)
        return self.clock() - start

    def error(self) -> float:
        """Largest difference from float64."""
        rows = self.pool[self.table[0]].swapaxes(2, 3).swapaxes(0, 1).reshape(2, -1, KV_HEADS, HEAD_DIM)
        wanted, _ = reference_attention.attention(self.query, *(rows[:, : self.context]))
        return float(abs(wanted - self.out.astype(np.float64)).max())


def measure(context: int, rounds: int, threads: int) -> list[dict[str, Any]]:
    """The speed of each kernel in each build."""
    found = []
    for group in GROUPS:
        case = Case(context, group, time.process_time if threads == 1 else time.perf_counter)
        builds = {
            "plain": HostRun(threads=threads),
            "race check": HostRun(threads=threads, race_check=True),
            "meter": HostRun(threads=threads, meter=MemoryMeter(case.pool.ctypes.data, case.pool.nbytes)),
        }
        for kernel, call in (("paged_decode", case.decode), ("paged_attention_simple", case.simple)):
            for build, run in builds.items():
                case.out[:] = np.nan
                seconds = min(call(run) for _ in range(rounds + 1))  # the first of them may compile
                assert case.error() <= MOST_ERROR, f"{kernel}, {build}: {case.error()}"
                speed = context * KV_HEADS / seconds
                found.append({"kernel": kernel, "group": group, "build": build, "rows_per_second": speed})
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=4096, help="tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure(options.context, options.rounds, options.threads)
    if options.json:
        print(json.dumps({"context": options.context, "threads": options.threads, "found": found}, indent=2))
        return
    print(f"{options.context} tokens x {KV_HEADS} KV heads of {HEAD_DIM} float16, {options.threads} host thread(s)")
    for row in found:
        print(
            f"  {row['kernel']:<22}  group {row['group']}  {row['build']:<10}  "
            f"{row['rows_per_second']:>9,.0f} (tokens x KV heads)/s"
        )


if __name__ == "__main__":
    main()
