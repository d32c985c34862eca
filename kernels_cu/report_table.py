"""The report as tables of text, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .report import KernelReport


def print_report(found: Sequence[KernelReport]) -> None:
    """Print what every kernel needs, and the main loops of those that have one."""
    console = Console()
    console.print(_needs(found))
    loops = [row for row in found if row.loop]
    if loops:
        console.print()
        console.print("instructions of the main loop for 16 tokens, and their part of the issue slots")
        console.print(_loops(loops))


def _needs(found: Sequence[KernelReport]) -> Table:
    table = _table("registers", "spills", "stack", "shared", "blocks", "params")
    for row in found:
        needs = row.needs
        cells = (needs.registers, needs.spills, needs.stack, row.shared, row.thread_blocks, len(needs.parameters))
        table.add_row(needs.kernel, needs.arch, *map(str, cells))
    return table


def _loops(found: Sequence[KernelReport]) -> Table:
    table = _table("all", "copies", "of 16 B", "HMMA", "LDSM", "MOVM", "BAR", "issue")
    for row in found:
        assert row.loop
        share = row.issue_share
        counts = (f"{count:.0f}" for count in row.loop.for_16_tokens(row.token_bytes).values())
        table.add_row(row.needs.kernel, row.needs.arch, *counts, "?" if share is None else f"{share:.0%}")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), collapse_padding=True, pad_edge=False)
    table.add_column("kernel", no_wrap=True)
    table.add_column("arch", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
