"""Everything that wants a GPU, checked and measured by one command in some five minutes.

    python benchmarks/gpu_check.py [--only copy,decode] [--cases 'base*'] [--seconds 330] [--json PATH] [--dry-run]

Runs the examples and the tests that a device changes; measures the bandwidth of a copy within one of our own ranges;
compares decode in some hundred shapes with the simple kernel and with float64, and times it in captured graphs over
rotating inputs with a cold cache; the same for the other kernels; torch and FlashInfer on the same shapes where they
are installed; the tests of each library that takes our memory or allocates from it; and what each call of the driver
costs, as a set of costs that `python -m paged replay` reads.

One JSON file, whole after every item (benchmarks/results/<device>.json), and a table. A failure ends its item and not
the run. The exit status is 1 if anything failed or was wrong. ``--dry-run`` does it all in small sizes on the host
driver, where the times mean nothing; it writes a file only where --json says so.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from gpu.goals import outcomes  # noqa: E402
from gpu.record import Record, file_name  # noqa: E402
from gpu.steps import STEPS, deadlines  # noqa: E402
from gpu.supervisor import run_step  # noqa: E402
from gpu.table import copy_bandwidth, show  # noqa: E402
from gpu.worker import work  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    steps = "\n".join(f"  {name:<9} {step.about}" for name, step in STEPS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nSteps:\n{steps}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="STEP,...", help="these steps, and the device's")
    parser.add_argument(
        "--cases", metavar="PATTERN", action="append", help="only items whose names fit, as file names do; repeatable"
    )
    parser.add_argument("--seconds", type=float, default=330, help="what does not begin by then is skipped and named")
    parser.add_argument("--json", type=Path, metavar="PATH", help="default: benchmarks/results/<device>.json")
    parser.add_argument("--dry-run", action="store_true", help="small sizes on the host driver; times mean nothing")
    parser.add_argument("--list", action="store_true", help="print the steps and their items")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if options.only else list(STEPS)
    unknown = [step for step in chosen if step not in STEPS]
    if unknown:
        parser.error(f"no step {unknown[0]!r}; --only takes {', '.join(STEPS)}")
    options.steps = [step for step in STEPS if step in chosen or step == "device"]
    return options


def items_of(step: str, patterns: list[str] | None) -> list[str]:
    """The items of a step whose names fit one of the patterns."""
    names: list[str] = STEPS[step].module.names()
    if step == "device" or not patterns:
        return names
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def measure(options: argparse.Namespace, record: Record, said: Any) -> None:
    """Run the steps one after the other, each up to its deadline."""
    started = time.monotonic()
    for step, seconds in deadlines(options.steps, options.seconds).items():
        items = items_of(step, options.cases)
        run_step(step, items, record, dry=options.dry_run, deadline=started + seconds, said=said)
        if step == "device" and record.path is None and not options.dry_run:
            record.path = RESULTS / file_name(record.device.get("name", "unknown device"))
    record.data["seconds"] = round(time.monotonic() - started, 1)
    record.data["copy_bytes_a_second"] = best = copy_bandwidth(record)
    if not options.dry_run:
        record.data["goals"] = {outcome.goal.name: outcome.row() for outcome in outcomes(record, best)}
    record.save()


def main() -> int:
    """Run what was asked for; 1 where something failed."""
    options = options_of()
    if options.worker:
        work(json.loads(options.worker))
        return 0
    if options.list:
        for step in options.steps:
            print(step, *items_of(step, options.cases), sep="\n  ")
        return 0
    console, progress = Console(width=None if sys.stdout.isatty() else 140, highlight=False), Console(stderr=True)
    record = Record(options.json, dry_run=options.dry_run, began=time.strftime("%Y-%m-%dT%H:%M:%S%z"))

    def said(text: str) -> None:
        if progress.is_terminal:
            progress.print(f"{text:<100}"[:100], end="\r", highlight=False, markup=False)

    stopped = False
    try:
        measure(options, record, said)
    except KeyboardInterrupt:
        stopped = True
        console.print("stopped; this is what it found")
    if options.dry_run:
        console.print("a dry run on the host driver: the times mean nothing")
    console.print(f"{record.device.get('name', 'no device')}, {record.data.get('seconds', '?')} s", markup=False)
    show(record, console)
    if record.path:
        console.print(f"results: {record.path}", markup=False, soft_wrap=True)
    if not (stopped or options.dry_run or options.only or options.cases or record.failures() or record.data["skipped"]):
        name = record.device["name"]
        console.print(f"every check passed: {name!r} may stand in kernels_cu/proven.py", markup=False, soft_wrap=True)
    return 1 if stopped or record.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
