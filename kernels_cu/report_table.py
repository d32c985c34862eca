"""The report as tables of text, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .memory_findings import findings
from .memory_report import LAYERS, LENGTHS, MemoryRow
from .report import KernelReport

_LEGEND = (
    ("order", "a KV block holds all layers (block), or each has a plane (layer)"),
    ("KV blocks", "of a sequence: in order, or shuffled over the pool"),
    ("sectors each", "sectors of 32 bytes, a request of a warp"),
    ("bytes used", "of all bytes of those sectors"),
    ("pages in all", "pages of 2 MiB that the launch touches"),
    ("bank turns", "turns of the banks of shared memory over the fewest possible"),
)


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
    """Print what the requests of each kernel to the cache cost, what each figure is, and what to conclude."""
    console = Console()
    console.print(f"one layer of {LAYERS}, {len(LENGTHS)} sequences of {LENGTHS[0]} tokens")
    console.print(_legend())
    console.print()
    console.print(_memory(found))
    console.print()
    for sentence in findings(found):
        console.print(sentence)


def _legend() -> Table:
    legend = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name, meaning in _LEGEND:
        legend.add_row(f"  {name}", meaning)
    return legend


def _memory(found: Sequence[MemoryRow]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), collapse_padding=True, pad_edge=False)
    for column in ("kernel", "layout", "order", "KV\nblocks", ""):
        table.add_column(column, no_wrap=True)
    for column in ("sectors\neach", "bytes\nused", "pages\nin all", "bank\nturns"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found:
        figures = (f"{row.sectors_per_request:.1f}", f"{row.used:.0%}", str(row.pages))
        banks = "" if row.conflicts is None else f"{row.conflicts:.2f}"
        what = (row.kernel, row.layout, row.order, row.place, "store" if row.write else "load")
        table.add_row(*what, *figures, banks)
    return table


def _needs(found: Sequence[KernelReport]) -> Table:
    table = _table("registers", "spills", "stack", "shared", "thread\nblocks", "params")
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
