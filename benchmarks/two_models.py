"""Two models on one GPU, their loads in opposite phase: what a shared budget saves against two fixed halves.

    python benchmarks/two_models.py [--budget 16GiB] [--requests 380] [--cycles 3] [--reserve 1]
        [--plot two_models.png] [--json]

While one model is busy the other is not, and the other way round. Both take turns on one clock (llama-3-8b twice, H100
roofline). First paged-vmm serves both on one supply of ``--budget``, the driver's calls charged to the clock. Then
paged-prealloc gives each a fixed half, which calls the driver no more, and bisection finds the least memory with which
the halves complete in the same time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import paged
from paged import Workload
from paged.atomic_file import check_writable, write_atomically
from paged.replay import replay
from paged.replay.report import PolicyResult
from vmm import format_size, parse_size

MODEL, GIB = "llama-3-8b", 1 << 30
PERIOD_S, BURST_S = 40.0, 10.0
STEP = 64 << 20
"""Bisection ends at this many bytes."""


def bursts(model: int, cycles: int, requests: int) -> Workload:
    """``requests`` in the first BURST_S of each period; model 1 is half a period behind model 0."""
    rng = np.random.default_rng(model)
    starts = np.repeat(PERIOD_S * (np.arange(cycles) + model / 2), requests)
    arrival = np.sort(starts + rng.uniform(0, BURST_S, len(starts)))
    prompt, output = (np.rint(rng.lognormal(np.log(median), 0.3, len(starts))) for median in (1000, 300))
    return Workload(f"bursts of model {model}", arrival, prompt.astype(np.int64), output.astype(np.int64))


def serve(policy: str, budget: int, loads: list[Workload], reserve: float = 0.0) -> PolicyResult:
    """Both models on ``budget`` bytes for KV."""
    report = replay(
        loads,
        driver="host",
        model=(MODEL, MODEL),
        policies=(policy,),
        gpu_memory=budget + 2 * paged.model(MODEL).weight_bytes,
        gpu_memory_utilization=1.0,
        activation_memory=0,
        charge_driver_time=True,
        reserve=reserve,
    )
    return report.policies[policy]


def halves_for(seconds: float, low: int, loads: list[Workload], tried: list[tuple[int, float]]) -> int:
    """The least memory with which two fixed halves complete in ``seconds``; ``tried`` collects (bytes, seconds)."""

    def in_time(budget: int) -> bool:
        tried.append((budget, serve("paged-prealloc", budget, loads).duration_s))
        return tried[-1][1] <= seconds

    high = low
    while not in_time(high):
        low, high = high, 2 * high
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        if middle in (low, high):
            break
        low, high = (low, middle) if in_time(middle) else (middle, high)
    return high


def draw(shared: PolicyResult, budget: int, tried: list[tuple[int, float]], loads: list[Workload], path: Path) -> None:
    """Completion against memory; memory and arrivals over time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    sizes, times = zip(*sorted(tried), strict=True)
    left.plot([size / GIB for size in sizes], times, "o-", color="#999999", label="two fixed halves (paged-prealloc)")
    left.plot(budget / GIB, shared.duration_s, "s", color="#0072b2", markersize=9, label="one budget (paged-vmm)")
    left.axhline(shared.duration_s, color="#0072b2", linewidth=0.8, linestyle=":")
    left.set_xlabel("memory for KV of both models, GiB")
    left.set_ylabel("all requests completed after, s")
    left.legend(frameon=False)
    timeline = shared.timeline.coarser(160)
    committed = timeline.series("committed").mean / GIB
    right.stairs(committed, timeline.edges(), baseline=None, color="#0072b2", label="committed, one budget (GiB)")
    right.axhline(budget / GIB, color="#d55e00", linewidth=0.9, linestyle=":", label="budget (GiB)")
    for number, load in enumerate(loads):
        counts, edges = np.histogram(load.arrival_s, bins=np.arange(0, shared.duration_s + 2, 2.0))
        right.stairs(counts / 2, edges, fill=True, alpha=0.3, color=("#e69f00", "#009e73")[number], label=load.name)
    right.set_xlabel("simulated time (s)")
    right.set_ylabel("GiB; requests/s")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8)
    write_atomically(path, lambda out: figure.savefig(out, format=path.suffix[1:].lower() or "png", dpi=150))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="16GiB")
    parser.add_argument("--requests", type=int, default=380, help="in one burst of one model")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--reserve", type=float, default=1.0, help="as of replay: the other model may take those rows")
    parser.add_argument("--plot", type=Path, default=Path("two_models.png"))
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    asked = parser.parse_args()
    check_writable(asked.plot)
    budget = parse_size(asked.budget, name="budget")
    loads = [bursts(model, asked.cycles, asked.requests) for model in (0, 1)]
    shared = serve("paged-vmm", budget, loads, asked.reserve)
    tried: list[tuple[int, float]] = []
    halves = halves_for(shared.duration_s, budget, loads, tried)
    draw(shared, budget, tried, loads, asked.plot)
    found = {
        "budget": budget,
        "duration_s": shared.duration_s,
        "driver_time_s": shared.driver_s,
        "halves": halves,
        "ratio": halves / budget,
        "tried": [{"budget": size, "duration_s": seconds} for size, seconds in sorted(tried)],
    }
    if asked.as_json:
        print(json.dumps({"schema": 1, **found}, indent=2))
        return
    requests = sum(map(len, loads))
    print(f"one budget of {format_size(budget)}: {requests:,} requests in {shared.duration_s:.2f} s", end=", ")
    print(f"{shared.driver_s:.2f} s of it for the driver")
    for size, seconds in sorted(tried):
        print(f"  two halves of {format_size(size // 2)}: {seconds:.2f} s")
    print(f"two fixed halves need {format_size(halves)} for that time: {halves / budget:.2f} times the memory")
    print(f"The picture is in {asked.plot}.")


if __name__ == "__main__":
    main()
