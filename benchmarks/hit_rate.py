"""How much of its prompts a prefix cache knows, against the memory that it has: a table and a plot.

    python benchmarks/hit_rate.py mooncake_conversation.jsonl [--budget 64GiB 256GiB 6TiB] [--limit 2000]
        [--plot hit_rate.png] [--json]

Each budget is a whole replay of paged-prealloc with --prefix-cache on the host driver: qwen2.5-7b (56 KiB a token and
131,072 positions), blocks of 256 tokens in chunks of their size. The trace names blocks of 512 tokens; one counts as
found when all of its tokens were in memory as its prompt began for the first time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import paged
from paged import Workload
from paged.atomic_file import check_writable, write_atomically
from paged.replay import load_workload, replay
from paged.replay.options import Options
from vmm import format_size, parse_size

MODEL, BLOCK_SIZE = "qwen2.5-7b", 256
BUDGETS = ("16GiB", "32GiB", "64GiB", "128GiB", "256GiB", "512GiB", "1TiB", "2TiB", "6TiB")


def measure(workload: Workload, budget: str, policy: str = "paged-prealloc") -> dict[str, Any]:
    """One replay with that many bytes for KV."""
    size, model = parse_size(budget, name="budget"), paged.model(MODEL)
    report = replay(
        workload,
        driver="host",
        policies=(policy,),
        model=MODEL,
        block_size=BLOCK_SIZE,
        chunk=BLOCK_SIZE * model.token_bytes,
        prefix_cache=True,
        gpu_memory=size + model.weight_bytes,
        gpu_memory_utilization=1.0,
        activation_memory=0,
    )
    found = report.policies[policy]
    assert found.prefix is not None, "the cache was asked for"
    return {
        "budget": size,
        "hit_rate": found.prefix.hit_rate,
        "hit_blocks": found.prefix.hit_blocks,
        "asked_blocks": found.prefix.asked_blocks,
        "hit_tokens": found.prefix.hit_tokens,
        "rejected": found.rejected,
        "preemptions": found.preemptions,
        "duration_s": found.duration_s,
    }


def draw(points: list[dict[str, Any]], title: str, path: Path) -> None:
    """Hit rate against the budget, which is on a logarithmic axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([point["budget"] for point in points], [100 * point["hit_rate"] for point in points], "o-")
    axes.set_xscale("log", base=2)
    axes.set_xticks([point["budget"] for point in points], [format_size(point["budget"]) for point in points])
    axes.tick_params(axis="x", labelsize=7, rotation=30)
    axes.set_ylabel("prompt blocks found, %")
    axes.set_xlabel("memory for KV")
    axes.set_ylim(bottom=0)
    axes.grid(linewidth=0.3)
    axes.set_title(title, fontsize=9)
    write_atomically(path, lambda out: figure.savefig(out, format=path.suffix[1:].lower() or "png", dpi=150))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--budget", nargs="+", default=list(BUDGETS), metavar="SIZE")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--plot", type=Path, default=Path("hit_rate.png"))
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    asked = parser.parse_args()
    check_writable(asked.plot, Path(asked.trace))
    workload = load_workload(asked.trace, Options(limit=asked.limit, prefix_cache=True))
    points = []
    for budget in asked.budget:
        points.append(measure(workload, budget))
        if not asked.as_json:
            text = "{hit_rate:6.2%} of {asked_blocks:,} blocks found, {preemptions:,} preempted, {rejected:,} rejected"
            print(f"{budget:>8}: {text.format(**points[-1])}", flush=True)
    name = Path(workload.name).name
    draw(points, f"{name}, {MODEL}, blocks of {BLOCK_SIZE} tokens", asked.plot)
    if asked.as_json:
        print(json.dumps({"schema": 1, "trace": name, "points": points}, indent=2))
    else:
        print(f"The picture is in {asked.plot}.")


if __name__ == "__main__":
    main()
