"""The short table of a run: what was checked, how fast it was, and as a share of the copy bandwidth."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from .goals import outcomes
from .record import Record

COLUMNS = ("", "KV", "µs", "GB/s", "of copy", "error / allowed", "")
_STATE = {True: "ok", False: "WRONG", None: ""}


def copy_bandwidth(record: Record) -> float | None:
    """The best bytes a second that a copy reached, read and written together."""
    found = [row["bytes"] / row["us"] * 1e6 for row in record.results("copy").values() if row.get("us")]
    return max(found, default=None)


def show(record: Record, console: Console) -> None:
    """Print everything that ended, step by step, and then what did not."""
    best = copy_bandwidth(record)
    for step in record.data["steps"]:
        results = record.results(step)
        if step == "programs":
            _programs(results, console)
        elif step == "costs":
            _costs(results, console)
        elif step != "device":
            _timed(step, results, best, console)
    if not record.data.get("dry_run"):
        _goals(record, best, console)
    for step, skipped in record.data["skipped"].items():
        named = "; ".join(skipped["items"][:3]) + ("; ..." if len(skipped["items"]) > 3 else "")
        console.print(f"{step}: {len(skipped['items'])} skipped ({skipped['reason']}): {named}", markup=False)
    for failure in record.failures():
        console.print(f"FAILED  {failure}", style="bold", markup=False)


def _goals(record: Record, best: float | None, console: Console) -> None:
    for outcome in outcomes(record, best):
        goal, kept = outcome.goal, "reached" if outcome.reached else "MISSED"
        worst = f"{outcome.value:.0%} of copy" if goal.share else f"{outcome.value:.1f} µs"
        wanted = f"{goal.share:.0%}" if goal.share else f"{goal.microseconds:.0f} µs"
        text = f"goal {wanted}, {goal.name}: {kept}, the worst of {outcome.items} is {worst} ({outcome.worst})"
        console.print(text, markup=False, highlight=False, style=None if outcome.reached else "bold")


def _other_rate(row: dict[str, Any]) -> str:
    """What stands in place of bytes a second where the memory's speed is not what is asked."""
    if "ns_a_load" in row:
        return f"{row['ns_a_load']:,.0f} ns a load"
    return f"{row['flops'] / row['us'] / 1e6:,.0f} TFLOP/s"


def row_of(item: str, row: dict[str, Any], best: float | None) -> tuple[str, ...]:
    """The cells of one timed item."""
    if "us" not in row:
        return (
            item,
            *[""] * (len(COLUMNS) - 2),
            row.get("error") or row.get("absent") or row.get("text") or _STATE[row.get("ok")],
        )
    rate = row["bytes"] / row["us"] * 1e6 if "bytes" in row else None
    errors = [row[name] for name in ("error_simple", "error_float64") if name in row]
    return (
        item,
        f"{row['kv_bytes'] / 1e6:,.0f} MB" if "kv_bytes" in row else "",
        f"{row['us']:,.1f}",
        f"{rate / 1e9:,.0f}" if rate else _other_rate(row),
        f"{rate / best:.0%}" if rate and best else "",
        f"{max(errors) / row['allowed']:.2f}" if errors else "",
        _STATE[row.get("ok")],
    )


def _timed(step: str, results: dict[str, Any], best: float | None, console: Console) -> None:
    table = Table(box=None, pad_edge=False, title=step, title_justify="left")
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if 0 < index < len(COLUMNS) - 1 else "left")
    for item, row in results.items():
        table.add_row(*row_of(item, row, best), style="bold" if row.get("ok") is False else None)
    console.print(table)


def _programs(results: dict[str, Any], console: Console) -> None:
    for item, row in results.items():
        state = "ok" if row.get("ok") else row.get("error") or f"FAILED ({row.get('status')})"
        last = row["tail"][-1] if row.get("tail") else ""
        console.print(f"{item}: {state}, {row.get('seconds', 0):.1f} s  {last}", markup=False, highlight=False)


def _costs(results: dict[str, Any], console: Console) -> None:
    for row in results.values():
        costs = ", ".join(f"{call} {cost:.1f}" for call, cost in row.get("microseconds", {}).items())
        console.print(f"driver calls, µs: {costs or row.get('error')}", markup=False, highlight=False)
