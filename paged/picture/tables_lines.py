"""Block tables with every sequence as a line: how long it is, what it shares, what it dropped. In columns, if short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .colours import FAINT, SHARED, colours, hex_of
from .level import NAMED, letter
from .picture import Numbers, Picture
from .sheet import WIDTH, Section, boxes, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GUTTER, _AXIS, _SPACE, _WIDEST, _NARROWEST = 0.95, 0.22, 0.2, 0.2, 0.1
_HEIGHT, _TALLEST = 6.0, 0.17


@dataclass(frozen=True, slots=True)
class _Grid:
    """``columns`` of ``lines`` sequences, each ``tall`` inches, a logical block ``cell`` inches wide."""

    columns: int
    lines: int
    tall: float
    cell: float

    def left(self, place: int) -> float:
        """Where the blocks of a sequence begin."""
        return _GUTTER + place // self.lines * (WIDTH + _SPACE) / self.columns

    def top(self, place: int) -> float:
        """The upper edge of a sequence's line."""
        return place % self.lines * self.tall


def tables_lines(picture: Picture) -> Section:
    """All sequences in the order of their names; x counts logical blocks."""
    tables = picture.tables
    count = len(tables)
    longest = int((tables.counts + tables.dropped).max(initial=1)) or 1
    grid = _grid(max(1, count), longest)

    def paint(axes: Axes) -> None:
        for place, colour in enumerate(colours(count)):
            _line(axes, picture, place, hex_of(colour), grid)
        every = max(1, round(0.1 / grid.tall + 0.49))
        for place in range(count):
            if place % grid.lines % every == 0:
                letters = f"{letter(place)}  " if count <= NAMED else ""
                where = grid.left(place) - 0.06, grid.top(place) + grid.tall * 0.45
                label(axes, *where, f"{letters}seq {tables.names[place]}", size=6, ha="right", va="center")
        for column in range(grid.columns):
            _scale(axes, grid.left(column * grid.lines), grid, longest)

    note = f"a line a sequence, left to right logical blocks of {picture.block_size} tokens; black half: shared"
    return Section(f"Block tables of {count:,} sequences", note, grid.lines * grid.tall + _AXIS, paint)


def _grid(count: int, longest: int) -> _Grid:
    """As many columns as the longest table lets have room, and no more than the sequences need."""
    fitting = int((WIDTH + _SPACE) / (_GUTTER + longest * _NARROWEST + _SPACE))
    needed = -(-count * _TALLEST // _HEIGHT)
    columns = int(max(1, min(fitting, needed)))
    lines = -(-count // columns)
    room = (WIDTH + _SPACE) / columns - _SPACE - _GUTTER
    return _Grid(columns, lines, min(_TALLEST, _HEIGHT / lines), min(_WIDEST, room / longest))


def _line(axes: Axes, picture: Picture, place: int, color: str, grid: _Grid) -> None:
    """One sequence: what it dropped, what it holds (the tail as far as it is filled), and below, what it shares."""
    tables, cell = picture.tables, grid.cell
    held, dropped = tables.held(place), int(tables.dropped[place])
    left, y, height = grid.left(place), grid.top(place), grid.tall * (0.85 if grid.tall > 0.04 else 1.0)
    name = f"sequence-{tables.names[place]}"
    if dropped:
        thin = {"facecolors": "#e3e3e3", "edgecolors": FAINT, "linewidths": 0.3}
        boxes(axes, [(left, y, dropped * cell, height)], name=f"{name}-dropped", **thin)
    if len(held):
        empty = cell * (1 - float(picture.filled[held[-1]]) / picture.block_size)
        boxes(axes, [(left + dropped * cell, y, len(held) * cell - empty, height)], name=name, facecolors=color)
    found = [
        (left + (dropped + start) * cell, y + 0.4 * height, (stop - start) * cell, 0.6 * height)
        for start, stop in _runs(picture.counts[held] > 1)
    ]
    boxes(axes, found, name=f"{name}-shared", facecolors=SHARED)


def _runs(mask: Numbers) -> list[tuple[int, int]]:
    """Where a mask is true: (start, stop) of each run."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    return [(start, stop) for start, stop in edges.reshape(-1, 2).tolist()]


def _scale(axes: Axes, left: float, grid: _Grid, longest: int) -> None:
    """Logical blocks below the lines of a column."""
    step, y = round_step(longest, longest * grid.cell), grid.lines * grid.tall
    label(axes, left - 0.1, y + 0.07, "blocks", size=6, ha="right")
    for column in range(0, longest + 1, step):
        x = left + column * grid.cell
        axes.plot([x, x], [0, y + 0.05], color=FAINT, linewidth=0.3, zorder=0)
        label(axes, x, y + 0.07, f"{column:,}", size=6, ha="center")


def round_step(longest: int, inches: float) -> int:
    """1, 2 or 5 times a power of ten, so that marks up to ``longest`` are 0.4 inches apart or more."""
    for power in range(9):
        for factor in (1, 2, 5):
            if inches / longest * factor * 10**power >= 0.4:
                return factor * int(10**power)
    return longest
