"""What each call of the driver costs: microseconds of the host, and the set of costs that a replay reads.

A call that queues work costs what it takes to queue it, and one that waits what it takes when there is nothing to wait
for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import vmm
from vmm.driver import check

from .bench import Bench

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
READWRITE = ((0, vmm.Access.READWRITE),)
CHUNKS, RUN, ROUNDS = 512, 64, 64


def names() -> list[str]:
    """The one item of this step."""
    return ["driver calls"]


def run(name: str, bench: Bench) -> dict[str, Any]:  # noqa: ARG001
    """Medians of single calls on chunks of one granule, and of calls over a run of chunks."""
    side = bench.side
    chunks, rounds = (RUN, 4) if side.dry else (CHUNKS, ROUNDS)
    calls = _Calls()
    _reserve_and_free(side.device, calls, rounds)
    _single(side.device, calls, chunks)
    _others(side.device, side.stream, calls, rounds)
    median = {call: statistics.median(found) for call, found in calls.microseconds.items()}
    high = {call: sorted(found)[len(found) * 9 // 10] for call, found in calls.microseconds.items()}
    return {
        "microseconds": median,
        "microseconds_90": high,
        "over_a_run": _over_a_run(side.device, RUN),
        "run": RUN,
        "chunk": side.device.granularity,
        "chunks": chunks,
    }


def cost_set(found: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    """The file that ``python -m paged replay --driver-costs`` reads."""
    source = (
        f"{device.get('name', 'unknown device')}, driver {device.get('driver_version', 'unknown')}, chunks of "
        f"{vmm.format_size(found['chunk'])}; median of {found['chunks']} calls; benchmarks/gpu_check.py"
    )
    return {"source": source, "microseconds": found["microseconds"]}


class _Calls:
    """Times calls by name."""

    def __init__(self) -> None:
        self.microseconds: dict[str, list[float]] = {}

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        found = call()
        self.microseconds.setdefault(name, []).append((time.perf_counter() - start) * 1e6)
        return found

    def driver(self, api: Any, name: str, *arguments: Any) -> Any:
        """Time a call of the driver's, and give what it gave; one that this driver lacks has no cost."""
        try:
            return check(name, self.time(name, lambda: getattr(api, name)(*arguments)), *arguments)
        except vmm.DriverMissingError:
            return None


def _reserve_and_free(device: vmm.Device, calls: _Calls, rounds: int) -> None:
    size, driver = 1 << 30, device.driver
    for _ in range(rounds):
        base = calls.time("cuMemAddressReserve", lambda: driver.reserve(size))
        calls.time("cuMemAddressFree", partial(driver.free, base, size))


def _single(device: vmm.Device, calls: _Calls, chunks: int) -> None:
    """Each call by itself for every chunk; a refusal ends the process, which gives all back."""
    driver, size = device.driver, device.granularity
    base = driver.reserve(chunks * size)
    handles = [calls.time("cuMemCreate", lambda: driver.create(0, size)) for _ in range(chunks)]
    places = range(base, base + chunks * size, size)
    for at, handle in zip(places, handles, strict=True):
        calls.time("cuMemMap", partial(driver.map, at, size, handle))
    for at in places:
        calls.time("cuMemSetAccess", partial(driver.set_access, at, size, READWRITE))
    for at in places:
        calls.time("cuMemUnmap", partial(driver.unmap, at, size))
    for handle in handles:
        calls.time("cuMemRelease", partial(driver.release, handle))
    driver.free(base, chunks * size)


def _others(device: vmm.Device, stream: int, calls: _Calls, rounds: int) -> None:
    """Contexts, events, and queueing a copy or a fill: what a range calls beside the calls for its memory."""
    api, size = device.driver.api, device.granularity
    with vmm.GrowableRange(device, 2 * size) as memory:
        memory.grow(2 * size)
        context = int(check("cuCtxGetCurrent", api.cuCtxGetCurrent()))
        for _ in range(rounds):
            event = int(calls.driver(api, "cuEventCreate", _NO_TIMING))
            calls.driver(api, "cuCtxPushCurrent", context)
            calls.driver(api, "cuCtxRecordEvent", context, event)
            calls.driver(api, "cuCtxSynchronize")
            calls.driver(api, "cuEventRecord", event, stream)
            check("cuEventSynchronize", api.cuEventSynchronize(event))
            calls.driver(api, "cuEventQuery", event)
            calls.driver(api, "cuEventDestroy", event)
            calls.driver(api, "cuMemcpyDtoDAsync", memory.base, memory.base + size, size, stream)
            calls.driver(api, "cuMemsetD8Async", memory.base, 0, size, stream)
            calls.driver(api, "cuMemGetInfo")
            calls.driver(api, "cuCtxPopCurrent")
            device.synchronize()


def _over_a_run(device: vmm.Device, chunks: int) -> dict[str, float]:
    """One set access and one unmap over a run of chunks: what a grow and a shrink make of them."""
    driver, size, calls = device.driver, device.granularity, _Calls()
    base = driver.reserve(chunks * size)
    for _ in range(4):
        handles = [driver.create(0, size) for _ in range(chunks)]
        for index, handle in enumerate(handles):
            driver.map(base + index * size, size, handle)
        calls.time("cuMemSetAccess", lambda: driver.set_access(base, chunks * size, READWRITE))
        calls.time("cuMemUnmap", lambda: driver.unmap(base, chunks * size))
        for handle in handles:
            driver.release(handle)
    driver.free(base, chunks * size)
    return {call: statistics.median(found) for call, found in calls.microseconds.items()}
