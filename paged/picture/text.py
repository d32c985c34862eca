"""A picture as lines of text: readable in a pipe and without colour, in 80 columns. Letters are sequences, or bands."""

from __future__ import annotations

from collections.abc import Iterator

from vmm import format_size

from .headline import describe, headline
from .level import NAMED
from .overview_cells import range_cells
from .picture import Picture
from .row_kinds import RowKind
from .spending import spending_of
from .text_line import Line, wrapped
from .text_rows import memory_rows
from .text_tables import band_lines, table_lines

LEAST_WIDTH = 60
"""Columns that a picture needs."""

_MOST_LINES, _MOST_ENTRIES = 24, 2_000

_MARKS = {
    RowKind.FREE: ".",
    RowKind.LIVE: "#",
    RowKind.CACHED: "~",
    RowKind.EMPTY: "_",
    RowKind.RETIRING: "/",
    RowKind.ASLEEP: "z",
}


def text_lines(picture: Picture, width: int = 80) -> Iterator[Line]:
    """The picture in lines of at most ``width`` columns: the range, what it is spent on, memory, and block tables.

    Raises ValueError for a width below ``LEAST_WIDTH``.
    """
    if width < LEAST_WIDTH:
        raise ValueError(f"a picture needs {LEAST_WIDTH} columns, not {width}; make the window wider")
    title = f"KV pool {picture.name!r}: {headline(picture)}"
    yield from wrapped(title, width, "bold")
    yield from wrapped(describe(picture), width)
    yield []
    yield from _range(picture, width)
    yield []
    yield from _spent(picture, width)
    yield []
    yield from memory_rows(picture, width, _MOST_LINES)
    yield []
    one_by_one = len(picture.tables) <= NAMED and len(picture.tables.blocks) <= _MOST_ENTRIES
    yield from table_lines(picture, width) if one_by_one else band_lines(picture, width)


def plain_text(picture: Picture, width: int = 80) -> str:
    """The text that ``show`` prints of a picture, without colours, in lines of at most ``width`` columns."""
    return "".join("".join(text for text, _style in line).rstrip() + "\n" for line in text_lines(picture, width))


def _range(picture: Picture, width: int) -> Iterator[Line]:
    """The whole reservation to scale: in each cell the kind that most of its committed chunks have."""
    planes, room = picture.planes, width - 2
    per_cell = max(1, -(-picture.rows.count // max(1, room // planes)))
    if planes * -(-picture.rows.count // per_cell) > room:  # too many planes for a cell each
        planes = 1
        per_cell = -(-picture.rows.count // room)
    counts, _edges = range_cells(picture, per_cell, planes)
    where = "of each plane" if planes > 1 else f"of plane 0, {picture.planes} in all" if picture.planes > 1 else ""
    title = f"Virtual range, {per_cell:,} chunk{'s' * (per_cell > 1)} of {format_size(picture.chunk)} a cell {where}"
    yield from wrapped(title.rstrip(), width, "bold")
    used, taken = counts[1:].argmax(0) + 1, (counts[1:].sum(0) > 0).tolist()
    marks = [_MARKS[RowKind(int(kind))] if any_ else "." for kind, any_ in zip(used.tolist(), taken, strict=True)]
    yield [("[" + "".join(marks) + "]", "")]
    ends = f"{picture.base:#x}", f"{picture.base + picture.reserved:#x}"
    if planes == picture.planes:
        yield [(ends[0] + ends[1].rjust(len(marks) + 2 - len(ends[0])), "dim")]
    else:
        yield [(f"{ends[0]} to {ends[1]}", "dim")]
    shown = sorted(set(marks) & set(_MARKS.values()), key="#~_/z.".index)
    names = {"#": "live", "~": "cached only", "_": "committed, empty", "/": "retiring", "z": "asleep", ".": "free"}
    yield from wrapped("  ".join(f"{mark} {names[mark]}" for mark in shown), width, "dim")


def _spent(picture: Picture, width: int) -> Iterator[Line]:
    """Where the committed bytes go, with a bar."""
    spent = spending_of(picture)
    what = "asleep" if picture.asleep else "committed"
    ratio = f"; committed / live {spent.total / spent.live:.2f}" if spent.live and not picture.asleep else ""
    yield from wrapped(f"What the {format_size(spent.total)} {what} are spent on{ratio}", width, "bold")
    parts = (
        ("live tokens", spent.live, "#"),
        ("unfilled slots", spent.unfilled, "="),
        ("held by id", spent.by_id, "@"),
        ("cached, idle", spent.idle, "~"),
        ("free blocks", spent.free, "_"),
        ("retiring", spent.retiring, "/"),
    )
    if not spent.total:
        return
    done, bar, room = 0, "", width - 2
    for _name, size, mark in parts:
        done += size
        bar += mark * (round(room * done / spent.total) - len(bar))
    yield [(f"[{bar}]", "")]
    sizes = (f"{mark} {name} {format_size(size)}" for name, size, mark in parts if size)
    yield from wrapped("  ".join(sizes), width, "dim", apart="  ")
