"""The remedies, and the table of their replays: as it was, and with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.table import Table

from vmm import format_size

from ..figure_table import FigureTable
from .conclusion import conclusion
from .rehearsal import Rehearsed
from .report import Report

_ROWS: tuple[tuple[str, Callable[[Rehearsed], str]], ...] = (
    ("KV cache, all GPUs", lambda found: format_size(found.kv_bytes, aligned=True) if found.kv_bytes > 0 else "none"),
    ("output tokens/s", lambda found: f"{found.tokens_per_s:,.1f}"),
    ("duration", lambda found: f"{found.duration_s:,.1f} s"),
    ("prefill / decode", lambda found: f"{found.prefill_s:,.1f} / {found.decode_s:,.1f} s"),
    ("running, mean", lambda found: f"{found.running_mean:.1f}"),
    ("running, peak", lambda found: f"{found.running_peak:,}"),
    ("preemptions", lambda found: f"{found.preemptions:,}"),
    ("completed", lambda found: f"{found.completed:,}"),
    ("rejected", lambda found: f"{found.rejected:,}"),
    ("KV never used", lambda found: format_size(found.never_used, aligned=True) if found.never_used else "-"),
)


def remedy_rows(report: Report) -> Table:
    """Each remedy with its reason, and why it is not replayed where it is not."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for number, treatment in enumerate(report.treatments, 1):
        why_not = treatment.why_not(report.before) if report.replayed else "replays were left out"
        made.add_row(f"  {number}.", f"{treatment.remedy.options}: {treatment.remedy.why}")
        if why_not:
            made.add_row("", f"not replayed: {why_not}")
    return made


def replay_table(report: Report) -> FigureTable | None:
    """One column as it was and one a remedy; None where nothing was replayed."""
    if report.before is None:
        return None
    columns = [("as it was", report.before)]
    columns += [(f"remedy {i}", found.after) for i, found in enumerate(report.treatments, 1) if found.after is not None]
    made = FigureTable("", *(name for name, _ in columns))
    for label, cell in _ROWS:
        made.add_row(
            f"  {label}", *("-" if found.why_not and label != _ROWS[0][0] else cell(found) for _, found in columns)
        )
    return made


def replay_notes(report: Report) -> Iterator[str]:
    """What a column without figures means, what was assumed, and what to conclude."""
    if report.before is None:
        return
    if report.before.why_not:
        yield f"As it was: {report.before.why_not}."
    elif report.run.failures:
        yield "As it was is what the server would have served, had it not failed."
    for number, treatment in enumerate(report.treatments, 1):
        if treatment.after is not None and treatment.after.why_not:
            yield f"Remedy {number}: {treatment.after.why_not}."
    if report.case is not None and report.case.assumed:
        yield f"Assumed, as the log does not say: {', '.join(report.case.assumed)}."
    yield "All of it is an estimate: the roofline's time for each step; compare the columns, not a column with the log."
    if concluded := conclusion(report, report.before):
        yield concluded
