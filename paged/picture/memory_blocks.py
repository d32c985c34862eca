"""Memory with every block: the chunks of a plane to scale, their handles, and in them the blocks with their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .block_cell import Cell, Painter
from .colours import FAINT, INK
from .memory_title import memory_note, memory_title
from .overview import KIND_STYLES
from .picture import ChunkState, Picture
from .row_kinds import RowKind
from .sheet import WIDTH, Section, label, rectangle
from .shelf import GAP, Place, pieces_of, shelve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLOCK, _NARROWEST, _CELL, _LINE, _TOP = 0.36, 0.72, 0.42, 0.86, 0.19


def memory_blocks(picture: Picture, painter: Painter) -> Section:
    """Rows of the first plane in lines."""
    width = min(WIDTH - GAP, max(_NARROWEST, _BLOCK * picture.chunk / picture.block_stride))
    places = shelve(picture, width, WIDTH)

    def paint(axes: Axes) -> None:
        for place in places:
            _gap(axes, place) if place.free else _chunk(axes, picture, painter, place)

    return Section(memory_title(picture), memory_note(picture), _LINE * (places[-1].line + 1) - 0.1, paint)


def _gap(axes: Axes, place: Place) -> None:
    """A run of rows that have addresses only."""
    y, rows = place.line * _LINE + _TOP, place.stop - place.start
    style = {"facecolor": "none", "linewidth": 0.7, "edgecolor": FAINT, "linestyle": (0, (1, 2))}
    rectangle(axes, place.x + 0.06, y, place.width - 0.12, _CELL, name=f"free-{place.start}-{place.stop}", **style)
    text = f"{rows:,} rows\nfree"
    label(axes, place.x + place.width / 2, y + _CELL / 2, text, size=6.5, color="#666666", ha="center", va="center")


def _chunk(axes: Axes, picture: Picture, painter: Painter, place: Place) -> None:
    """One row of the plane: its chunk, the blocks in it, its row number and handle."""
    row, y = place.start, place.line * _LINE + _TOP
    state, handle = ChunkState(picture.states[0, row]), int(picture.handles[0, row])
    _heading(axes, picture, place, y, state, handle)
    if state == ChunkState.RESERVED:
        style = {"facecolor": "none", "linewidth": 0.7, "edgecolor": FAINT, "linestyle": (0, (1, 2))}
        rectangle(axes, place.x, y, place.width, _CELL, name=f"chunk-{row}", **style)
        label(axes, place.x + place.width / 2, y + _CELL / 2, "free", color="#666666", ha="center", va="center")
        return
    if state == ChunkState.RETIRING:
        style = {**KIND_STYLES[RowKind.RETIRING], "linewidth": 1.2}
        rectangle(axes, place.x, y, place.width, _CELL, name=f"chunk-{row}", **style)
        box = {"facecolor": "#ffffff", "linewidth": 0, "pad": 1.0}
        middle = place.x + place.width / 2, y + _CELL / 2
        label(axes, *middle, "retiring", ha="center", va="center", bbox=box)
        return
    for block, start, stop, first, last in pieces_of(picture, row):
        x, width = place.x + start * place.width, (stop - start) * place.width
        painter.in_memory(axes, block, Cell(x, y, width, _CELL, first, last))
    line = (0, (4, 2)) if state == ChunkState.ASLEEP else "solid"
    style = {"facecolor": "none", "linewidth": 1.6, "edgecolor": INK, "linestyle": line}
    rectangle(axes, place.x, y, place.width, _CELL, name=f"chunk-{row}", **style)


def _heading(axes: Axes, picture: Picture, place: Place, y: float, state: ChunkState, handle: int) -> None:
    """Row number and, where there is room, address above; what the driver has there below."""
    row = place.start
    above = f"row {row}"
    if place.width > 4:
        above += f"    {picture.base + row * picture.chunk:#x}"
    label(axes, place.x + 0.01, y - 0.04, above, size=6.5, va="bottom")
    below = "asleep" if state == ChunkState.ASLEEP else ""
    if handle:
        short = f"{handle:#x}" if handle < 1 << 24 else f"…{handle & 0xFFFFFF:06x}"
        below = short if place.width < 0.9 else f"handle {handle:#x}"
    label(axes, place.x + 0.01, y + _CELL + 0.03, below, size=6, color="#555555", family="monospace")
