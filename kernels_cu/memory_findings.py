"""What to conclude from the figures of ``memory_report``: bytes that nobody uses, pages, and waits for banks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .memory_report import ORDERS, MemoryRow

_NOTHING = 0.005
"""Less than a figure in the table shows."""


def findings(rows: Sequence[MemoryRow]) -> Iterator[str]:
    """A sentence on each figure, all kernels together."""
    yield _used(rows)
    yield _pages(rows)
    yield from _straddling(rows)
    yield from _banks(rows)


def _used(rows: Sequence[MemoryRow]) -> str:
    """The kernels of which requests fetch more than they use, by layout."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.used < 1 - _NOTHING:
            found.setdefault(row.kernel, {})[f"{row.used:.0%} in layout {row.layout}"] = None
    if not found:
        return "Every byte fetched is used."
    told = "; by ".join(f"{kernel} {', '.join(parts)}" for kernel, parts in found.items())
    return f"Not every byte fetched is used: by {told}."


def _pages(rows: Sequence[MemoryRow]) -> str:
    """On how many pages the blocks of one layer lie, by the order of the pool."""
    counts = {order: [row.pages for row in rows if row.order == order] for order in ORDERS}
    told = ", ".join(f"{_range(pages)} in order {order}" for order, pages in counts.items() if pages)
    return f"Pages that one layer's KV blocks lie on: {told}. Each needs a translation of its own."


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least} to {most}"


def _straddling(rows: Sequence[MemoryRow]) -> Iterator[str]:
    """Requests that touch several pages."""
    worst = max(rows, key=lambda row: row.pages_per_request)
    if worst.pages_per_request > 1 + _NOTHING:
        yield f"A request of {worst.kernel} touches up to {worst.pages_per_request:.2f} pages (mean of a launch)."


def _banks(rows: Sequence[MemoryRow]) -> Iterator[str]:
    """The kernels that wait for banks of shared memory; nothing where none uses it."""
    turns = [(row.conflicts, row.kernel) for row in rows if row.conflicts is not None]
    slow = {f"{kernel} ({count:.2f})": None for count, kernel in turns if count > 1 + _NOTHING}
    if slow:
        yield f"More turns of the banks than needed: {', '.join(slow)}."
    elif turns:
        yield "No kernel waits for a bank of shared memory."
