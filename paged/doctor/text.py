"""The report for people: sections of rows, each row a label and what there is to say of it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from vmm import format_size

from .account import Account
from .report import Report
from .server_run import ServerRun
from .serving_tally import Sample

Row = tuple[str, str]
_PART_NAMES = {
    "weights": "weights",
    "activations": "activations (peak)",
    "non_torch": "outside PyTorch",
    "graphs": "graph pools",
    "kv": "KV cache",
}


def sections(report: Report) -> Iterator[tuple[str, Table]]:
    """Every section that the log has something for: its title and its rows."""
    for title, rows in (
        ("The log", _log(report)),
        ("Memory of one GPU", _memory(report)),
        ("Serving", _serving(report)),
        ("Lengths", _lengths(report)),
        ("When memory ran out", _failures(report)),
        ("nvidia-smi at that moment", _smi(report)),
        ("Lines not understood", _unknown(report)),
        ("Cause", _causes(report)),
    ):
        found = list(rows)
        if found:
            yield title, _table(found)


def _table(rows: list[Row]) -> Table:
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True, min_width=20)
    made.add_column(overflow="fold")
    for label, text in rows:
        made.add_row(f"  {label}", text)
    return made


def _log(report: Report) -> Iterator[Row]:
    log, run, lines = report.log, report.run, report.log.lines
    yield (
        "lines",
        f"{lines.read:,} read: {lines.understood:,} understood, {lines.passed_over:,} passed over (requests' access, "
        f"tracebacks), {lines.not_understood:,} not understood"
        + (f", {lines.damaged:,} damaged" if lines.damaged else ""),
    )
    version = f"vLLM {run.version}" if run.version else "vLLM of unknown version"
    yield "server", f"{version}, engine {run.generation}, {_model(report)}"
    if log.starts > 1:
        why = "the last in which memory ran out" if run.failure_count or run.preemptions else "the last"
        yield (
            "starts",
            f"{log.starts:,} in the log (versions {', '.join(log.versions)}); told of line {run.line:,} on, {why}",
        )
    shown = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in run.options.items() if name != "model")
    if shown:
        yield "options", shown


def _model(report: Report) -> str:
    model = report.model
    if model.spec is None:
        return model.why_not
    gpus = f" on {model.gpus} GPUs" if model.gpus > 1 else ""
    return f"{model.name}{gpus}: {model.spec.token_bytes >> 10:,} KiB of KV a token"


def _memory(report: Report) -> Iterator[Row]:
    account = report.account
    if account.total:
        use = f" x {account.utilization:g}" if account.utilization else ""
        asked = (
            f"; requested {format_size(account.requested)}{_mark(account, 'requested')}" if account.requested else ""
        )
        yield "total", f"{format_size(account.total)}{use}{asked}"
    for name, size in account.parts.items():
        yield _PART_NAMES[name], f"{format_size(size) if size >= 0 else '-' + format_size(-size)}{_mark(account, name)}"
    cache = report.capacity
    if cache.tokens:
        longest = report.run.number("max_model_len")
        whole = f", {cache.tokens / longest:.1f} sequences of the longest, {longest:,}" if longest else ""
        yield "KV cache holds", f"{cache.tokens:,} tokens ({cache.source}){whole}"
    unused = _unused(report)
    if unused:
        yield "reserved, never used", "; ".join(unused)


def _mark(account: Account, name: str) -> str:
    return " (estimate)" if name in account.estimates else ""


def _unused(report: Report) -> list[str]:
    account, peak, found = report.account, report.run.serving.peak_usage, []
    if account.kv_unused is not None and peak is not None and peak.usage is not None:
        found.append(f"{format_size(account.kv_unused)} of the KV cache (usage never passed {peak.usage:.1%})")
    if account.outside:
        found.append(f"{format_size(account.outside)} never requested")
    return found


def _serving(report: Report) -> Iterator[Row]:
    serving, times = report.run.serving, report.phases
    if not serving.lines:
        return
    for label, sample in (("most running", serving.peak_running), ("fullest KV cache", serving.peak_usage)):
        if sample is not None:
            yield label, _moment(sample)
    busy = times.prefill_s + times.decode_s + times.unknown_s
    if busy:
        unknown = f", {times.unknown_s:,.0f} s of either" if times.unknown_s >= 1 else ""
        yield (
            "prefill / decode",
            f"{times.prefill_s:,.0f} s / {times.decode_s:,.0f} s{unknown} of {busy:,.0f} s busy (estimate: from the "
            "lines of throughput)",
        )
        yield "tokens", f"{times.prompt_tokens:,} of prompts, {times.output_tokens:,} of outputs (rates x intervals)"
    if report.run.preemptions:
        at = report.run.at_first_preemption
        yield "preemptions", f"at least {report.run.preemptions:,}" + (f"; the first after {_moment(at)}" if at else "")
    if report.fill is not None:
        yield (
            "blocks filled",
            f"{report.fill.share:.1%} of the slots of {report.fill.block_size} tokens a block (estimate: "
            f"{report.fill.source})",
        )
    rate = _hit_rate(report.run)
    if rate is not None:
        yield "prefix cache", f"{rate:.1%} hit rate at the end of the log"
    for point in report.points:
        yield (
            f"decode at {point.running:.0f}",
            f"{point.rate:,.0f} tokens/s, {point.step_s * 1e3:.1f} ms a step (estimate)",
        )
    if report.growth is not None:
        small, large = report.growth.small.running, report.growth.large.running
        yield (
            "growth",
            f"from {small:.0f} to {large:.0f} running: outputs by batch to the power of {report.growth.exponent:.2f}",
        )


def _hit_rate(run: ServerRun) -> float | None:
    """V1 has it in each line of throughput, V0 in a line of its own."""
    last = run.serving.last
    return last.hit_rate if last and last.hit_rate is not None else run.value("prefix_hit_rate")


def _moment(sample: Sample) -> str:
    usage = "" if sample.usage is None else f", KV cache {sample.usage:.1%} in use"
    return f"{sample.running} running, {sample.waiting} waiting{usage} (line {sample.line:,})"


def _lengths(report: Report) -> Iterator[Row]:
    run = report.run
    for label, counts in (("log: prompts", run.prompts), ("log: max_tokens", run.max_tokens)):
        if counts.total:
            yield label, _quantiles(counts.summary()) + f" of {counts.total:,} requests"
    if report.workload is not None:
        for name, values in report.workload.lengths().items():
            yield f"given: {name}s", f"{_quantiles(values)} of {len(report.workload):,} requests"
        for note in report.workload.notes:
            yield "note", note


def _quantiles(values: dict[str, int]) -> str:
    return f"median {values['p50']:,}, 90% {values['p90']:,}, 99% {values['p99']:,}, longest {values['max']:,} tokens"


def _failures(report: Report) -> Iterator[Row]:
    run = report.run
    for failure in run.failures[:3]:
        ran = f"; {failure.sample.running} running, {failure.sample.waiting} waiting" if failure.sample else ""
        yield f"line {failure.line:,}", f"{failure.text[:160]}{'...' if len(failure.text) > 160 else ''}{ran}"
    if run.failure_count > 3:
        yield "", f"{run.failure_count:,} such lines in all"


def _causes(report: Report) -> Iterator[Row]:
    if not report.findings:
        yield "none", _nothing(report.run)
    for finding in report.findings:
        text = "; ".join(finding.figures)
        yield finding.cause, text + (" (estimate)" if finding.estimate and "(estimate" not in text else "")


def _nothing(run: ServerRun) -> str:
    peak = run.serving.peak_usage
    if peak is None or peak.usage is None:
        return "no line says that memory ran out, and none says how the server was used"
    return f"memory did not run out: the KV cache was {peak.usage:.1%} full at most; throughput did not stop growing"


def _smi(report: Report) -> Iterator[Row]:
    view = report.view
    if view.used is None and view.total is None:
        return
    for row in view.rows():
        yield "", row + (" (estimate; contexts come on top)" if view.estimate and "process VLLM" in row else "")
    for text in view.cannot:
        yield "cannot tell", text


def _unknown(report: Report) -> Iterator[Row]:
    lines = report.log.lines
    shown = lines.shown()
    for number, text in shown:
        yield f"line {number:,}", text
    if lines.not_understood > len(shown):
        yield "", f"and {lines.not_understood - len(shown):,} more"
