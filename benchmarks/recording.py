"""What recording costs: an event, a driver call, a replay, and a page.

    python benchmarks/recording.py [TRACE] [--limit 1000] [--rounds 7] [--json]

Processor time of one run, which begins without the garbage of the one before; what is compared takes turns, and the
ratio is the median of the ratios of neighbours, so that a machine that is busy slows both. Without TRACE a workload is
made.

    event      PoolRecorder.note, in nanoseconds: no id, one id, 72 ids (a prompt's blocks), with a full ring that folds
    call       a driver call that does nothing: bare, and recorded with its duration
    off        a replay before and after a recorder was opened and closed on nothing: over the same replay
    replay     a recorded replay over the same replay, paged-vmm on the host driver; and with each driver call kept
    page       seconds to write the page, and its bytes
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paged
import vmm
from paged.page import write_page
from paged.recording import record
from paged.recording.kinds import Kind
from paged.recording.replayed import record_policy
from paged.replay.options import Options
from paged.replay.run import Run, load_workloads, run_policy
from paged.replay.setup import prepare
from paged.serving.driver_costs import driver_costs

POLICY = "paged-vmm"


def seconds(call: Callable[[], object]) -> float:
    """Processor time of one call."""
    gc.collect()
    start = time.process_time()
    call()
    return time.process_time() - start


def event_cost(ids: int, capacity: int = 1 << 20, count: int = 60_000) -> float:
    """Nanoseconds an event with so many ids."""
    layout = paged.KVLayout(paged.KVSpec(8, 4, 64, "float16"), 256, chunk=2 << 20)
    with (
        vmm.Device(driver=vmm.HostDriver(memory="1 GiB", backing="none")) as device,
        paged.KVPool(device, layout, blocks=128) as pool,
        record(pool, capacity=capacity) as recorder,
    ):
        named, note = list(range(ids)), recorder.note

        def notes() -> None:
            for number in range(count // 2):
                start = time.perf_counter_ns()
                note(Kind.CACHE, number, 0, 0, named, start)
                note(Kind.EVICT, number, 0, 0, named, start)

        return min(seconds(notes) for _ in range(3)) / count * 1e9


class Nothing:
    """A driver whose calls do nothing."""

    @staticmethod
    def cuMemMap(_address: int, _size: int, _offset: int, _handle: int, _flags: int) -> tuple[int]:  # noqa: N802
        """As the driver's."""
        return (0,)


def call_cost(api: Any, count: int = 200_000) -> float:
    """Nanoseconds a call."""
    function = api.cuMemMap

    def calls() -> None:
        for number in range(count):
            function(number, 2 << 20, 0, number, 0)

    return min(seconds(calls) for _ in range(3)) / count * 1e9


def ratios(call: Callable[[], object], base: Callable[[], object], rounds: int) -> tuple[float, float]:
    """(median ratio, interquartile range) of ``call`` over ``base``, which run in turns."""
    found, before = [], seconds(base)
    for _ in range(rounds):
        own = seconds(call)
        after = seconds(base)
        found.append(2 * own / (before + after))
        before = after
    quarters = statistics.quantiles(found, n=4)
    return statistics.median(found), quarters[2] - quarters[0]


def measure(trace: str | None, limit: int, rounds: int) -> dict[str, Any]:
    """Everything."""
    options = Options(policies=(POLICY,), driver="host", limit=limit)
    run = Run(prepare(options), load_workloads(trace, options), driver_costs(options.driver_costs))

    def plain() -> None:
        run_policy(run, POLICY)

    plain()  # imports and compiled code
    with tempfile.TemporaryDirectory() as folder:
        _, recording = record_policy(run)
        path = Path(folder) / "view.html"
        page_s = seconds(lambda: write_page(recording, path))
        page_bytes = path.stat().st_size
    return {
        "event_ns": {str(ids): round(event_cost(ids)) for ids in (0, 1, 72)},
        "event_folded_ns": round(event_cost(1, capacity=1000)),
        "call_ns": {"bare": round(call_cost(Nothing)), "recorded": round(call_cost(vmm.Recorder().wrap(Nothing)))},
        "events": len(recording),
        "off": ratios(plain, plain, rounds),
        "replay": ratios(lambda: record_policy(run), plain, rounds),
        "replay_each_call": ratios(lambda: record_policy(run, each_call=True), plain, rounds),
        "page": {"seconds": round(page_s, 2), "bytes": page_bytes},
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.trace, given.limit, given.rounds)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:17} {value}")


if __name__ == "__main__":
    main()
