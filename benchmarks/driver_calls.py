"""What a growable range costs over the driver calls that it makes, and what each call of a driver costs.

    python benchmarks/driver_calls.py [--driver host|cuda] [--backing none|memory] [--chunks 512]

Prints microseconds a chunk, medians over several rounds of one run: for a bare loop of the same calls, and for
GrowableRange.grow and shrink; then microseconds for each call by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import vmm

ROUNDS = 15
READWRITE = ((0, vmm.Access.READWRITE),)


def microseconds(call: Callable[[], object], count: int) -> float:
    """Wall time of ``call``, shared out over ``count``."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / count * 1e6


def bare_loop(device: vmm.Device, chunks: int) -> list[float]:
    """Create and map each chunk and set access once: the calls of a grow, without a range."""
    driver, size = device.driver, device.granularity
    base, handles = driver.reserve(chunks * size), []

    def grow() -> None:
        for index in range(chunks):
            handle = driver.create(0, size)
            driver.map(base + index * size, size, handle)
            handles.append(handle)
        driver.set_access(base, chunks * size, READWRITE)

    seconds = microseconds(grow, chunks)
    driver.unmap(base, chunks * size)
    for handle in handles:
        driver.release(handle)
    driver.free(base, chunks * size)
    return [seconds]


def growable(device: vmm.Device, chunks: int) -> list[float]:
    """The same through a range, and back."""
    with vmm.GrowableRange(device, chunks * device.granularity) as memory:
        size = memory.reserved
        return [microseconds(lambda: memory.grow(size), chunks), microseconds(lambda: memory.shrink(size), chunks)]


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


def medians(measure: Callable[[vmm.Device, int], list[float]], device: vmm.Device, chunks: int) -> list[float]:
    """The median of each figure over the rounds."""
    return [statistics.median(values) for values in zip(*(measure(device, chunks) for _ in range(ROUNDS)), strict=True)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", choices=("host", "cuda"), default="host")
    parser.add_argument("--backing", choices=("none", "memory"), default="none")
    parser.add_argument("--chunks", type=int, default=512)
    options = parser.parse_args()
    host = vmm.HostDriver(memory=2 * options.chunks * (2 << 20), backing=options.backing)
    with vmm.Device(0, driver=host if options.driver == "host" else "cuda") as device:
        print(device)
        (bare,) = medians(bare_loop, device, options.chunks)
        grow, shrink = medians(growable, device, options.chunks)
        print(f"{options.chunks} chunks, microseconds a chunk: bare loop {bare:.2f}, ", end="")
        print(f"grow {grow:.2f} ({grow / bare:.2f} times, {grow - bare:+.2f}), shrink {shrink:.2f}")
        names = ("create", "map", "set access", "unmap", "release")
        calls = zip(names, medians(single_calls, device, options.chunks), strict=True)
        print("microseconds a call: " + ", ".join(f"{name} {cost:.2f}" for name, cost in calls))


if __name__ == "__main__":
    main()
