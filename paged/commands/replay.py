"""python -m paged replay: how virtual and physical memory grow under a request trace, policy by policy."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import vmm
from vmm.commands import terminal

from ..policies import POLICIES
from ..recording.replayed import check_recordable, record_policy
from ..replay import Run, load_workloads, report_of, run_all
from ..replay.chart import plot
from ..replay.idle_options import idle_options
from ..replay.options import Options
from ..replay.processes import ReplayError
from ..replay.report import PolicyResult, Report
from ..replay.setup import describe_budget, prepare
from ..replay.table import driver_time_source, table, uncosted_calls
from ..replay.verdict import conclusion, rejections
from ..serving.driver_costs import SETS, driver_costs
from ..serving.scheduler import SchedulerError
from ..serving.workload import DEFAULT_RATE, GENERATED_RATE, Workload
from .offered import FILE, MODEL, OFFERED, POLICY
from .outputs import check_outputs, output_options, write_json

_PIPE_WIDTH = 120
_BACKINGS = {"none": "none (the driver's rules, no bytes)"}

_EPILOG = """\b
Columns of a trace, each with priority if you like (whole numbers, the lower the sooner):
  CSV         TIMESTAMP (2023-11-16 18:15:46.68), ContextTokens, GeneratedTokens
  CSV         num_prefill_tokens, num_decode_tokens, and arrived_at (seconds) or --rate
  JSON lines  timestamp (milliseconds), input_length, output_length, and hash_ids

\b
Examples:
  python -m paged replay --plot growth.png
  python -m paged replay azure_conv_2023.csv --model llama-3-8b --gpu-memory 80GiB --json-output out.json
  python -m paged replay trace.jsonl --policy paged-vmm --policy static --rate-scale 4 --limit 2000
  python -m paged replay trace.csv --policy paged-vmm --order layer --compact 1.1
  python -m paged replay trace.csv --policy paged-vmm --record run.pagewalk
  python -m paged replay --model llama-3-8b --trace a.csv --model qwen2.5-7b --trace b.csv --policy paged-vmm
"""


def _option(flag: str, kind: Any, text: str, **settings: Any) -> Callable[[Any], Any]:
    """An option for the field of Options of the same name; the help shows that field's default."""
    name = flag.split("/")[0].strip("-").replace("-", "_")
    default = _DEFAULTS[name]
    if kind is bool:
        return click.option(flag, default=None, help=text, **settings)
    shown = "" if default is None else f" [{default:g}]" if isinstance(default, float) else f" [{default}]"
    return click.option(flag, type=kind, help=text + shown, shell_complete=OFFERED.get(name), **settings)


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Options)}
_POLICY_HELP = f"Repeatable: {', '.join(POLICIES)}; or all."


@click.command(epilog=_EPILOG)
@click.argument("trace", required=False, type=click.Path())
@click.option(
    "--model",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=MODEL,
    help="A preset, a Hugging Face name, or the path of a config.json. Repeated: models that share the GPU, a step "
    "each in turn, and the KV budget; under paged-vmm memory flows to whoever needs it, else each has an equal part. "
    f"[{_DEFAULTS['model']}]",
)
@click.option("--trace", "traces", multiple=True, type=FILE, metavar="FILE", help="As TRACE; one for each --model.")
@_option("--kv-cache-dtype", str, "Type of K and V: auto, bfloat16, float16, float32, fp8 (e4m3) or int8.")
@click.option("--policy", "policies", multiple=True, shell_complete=POLICY, metavar="NAME", help=_POLICY_HELP)
@_option("--gpu-memory", str, "Memory of the GPU; what is free on a real one, 80 GiB on the host.", metavar="SIZE")
@_option("--gpu-memory-utilization", float, "Fraction of it to use.")
@_option("--activation-memory", str, "Set aside for activations.", metavar="SIZE")
@_option("--max-model-len", int, "Longest prompt and output together; by default the model's own.")
@_option("--max-num-seqs", int, "Most sequences that run at once.")
@_option("--max-num-batched-tokens", int, "Most tokens computed in one step.")
@_option("--block-size", int, "Tokens a KV block.")
@_option("--chunk", str, "One physical allocation; by default the driver's granularity.", metavar="SIZE")
@_option("--order", str, "block: contiguous over all layers; layer: a plane or span a layer.")
@_option("--reserve", float, "Empty rows that paged-vmm keeps mapped, as a fraction of those in use.")
@_option("--compact", float, "Move blocks together where rows have so many times their bytes: 1.1.", metavar="RATIO")
@_option("--compact-blocks", int, "Most blocks moved before one step.")
@_option("--prefix-cache/--no-prefix-cache", bool, "Share the blocks of prompts that begin alike (paged policies).")
@_option("--scheduling", str, "Who goes first: fcfs, or priority (a column of the trace; the lower the sooner).")
@_option("--watermark", float, "Fraction of the budget that an admission leaves free.")
@_option("--preemption", str, "recompute, or swap to host memory and back.")
@_option("--swap-space", str, "Host memory for that; what has no room is computed again.", metavar="SIZE")
@_option("--pcie-bandwidth", float, "Bytes a second to and from the host.")
@_option("--charge-driver-time/--no-charge-driver-time", bool, "Let driver calls lengthen the steps after them.")
@_option(
    "--rate",
    float,
    f"Requests a second of a workload without arrival times.  [{DEFAULT_RATE:.3g}, the mean of azure_conv 2023, for a "
    f"trace; {GENERATED_RATE:g} for one that is made]",
)
@_option("--rate-scale", float, "Divides the gaps between arrivals.")
@_option("--limit", int, "Take the first so many requests; without a trace, make so many (2,000 by default).")
@_option("--seed", int, "Seed of all that is drawn.")
@_option("--driver", str, "cuda or host; by default the real one where there is one.")
@_option("--backing", str, "Of the host driver: none (rules without bytes) or memory.")
@_option("--driver-costs", str, f"Cost of driver calls on the host: {', '.join(SETS)}, or a file.", metavar="NAME|FILE")
@_option("--flops", float, "Roofline: operations a second.")
@_option("--bandwidth", float, "Roofline: bytes a second.")
@_option("--step-overhead", float, "Roofline: seconds a step.")
@click.option("--processes", type=click.IntRange(1), help="So many policies run side by side; by default one a CPU.")
@click.option("--calls", is_flag=True, help="Count the driver calls of each name too, as the JSON always does.")
@output_options
@click.option(
    "--record", "record_path", type=FILE, metavar="FILE", help="Record one paged policy, for view and export."
)
def replay(
    trace: str | None,
    traces: tuple[str, ...],
    processes: int | None,
    calls: bool,
    as_json: bool,
    json_path: str | None,
    plot_path: str | None,
    record_path: str | None,
    **given: Any,
) -> None:
    """Compare how virtual and physical memory grow under a request trace.

    TRACE is an Azure CSV, a Mooncake JSONL or a CSV with lengths (columns below); without one, a workload is made from
    published quantiles. Continuous batching is simulated to the step, and the real allocators serve it, policy by
    policy.
    """
    options = Options(**{name: value for name, value in given.items() if value not in (None, ())})
    files = [trace, *traces] if trace is not None else list(traces)
    check_outputs(files, json_path, plot_path, record_path)
    setup = prepare(options)
    run = Run(setup, load_workloads(files, options), driver_costs(options.driver_costs))
    if record_path is not None:
        check_recordable(run)
    console = terminal.console(sys.stderr if as_json else sys.stdout, _PIPE_WIDTH)
    _introduce(console, run)
    with _failures():
        with _progress(run) as progress:
            if record_path is None:
                results = run_all(run, processes or len(os.sched_getaffinity(0)), progress)
            else:
                results = _record(run, record_path, progress)
        report = report_of(run, results)
        if plot_path is not None:
            plot(report, plot_path)
        write_json(report.json_text(), as_json, json_path)
    _conclude(console, report, run, calls, plot_path)
    if not any(result.completed for result in report.policies.values()):
        raise click.exceptions.Exit(1)


