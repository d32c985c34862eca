"""What a growable range costs over the driver calls that it makes, and what each call of a driver costs.

    python benchmarks/driver_calls.py [--driver host|cuda] [--chunks 512] [--many 65000] [--rounds 15] [--json]

Everything is in microseconds, most of it shared out over the chunks; medians over the rounds of one run, in which what
is compared takes turns. On the host driver both backings are measured: "memory", where a create takes real pages, and
"none", which has rules and no bytes, so that what is left is the cost of the software.

    grow       GrowableRange.grow over all chunks, against a bare loop of the same driver calls
    shrink     the way back: one unmap, and a release a chunk
    one chunk  growing by one chunk that is created when asked for, and by one that the supply's thread made before
    many       growing to a great number of chunks and closing, on backing "none"
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import vmm

READWRITE = ((0, vmm.Access.READWRITE),)
CALLS = ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")
STEPS = 32  # single chunks that a round of "one chunk" adds


def microseconds(call: Callable[[], object], count: int = 1) -> float:
    """Wall time of ``call``, shared out over ``count``."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / count * 1e6


def bare_loop(device: vmm.Device, chunks: int) -> float:
    """Create and map each chunk and set access once: the calls of a grow, without a range."""
    driver, size = device.driver, device.granularity
    base, handles = driver.reserve(chunks * size), []

    def grow() -> None:
        for index in range(chunks):
            handle = driver.create(0, size)
            driver.map(base + index * size, size, handle)
            handles.append(handle)
        driver.set_access(base, chunks * size, READWRITE)

    found = microseconds(grow, chunks)
    driver.unmap(base, chunks * size)
    for handle in handles:
        driver.release(handle)
    driver.free(base, chunks * size)
    return found


def growable(device: vmm.Device, chunks: int) -> tuple[float, float]:
    """The same through a range, and back, with the unmap that a shrink leaves for later."""
    with vmm.GrowableRange(device, chunks * device.granularity) as memory:

        def shrink() -> None:
            memory.shrink(memory.reserved)
            memory.collect(wait=True)

        return microseconds(lambda: memory.grow(memory.reserved), chunks), microseconds(shrink, chunks)


def one_chunk(device: vmm.Device, prefetch: int) -> float:
    """Grow by one chunk at a time; between two steps there is time enough to prepare the next."""
    size, found = device.granularity, []
    with (
        vmm.ChunkSupply(device, prefetch=prefetch * size) as supply,
        vmm.GrowableRange(device, STEPS * size, supply=supply) as memory,
    ):
        for _ in range(STEPS):
            supply.wait_prefetched()
            found.append(microseconds(lambda: memory.grow(size)))
    return statistics.median(found)


def single_calls(device: vmm.Device, chunks: int) -> list[float]:
    """Create, map, set access, unmap and release, each by itself for every chunk."""
    driver, size = device.driver, device.granularity
    base, handles = driver.reserve(chunks * size), []
    places = range(base, base + chunks * size, size)
    found = [
        microseconds(lambda: handles.extend(driver.create(0, size) for _ in places), chunks),
        microseconds(
            lambda: [driver.map(at, size, handle) for at, handle in zip(places, handles, strict=True)], chunks
        ),
        microseconds(lambda: [driver.set_access(at, size, READWRITE) for at in places], chunks),
        microseconds(lambda: [driver.unmap(at, size) for at in places], chunks),
        microseconds(lambda: [driver.release(handle) for handle in handles], chunks),
    ]
    driver.free(base, chunks * size)
    return found


def count_calls(api: Any, chunks: int) -> dict[str, int]:
    """How often each call is made when a range grows by ``chunks`` and shrinks again."""
    recorder = vmm.Recorder()
    with (
        vmm.Device(driver=api, recorder=recorder) as device,
        vmm.GrowableRange(device, chunks * device.granularity) as memory,
    ):
        recorder.clear()
        memory.grow(memory.reserved)
        memory.shrink(memory.reserved)
        memory.collect(wait=True)
        counts = recorder.counts()
    return {call: counts.get(call, 0) for call in CALLS}


def many(device: vmm.Device, chunks: int) -> tuple[float, float]:
    """Grow a range to ``chunks`` chunks, and close it with all of them."""
    memory = vmm.GrowableRange(device, chunks * device.granularity)
    return microseconds(lambda: memory.grow(memory.reserved), chunks), microseconds(memory.close, chunks)


def measure(device: vmm.Device, chunks: int, rounds: int) -> dict[str, Any]:
    """All figures of one device."""
    turns = [
        (bare_loop(device, chunks), *growable(device, chunks), one_chunk(device, 0), one_chunk(device, 2))
        for _ in range(rounds)
    ]
    bare, grow, shrink, asked, ready = (statistics.median(figures) for figures in zip(*turns, strict=True))
    singles = zip(*(single_calls(device, chunks) for _ in range(rounds)), strict=True)
    return {
        "device": repr(device),
        "backing": device.backing,
        "chunks": chunks,
        "bare": bare,
        "grow": grow,
        "times": grow / bare,
        "over": grow - bare,
        "shrink": shrink,
        "one_chunk_created": asked,
        "one_chunk_prefetched": ready,
        "calls": dict(zip(CALLS, map(statistics.median, singles), strict=True)),
        "counts": count_calls(device.driver.api, chunks),
    }


def measure_many(chunks: int, rounds: int) -> dict[str, Any]:
    """The figures of a great number of chunks."""
    with vmm.Device(driver=vmm.HostDriver(memory=(chunks + 1) * (2 << 20), backing="none")) as device:
        grow, close = map(statistics.median, zip(*(many(device, chunks) for _ in range(rounds)), strict=True))
    return {"backing": "none", "chunks": chunks, "grow": grow, "close": close}


def show(found: dict[str, Any]) -> None:
    """Print the figures of one device."""
    print(found["device"])
    print(f"  {found['chunks']} chunks, a chunk: bare loop {found['bare']:.2f}, grow {found['grow']:.2f} ", end="")
    print(f"({found['times']:.2f} times, {found['over']:+.2f}), shrink {found['shrink']:.2f}")
    print(f"  one chunk: created {found['one_chunk_created']:.1f}, prefetched {found['one_chunk_prefetched']:.1f}")
    print("  a call: " + ", ".join(f"{call} {cost:.2f}" for call, cost in found["calls"].items()))
    print("  grow and shrink: " + ", ".join(f"{call} {count}" for call, count in found["counts"].items()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", choices=("host", "cuda"), default="host")
    parser.add_argument("--backing", choices=("none", "memory"), help="one backing only (default: both)")
    parser.add_argument("--chunks", type=int, default=512)
    parser.add_argument("--many", type=int, default=65_000, help="chunks of the last figure; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    backings = ["device"] if options.driver == "cuda" else [options.backing] if options.backing else ["memory", "none"]
    found = []
    for backing in backings:
        memory = (max(options.chunks, STEPS) + 8) * (2 << 20)
        driver = "cuda" if backing == "device" else vmm.HostDriver(memory=memory, backing=backing)
        with vmm.Device(0, driver=driver) as device:
            found.append(measure(device, options.chunks, options.rounds))
        if not options.json:
            show(found[-1])
    great = measure_many(options.many, min(options.rounds, 5)) if options.many else None
    if options.json:
        print(json.dumps({"devices": found, "many": great}, indent=2))
    elif great:
        print(
            f"{great['chunks']} chunks on backing none, a chunk: grow {great['grow']:.2f}, close {great['close']:.2f}"
        )


if __name__ == "__main__":
    main()
