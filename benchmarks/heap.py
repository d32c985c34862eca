"""Heap against a model of CuPy's memory pool on three sequences of allocations: peak memory, and the time of a call.

    python benchmarks/heap.py [--rounds 5] [--memory "80 GiB"] [--json PATH]

Both run on a host driver with rules and no bytes, whose calls both pay for in the same way: cuMemAlloc and cuMemFree in
the one, the calls of virtual memory in the other. They take turns within a run; times are processor time, medians over
the rounds. "live" is the most bytes that the sequence has in use at once, rounded up to 512 a block; "peak" the most
that an allocator took from the device: of Heap whole chunks of 2 MiB, of the model the sizes that it asked
cudaMalloc for, although a real device rounds those up too. See cupy_pool_model.py for what the model has.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from cupy_pool_model import CupyPool, Memory
from heap_sequences import SEQUENCES, Call, replay

import vmm

RESERVE = "1 TiB"


def live_bytes(calls: list[Call]) -> int:
    """The most bytes in use at once."""
    sizes: dict[int, int] = {}
    now = most = 0
    for name, size in calls:
        if size:
            sizes[name] = vmm.round_up(size, 512)
            now += sizes[name]
            most = max(most, now)
        else:
            now -= sizes.pop(name)
    return most


def settle_collector() -> None:
    """Let the garbage collector look only at what comes from now on, and not at all that this process imported."""
    gc.collect()
    gc.freeze()


def run_heap(device: vmm.Device, calls: list[Call]) -> tuple[float, int]:
    """Seconds of the whole sequence, and peak bytes."""
    with vmm.Heap(device, RESERVE) as heap:
        settle_collector()
        seconds = replay(calls, heap.allocate, vmm.Block.free, time.process_time)
        return seconds, heap.committed  # it is never less than it was: nothing was trimmed, and nobody lacked memory


def run_pool(device: vmm.Device, calls: list[Call]) -> tuple[float, int]:
    """The same for the model of CuPy's pool."""
    pool = CupyPool(device)
    settle_collector()
    with device.current():
        seconds = replay(calls, pool.malloc, Memory.free, time.process_time)
        for address in pool.addresses:
            pool.free(address)
        pool.free_all_blocks()
    return seconds, pool.peak_bytes


def measure(device: vmm.Device, calls: list[Call], rounds: int) -> dict[str, Any]:
    """All figures of one sequence."""
    turns = [(run_heap(device, calls), run_pool(device, calls)) for _ in range(rounds)]
    heap_us, pool_us = (statistics.median(one[side][0] for one in turns) / len(calls) * 1e6 for side in (0, 1))
    heap_peak, pool_peak = turns[0][0][1], turns[0][1][1]
    return {
        "calls": len(calls),
        "live": live_bytes(calls),
        "heap_peak": heap_peak,
        "pool_peak": pool_peak,
        "peak_ratio": heap_peak / pool_peak,
        "heap_us_a_call": heap_us,
        "pool_us_a_call": pool_us,
        "time_ratio": statistics.median(heap[0] / pool[0] for heap, pool in turns),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="80 GiB", help="of the device")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    options = parser.parse_args()
    found = {}
    print(
        f"{'':<16}{'calls':>8}{'live':>12}{'Heap':>12}{'pool':>12}{'ratio':>8}{'Heap us':>9}{'pool us':>9}{'ratio':>7}"
    )
    with vmm.Device(driver=vmm.HostDriver(memory=options.memory, backing="none")) as device:
        for name, make in SEQUENCES.items():
            row = found[name] = measure(device, make(), options.rounds)
            sizes = "".join(f"{vmm.format_size(row[key]):>12}" for key in ("live", "heap_peak", "pool_peak"))
            times = f"{row['heap_us_a_call']:>9.2f}{row['pool_us_a_call']:>9.2f}{row['time_ratio']:>7.2f}"
            print(f"{name:<16}{row['calls']:>8}{sizes}{row['peak_ratio']:>8.3f}{times}")
    if options.json:
        about = {"schema": 1, "python": platform.python_version(), "machine": platform.machine()}
        options.json.write_text(json.dumps({**about, "memory": options.memory, "sequences": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