def _record(run: Run, path: str, progress: Callable[[str, int], None] | None) -> dict[str, PolicyResult]:
    """Run the one policy and write its recording."""
    result, recording = record_policy(run, progress)
    recording.save(path)
    click.echo(f"{len(recording):,} events are in {path}: python -m paged view {path} -o view.html", err=True)
    return {run.setup.options.policies[0]: result}


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """From here on nothing is bad usage any more: whatever fails is a failed run, status 1."""
    try:
        yield
    except (ReplayError, SchedulerError, ValueError, vmm.VmmError, MemoryError, OSError) as error:
        raise click.ClickException(str(error) or type(error).__name__) from error


def _introduce(console: Console, run: Run) -> None:
    """On what, with which budget, and which workload."""
    setup = run.setup
    console.print(
        f"Driver {setup.driver}, device {setup.device_name}, backing {_BACKINGS.get(setup.backing, setup.backing)}"
    )
    models = "; ".join(f"{one.model.name}: {one.layout.spec}" for one in setup.members)
    console.print(f"{models}; {describe_budget(setup)}")
    for load in run.workloads:
        _describe(console, load, setup.options)
    for note in idle_options(setup, run.workloads):
        console.print(f"note: {note}")


def _describe(console: Console, load: Workload, options: Options) -> None:
    """One workload: how many requests, how long."""
    lengths = load.lengths()
    console.print(
        f"{load.name}: {len(load):,} requests in {load.arrival_s[-1]:,.0f} s; prompts of {lengths['prompt']['p50']:,} "
        f"tokens (median; at most {lengths['prompt']['max']:,}), outputs of {lengths['output']['p50']:,} "
        f"(at most {lengths['output']['max']:,})"
    )
    for note in load.notes:
        console.print(f"note: {note}")
    if load.hash_ids is not None and not options.prefix_cache:
        console.print(
            "note: the trace says which prompts begin alike; with --prefix-cache the paged policies share that"
        )


@contextlib.contextmanager
def _progress(run: Run) -> Iterator[Callable[[str, int], None] | None]:
    """A bar a policy on a terminal; nothing in a pipe."""
    if not terminal.is_terminal(sys.stderr):
        yield None
        return
    columns = (TextColumn("{task.description:<15}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        total = sum(map(len, run.workloads))
        tasks = {name: bars.add_task(name, total=total, start=False) for name in run.setup.options.policies}

        def tell(name: str, done: int) -> None:
            if not bars.tasks[tasks[name]].started:
                bars.start_task(tasks[name])
            bars.update(tasks[name], completed=done)

        yield tell


def _conclude(console: Console, report: Report, run: Run, calls: bool, plot_path: str | None) -> None:
    console.print()
    console.print(table(report, calls=calls))
    real = run.setup.driver != "host"
    costs = "measured" if real else f"by the published costs {run.costs.name!r} ({run.costs.source})"
    console.print(driver_time_source(report, costs))
    if left_out := uncosted_calls(report):
        console.print(left_out)
    if plot_path is not None:
        console.print(f"The picture is in {plot_path}.")
    if rejected := rejections(report):
        console.print(rejected)
    console.print(conclusion(report))
