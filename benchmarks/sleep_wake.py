"""What a sleep and a wake take: memory goes to the driver, with a copy of the bytes in pinned host memory or without.

    python benchmarks/sleep_wake.py [--driver host|cuda] [--size "8 GiB"] [--chunk "2 MiB"] [--rounds 3] [--json]

Seconds and GB/s (1e9 bytes) of each step, medians over the rounds. ``--size`` is by default 8 GiB, or less where the
machine has not three times as much free: on the host driver the device's memory and the backup are both the host's.
Checked in every round, and the exit status is 1 otherwise: the bytes are identical after the wake, the driver has all
of its memory back during the sleep, no handle was released twice, no pinned memory is left.

    sleep, backup      copies out, then unmaps and releases
    wake, backup       creates and maps, then copies back
    sleep, no backup   only unmaps and releases
    wake, no backup    only creates and maps; the bytes are undefined
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vmm

LARGEST = 8 << 30
PIECE = 64 << 20  # bytes that are looked at together


def free_host_bytes() -> int:
    """What the operating system says can still be had."""
    with Path("/proc/meminfo").open() as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of ``call`` in seconds, and what it returned."""
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def arrays(memory: vmm.GrowableRange) -> Any:
    """The bytes as int64, piece by piece, each with a number of its own."""
    for place, offset in enumerate(range(0, memory.size, PIECE)):
        yield place, memory.array("int64", min(PIECE, memory.size - offset) // 8, offset)


def fill(memory: vmm.GrowableRange, seed: int) -> None:
    """Other numbers in every word of a piece, and in every piece."""
    for place, piece in arrays(memory):
        step = seed * 1_000_003 + place * 7_919 + 1
        piece[:] = step
        piece[:: 4096 // 8] += place  # and a mark a page
        piece[-1] = -step


def same(memory: vmm.GrowableRange, seed: int) -> bool:
    """Whether ``fill`` would change nothing."""
    for place, piece in arrays(memory):
        step = seed * 1_000_003 + place * 7_919 + 1
        marks = piece[:: 4096 // 8]
        rest = piece[1 : 4096 // 8]
        right = bool((marks == step + place).all()) and bool((rest == step).all()) and int(piece[-1]) == -step
        if not right or int(piece[:-1].sum()) != step * (len(piece) - 1) + place * len(marks):
            return False
    return True


def measure(device: vmm.Device, size: int, chunk: int, rounds: int) -> dict[str, Any]:
    """Times of every step, and whether all that must hold did."""
    times: dict[str, list[float]] = {}
    faults: list[str] = []
    with vmm.GrowableRange(device, size, chunk=chunk, name="weights") as memory:
        residency = vmm.Residency(device)
        residency.add(memory, "weights")
        memory.grow(size)
        for number in range(rounds):
            fill(memory, number)
            for backup in (True, False):
                free = device.memory_info().free
                kind = "backup" if backup else "no backup"
                took, slept = timed(functools.partial(residency.sleep, "weights", backup=backup))
                times.setdefault(f"sleep, {kind}", []).append(took)
                if device.memory_info().free - free != size or slept.shortfall:
                    faults.append(f"round {number}: the driver has not all of its memory back")
                times.setdefault(f"wake, {kind}", []).append(timed(functools.partial(residency.wake, "weights"))[0])
                if backup and not same(memory, number):
                    faults.append(f"round {number}: bytes differ after the wake")
    return {
        "steps": {
            name: {"seconds": statistics.median(found), "gb_per_s": size / statistics.median(found) / 1e9}
            for name, found in times.items()
        },
        "faults": faults,
    }


def check_calls(recorder: vmm.Recorder) -> list[str]:
    """Every handle is released once, every pinned allocation freed."""
    counts = recorder.counts()
    found = []
    if counts.get("cuMemRelease", 0) != counts.get("cuMemCreate", 0):
        found.append(f"{counts.get('cuMemCreate', 0)} handles made, {counts.get('cuMemRelease', 0)} released")
    if counts.get("cuMemFreeHost", 0) != counts.get("cuMemHostAlloc", 0):
        found.append("pinned memory is left")
    return found


def main() -> int:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", choices=("host", "cuda"))
    parser.add_argument("--size", help="bytes that sleep (default: 8 GiB, or a third of what is free)")
    parser.add_argument("--chunk", default="2 MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with vmm.Device(driver=options.driver) as found:
        name, free = found.driver.name, found.memory_info().free
    chunk = vmm.parse_size(options.chunk)
    most = free_host_bytes() // 3 if name == "host" else min(free, free_host_bytes()) // 2
    wanted = vmm.parse_size(options.size) if options.size else min(LARGEST, most)
    size = max(chunk, vmm.round_down(wanted, chunk))
    driver: Any = vmm.HostDriver(memory=size + chunk) if name == "host" else options.driver
    recorder = vmm.Recorder()
    with vmm.Device(driver=driver, recorder=recorder) as device:
        report = {"device": repr(device), "size": size, "chunk": chunk, "rounds": options.rounds}
        report |= measure(device, size, chunk, options.rounds)
    report["faults"] += check_calls(recorder)
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['device']}\n{vmm.format_size(size)} in chunks of {vmm.format_size(chunk)}")
        for name, step in report["steps"].items():
            print(f"  {name:18} {step['seconds']:8.3f} s {step['gb_per_s']:9.2f} GB/s")
        print("\n".join(report["faults"]) or "bytes identical, every handle released once, no pinned memory left")
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
