"""The report as tables of text, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .memory_report import MemoryRow
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


def print_memory(found: Sequence[MemoryRow]) -> None:
    """Print what the requests of each kernel to the cache cost."""
    table = Table(box=None, padding=(0, 1, 0, 0), collapse_padding=True, pad_edge=False)
    for column in ("kernel", "layout", "order", "blocks", ""):
        table.add_column(column, no_wrap=True)
    for column in ("sectors", "used", "pages", "all", "banks"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found:
        figures = (f"{row.sectors_per_request:.1f}", f"{row.used:.0%}", f"{row.pages_per_request:.2f}", str(row.pages))
        banks = "" if row.conflicts is None else f"{row.conflicts:.2f}"
        what = (row.kernel, row.layout, row.order, row.place, "store" if row.write else "load")
        table.add_row(*what, *figures, banks)
    Console().print(table)


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
