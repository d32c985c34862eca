"""A replay's report for people: a table with one column a policy, and one sentence that says what to conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rich.table import Table

from vmm import format_size

from ..policies import CAUSES
from .report import Figure, PolicyResult, Report

Rows = Iterator[tuple[str, Callable[[PolicyResult], str]]]


def table(report: Report) -> Table:
    """All figures: means are weighted by simulated time, waste is the mean of what is committed and not live."""
    made = Table(box=None, pad_edge=False, header_style="bold", title=None)
    made.add_column("", no_wrap=True)
    for name in report.policies:
        made.add_column(name, justify="right", overflow="fold")
    for section in (_memory(), _waste(report), _service(report), _steps(report), _calls(report)):
        for label, cell in section:
            made.add_row(label, *(cell(result) for result in report.policies.values()))
        made.add_section()
        made.add_row()
    return made


def _mean_and_peak(label: str, pick: Callable[[PolicyResult], Figure]) -> Rows:
    yield f"{label}, mean", lambda result: format_size(pick(result).mean)
    yield f"{label}, peak", lambda result: format_size(pick(result).peak)


def _memory() -> Rows:
    yield from _mean_and_peak("reserved", lambda result: result.reserved)
    yield from _mean_and_peak("committed", lambda result: result.committed)
    yield from _mean_and_peak("live", lambda result: result.live)
    yield "committed over live", lambda result: _ratio(result.committed_over_live)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _waste(report: Report) -> Rows:
    """The causes that some policy has."""
    for cause in CAUSES:
        if any(result.waste[cause] for result in report.policies.values()):
            yield f"waste: {cause}", partial(_wasted, cause)


def _wasted(cause: str, result: PolicyResult) -> str:
    return format_size(result.waste[cause]) if result.waste[cause] else "-"


def _served(report: Report) -> Rows:
    """Of several models, when each had ended."""
    names = [served.model for served in next(iter(report.policies.values())).models]
    for number, name in enumerate(names if len(names) > 1 else ()):
        yield f"{number + 1}: {name} done at", partial(_finished, number)


def _finished(number: int, result: PolicyResult) -> str:
    return f"{result.models[number].finished_s:,.1f} s"


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
        yield "swapped, out and back", lambda result: format_size(result.swapped_bytes)
    if any(result.prefix for result in results):
        yield "prompt blocks found", lambda result: f"{result.prefix.hit_rate:.1%}" if result.prefix else "-"
        yield "prompt tokens found", lambda result: f"{result.prefix.hit_tokens:,}" if result.prefix else "-"
    yield "completed", lambda result: f"{result.completed:,}"
    yield "rejected: too long", lambda result: f"{result.too_long:,}"
    yield "rejected: never fits", lambda result: f"{result.never_fits:,}"
    yield from _served(report)
    yield "duration", lambda result: f"{result.duration_s:,.1f} s"
    yield "output tokens/s", lambda result: f"{result.tokens_per_s:,.1f}"


def _steps(report: Report) -> Rows:
    results = report.policies.values()
    yield "prefill time", lambda result: f"{result.prefill_s:,.1f} s"
    yield "decode time", lambda result: f"{result.decode_s:,.1f} s"
    for term in ("compute", "bandwidth", "overhead"):
        yield f"steps bound by {term}", partial(_bound, term)
    if any(result.waited_s for result in results):
        yield "of it for bus and driver", lambda result: f"{result.waited_s:,.2f} s"
    yield "copied", lambda result: format_size(result.copied_bytes) if result.copied_bytes else "-"
    if any(result.copied_bytes for result in results):
        yield "copied/KV written", lambda result: f"{result.copied_share:.2%}" if result.copied_bytes else "-"


def _calls(report: Report) -> Rows:
    names = sorted({name for result in report.policies.values() for name in result.driver_calls})
    for call in names:
        yield call, partial(_count, call)
    yield "driver time", lambda result: f"{result.driver_s:,.2f} s"
    yield (
        "driver time/duration",
        lambda result: f"{result.driver_s / result.duration_s:.2%}" if result.duration_s else "-",
    )


def driver_time_source(report: Report, source: str) -> str:
    """Where the driver time comes from, and which calls it leaves out."""
    missing = sorted({call for result in report.policies.values() for call in result.uncosted})
    left_out = f"; no cost published for {', '.join(missing)}" if missing else ""
    measured = report.driver != "host"
    size = "" if measured else " A price a call whatever its size: large chunks and long runs cost more than this says."
    part = (
        "It is part of the duration, but for what came before the first step"
        if report.options["charge_driver_time"]
        else "It is not part of the duration"
    )
    return f"Driver time is {source}{left_out}.{size} {part}."


def rejections(report: Report) -> str | None:
    """Which requests nobody served, and which option changes that; None if there are none."""
    too_long = max(result.too_long for result in report.policies.values())
    if not too_long:
        return None
    limit = report.options["max_model_len"]
    return (
        f"{too_long:,} of {report.requests:,} requests ({too_long / report.requests:.1%}) are longer than "
        f"max-model-len {limit:,} and were rejected; --max-model-len or another --model changes that."
    )


def conclusion(report: Report) -> str:
    """One sentence: who served more in the same memory and why, or who needed less of it to serve the same."""
    served = {name: result for name, result in report.policies.items() if result.committed_over_live}
    if not served:
        return "No policy served a request: every one was rejected; give a longer --max-model-len or more memory."
    rates = {name: result.tokens_per_s for name, result in served.items()}
    ratios = {name: result.committed_over_live or 0.0 for name, result in served.items()}
    slow = min(rates, key=rates.__getitem__)
    fast = min((name for name in rates if rates[name] >= 0.99 * max(rates.values())), key=ratios.__getitem__)
    if rates[fast] > 1.02 * rates[slow]:
        return (
            f"In the same {format_size(report.budget)} {fast} completed {rates[fast] / rates[slow]:.2f} times the "
            f"tokens per second of {slow}: it kept {ratios[fast]:.2f} bytes committed for each live byte, {slow} "
            f"{ratios[slow]:.2f}; its driver calls would take {_share(served[fast])} of the time."
        )
    lean, heavy = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    if lean == heavy:
        return f"{lean} kept {ratios[lean]:.2f} bytes committed for each live byte."
    return (
        f"All served the same {rates[slow]:,.0f} tokens/s; for each live byte {lean} kept {ratios[lean]:.2f} bytes "
        f"committed and {heavy} {ratios[heavy]:.2f}, at their peaks {format_size(served[lean].committed.peak)} and "
        f"{format_size(served[heavy].committed.peak)}; the driver calls of {lean} would take {_share(served[lean])} of "
        "the time."
    )


def _share(result: PolicyResult) -> str:
    return f"{result.driver_s / (result.duration_s or 1.0):.1%}"
