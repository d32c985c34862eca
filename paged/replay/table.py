"""A replay's report for people: a table with one column a policy, and where its driver time comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from vmm import format_size

from ..figure_table import FigureTable
from ..policies import CAUSES
from ..serving.workload import HASH_BLOCK
from .report import Figure, PolicyResult, PrefixUse, Report

Rows = Iterator[tuple[str, Callable[[PolicyResult], str]]]


def table(report: Report, *, calls: bool = False) -> FigureTable:
    """All figures: means are weighted by simulated time, waste is the mean of what is committed and not live.

    With ``calls`` the driver calls of each name are counted too.
    """
    made = FigureTable("", *report.policies)
    for section in (_memory(report), _waste(report), _service(report), _steps(report), _driver(report, calls)):
        for label, cell in section:
            made.add_row(label, *(cell(result) for result in report.policies.values()))
        made.add_row()
    return made


def _mean_and_peak(label: str, pick: Callable[[PolicyResult], Figure]) -> Rows:
    yield f"{label}, mean", lambda result: format_size(pick(result).mean, aligned=True)
    yield f"{label}, peak", lambda result: format_size(pick(result).peak, aligned=True)


def _memory(report: Report) -> Rows:
    yield from _mean_and_peak("reserved", lambda result: result.reserved)
    yield from _mean_and_peak("committed", lambda result: result.committed)
    yield from _mean_and_peak("live", lambda result: result.live)
    yield "committed over live", lambda result: _ratio(result.committed_over_live)
    if any(result.prefix for result in report.policies.values()):
        yield "committed over live+cached", lambda result: _ratio(result.committed_over_kept)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _waste(report: Report) -> Rows:
    """The causes that some policy has."""
    for cause in CAUSES:
        if any(result.waste[cause] for result in report.policies.values()):
            yield f"waste: {cause}", partial(_wasted, cause)


def _wasted(cause: str, result: PolicyResult) -> str:
    return format_size(result.waste[cause], aligned=True) if result.waste[cause] else "-"


def _served(report: Report) -> Rows:
    """Of several models, what became of each."""
    names = [served.model for served in next(iter(report.policies.values())).models]
    for number, name in enumerate(names if len(names) > 1 else ()):
        yield f"{number + 1}: {name} done at", partial(_finished, number)
        yield f"{number + 1}: output tokens/s", partial(_rate_of, number)
        yield f"{number + 1}: preemptions", partial(_preemptions_of, number)


def _finished(number: int, result: PolicyResult) -> str:
    return f"{result.models[number].finished_s:,.1f} s"


def _rate_of(number: int, result: PolicyResult) -> str:
    return f"{result.models[number].tokens_per_s:,.1f}"


def _preemptions_of(number: int, result: PolicyResult) -> str:
    return f"{result.models[number].preemptions:,}"


def _bound(term: str, result: PolicyResult) -> str:
    return f"{result.bound_steps[term]:,}"


def _count(call: str, result: PolicyResult) -> str:
    return f"{result.driver_calls[call]:,}" if call in result.driver_calls else "-"


def _service(report: Report) -> Rows:
    results = report.policies.values()
    yield "running, mean", lambda result: f"{result.running.mean:.1f}"
    yield "running, peak", lambda result: f"{result.running.peak:,}"
    yield "preemptions", lambda result: f"{result.preemptions:,}"
    if report.options["preemption"] == "swap":
        yield "of them by swap", lambda result: f"{result.swapped:,}"
        yield "swapped, out and back", lambda result: format_size(result.swapped_bytes, aligned=True)
    if any(result.prefix for result in results):
        yield "prompt tokens found", lambda result: _found(result.prefix, "tokens")
        yield f"prompt blocks of {HASH_BLOCK} found", lambda result: _found(result.prefix, "blocks")
    yield "completed", lambda result: f"{result.completed:,}"
    yield "rejected: too long", lambda result: f"{result.too_long:,}"
    yield "rejected: never fits", lambda result: f"{result.never_fits:,}"
    yield from _served(report)
    yield "duration", lambda result: f"{result.duration_s:,.1f} s"
    yield "output tokens/s", lambda result: f"{result.tokens_per_s:,.1f}"


def _found(prefix: PrefixUse | None, unit: str) -> str:
    if prefix is None:
        return "-"
    hit, rate = (prefix.hit_tokens, prefix.token_rate) if unit == "tokens" else (prefix.hit_blocks, prefix.hit_rate)
    return f"{hit:,} ({rate:.1%})"


def _steps(report: Report) -> Rows:
    results = report.policies.values()
    yield "prefill time", lambda result: f"{result.prefill_s:,.1f} s"
    yield "decode time", lambda result: f"{result.decode_s:,.1f} s"
    for term in ("compute", "bandwidth", "overhead"):
        yield f"steps bound by {term}", partial(_bound, term)
    if any(result.waited_s for result in results):
        yield "of it for bus and driver", lambda result: f"{result.waited_s:,.2f} s"
    if report.options["compact"] is not None and "paged-vmm" in report.policies:
        yield "blocks compaction moved", lambda result: f"{result.moved_blocks:,}" if result.moved_blocks else "-"
    yield "copied", lambda result: format_size(result.copied_bytes, aligned=True) if result.copied_bytes else "-"
    if any(result.copied_bytes for result in results):
        yield "copied/KV written", lambda result: f"{result.copied_share:.2%}" if result.copied_bytes else "-"


def _driver(report: Report, each: bool) -> Rows:
    if each:
        missing = _uncosted(report)
        for call in sorted({name for result in report.policies.values() for name in result.driver_calls}):
            yield f"{call}, no cost" if call in missing else call, partial(_count, call)
    yield "driver calls", lambda result: f"{sum(result.driver_calls.values()):,}"
    yield "driver time", lambda result: f"{result.driver_s:,.2f} s"
    yield (
        "driver time/duration",
        lambda result: f"{result.driver_s / result.duration_s:.2%}" if result.duration_s else "-",
    )


def _uncosted(report: Report) -> set[str]:
    """Calls whose cost nobody published."""
    return {call for result in report.policies.values() for call in result.uncosted}


def driver_time_source(report: Report, source: str) -> str:
    """Where the driver time comes from, and whether it is in the duration."""
    size = "" if report.driver != "host" else ", a call whatever its size"
    charged = report.options["charge_driver_time"]
    part = "in the duration from the first step on" if charged else "not in the duration"
    return f"Driver time is {source}{size}; {part}."


def uncosted_calls(report: Report) -> str | None:
    """How many kinds of call the driver time leaves out; None where it has them all."""
    missing = len(_uncosted(report))
    many = "1 kind of driver call has" if missing == 1 else f"{missing} kinds of driver call have"
    return f"{many} no known cost and count{'s' * (missing == 1)} as 0; --calls marks them." if missing else None
