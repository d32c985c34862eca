"""Block tables with every block: a line a sequence, a cell a block, in the order of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .block_cell import Cell, Painter
from .colours import FAINT, INK, ink_on
from .level import letter
from .picture import Picture
from .sheet import WIDTH, Section, label, rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GUTTER, _WIDEST, _LINE, _CELL = 1.75, 0.46, 0.46, 0.38


def tables_blocks(picture: Picture, painter: Painter) -> Section:
    """All sequences, in the order of their names."""
    tables = picture.tables
    longest = int((tables.counts + tables.dropped).max(initial=1)) or 1
    width = min(_WIDEST, (WIDTH - _GUTTER - 1.2) / longest)

    def paint(axes: Axes) -> None:
        for place in range(len(tables)):
            _name(axes, picture, painter, place)
            _line(axes, picture, painter, place, width)

    note = "left to right: logical blocks 0, 1, 2 …; in each cell the block id, ×holders, and filled slots of a tail"
    title = f"Block tables of {len(tables)} sequences" if len(tables) != 1 else "Block table of 1 sequence"
    return Section(title, note, max(0.05, _LINE * len(tables)), paint)


def _name(axes: Axes, picture: Picture, painter: Painter, place: int) -> None:
    """Letter in the sequence's colour, name and tokens."""
    colour, y = painter.colours[place], place * _LINE
    rectangle(axes, 0, y, 0.3, _CELL, facecolor=colour, linewidth=0.5, edgecolor=INK)
    middle = y + _CELL / 2
    label(axes, 0.15, middle, letter(place), size=9, color=ink_on(colour), ha="center", va="center", weight="bold")
    tokens = int(picture.tables.lengths[place])
    name = f"seq {picture.tables.names[place]}"
    label(axes, 0.38, middle, name, size=8, va="center", weight="bold")
    label(axes, _GUTTER - 0.12, middle, f"{tokens:,} tokens", size=7.5, ha="right", va="center")


def _line(axes: Axes, picture: Picture, painter: Painter, place: int, width: float) -> None:
    """Dropped blocks as empty dotted cells, then those that the sequence holds."""
    tables, y = picture.tables, place * _LINE
    dropped, length = int(tables.dropped[place]), int(tables.lengths[place])
    dotted = {"facecolor": "none", "linewidth": 0.7, "edgecolor": FAINT, "linestyle": (0, (1, 2))}
    for column in range(dropped):
        x = _GUTTER + column * width
        rectangle(axes, x, y, width, _CELL, name=f"sequence-{tables.names[place]}-dropped-{column}", **dotted)
        label(axes, x + width / 2, y + _CELL / 2, "×", size=8, color=FAINT, ha="center", va="center")
    held = tables.held(place).tolist()
    for at, block in enumerate(held):
        column = dropped + at
        tokens = min(picture.block_size, length - column * picture.block_size)
        note = f"{tokens}/{picture.block_size}" if tokens < picture.block_size else ""
        painter.in_table(axes, block, Cell(_GUTTER + column * width, y, width, _CELL), place, note)
    if picture.copies_next(place):
        x = _GUTTER + (dropped + len(held)) * width + 0.08
        label(
            axes, x, y + _CELL / 2, "next append\ncopies block " + str(held[-1]), size=6.5, va="center", style="italic"
        )
