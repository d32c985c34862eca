"""Memory with every block as a sliver: where the blocks of each sequence lie, and what lies between them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from .colours import BY_ID, FAINT, IDLE, INK, SHARED, colours, hex_of, ink_on, parse
from .level import NAMED, letter
from .memory_title import memory_note, memory_title
from .overview import KIND_STYLES
from .picture import BlockKind, ChunkState, Picture
from .row_kinds import RowKind
from .sheet import WIDTH, Section, boxes, label
from .shelf import GAP, Place, pieces_of, shelve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GUTTER, _HEIGHT, _WIDEST, _TALL = 0.75, 4.2, 0.12, 0.2
_JOIN = 0.08
"""Chunks narrower than this have no border of their own."""

Box = tuple[float, float, float, float]


def memory_lines(picture: Picture) -> Section:
    """Rows of the first plane in lines, the blocks in the colours of their sequences."""
    width, tall = _sizes(picture)
    places = shelve(picture, width, WIDTH - _GUTTER)
    lines = places[-1].line + 1

    names = picture.tables.names.tolist()
    signs = {f"sequence-{name}": letter(at) if len(names) <= NAMED else str(name) for at, name in enumerate(names)}

    def paint(axes: Axes) -> None:
        _rows(axes, places, lines, tall)
        _states(axes, picture, places, tall)
        for name, color, found in _blocks(picture, places, tall):
            hatch: dict[str, Any] = {"hatch": "....", "edgecolors": BY_ID} if name == "idle" else {}
            boxes(axes, found, name=f"memory-{name}", facecolors=color, **hatch)
            _sign(axes, signs.get(name, ""), color, found)

    note = f"{memory_note(picture)}; the number beside a line is that of its first row"
    return Section(memory_title(picture), note, lines * tall, paint)


def _sizes(picture: Picture) -> tuple[float, float]:
    """Inches of a chunk, and of a line: so that all rows with memory fit."""
    used = int((picture.states != 0).any(0).sum()) or 1
    per_chunk = picture.chunk / picture.block_stride
    cells = used * max(1.0, per_chunk)
    room = WIDTH - _GUTTER - GAP
    cell = min(_WIDEST, _HEIGHT / _TALL * room / cells)
    chunk = min(room, cell * max(1.0, per_chunk))
    a_line = max(1, int(room / chunk))
    chunk = min(room / min(a_line, used), 2 * chunk)
    lines = used / a_line + 1
    return chunk, min(_TALL, max(0.06, _HEIGHT / lines))


def _rows(axes: Axes, places: list[Place], lines: int, tall: float) -> None:
    """The first row of each line, where labels have room."""
    every = max(1, round(0.13 / tall + 0.49))
    firsts = {place.line: place for place in reversed(places)}
    for line in range(0, lines, every):
        y = line * tall + tall * 0.42
        label(axes, _GUTTER - 0.08, y, f"row {firsts[line].start:,}", size=6, ha="right", va="center")


def _states(axes: Axes, picture: Picture, places: list[Place], tall: float) -> None:
    """Chunks by their state, and runs of free ones."""
    found: dict[ChunkState, list[Box]] = {state: [] for state in ChunkState}
    gaps: list[Box] = []
    for place in places:
        box = (_GUTTER + place.x, place.line * tall, place.width, tall * 0.85)
        if place.free:
            gaps.append(box)
            text = f"{place.stop - place.start:,} free"
            label(axes, box[0] + place.width / 2, box[1] + tall * 0.42, text, size=5, ha="center", va="center")
        else:
            found[ChunkState(picture.states[0, place.start])].append(box)
    dotted: dict[str, Any] = {"linewidths": 0.5, "edgecolors": FAINT, "linestyles": [(0, (1, 2))]}
    boxes(axes, gaps, name="free", facecolors="none", **dotted)
    boxes(axes, found[ChunkState.RESERVED], facecolors="none", **dotted)
    if places[0].width < _JOIN:
        found = {state: _joined(same) for state, same in found.items()}
    thin: dict[str, Any] = {"linewidths": 0.5, "edgecolors": INK}
    boxes(axes, found[ChunkState.COMMITTED], name="committed", facecolors="#ffffff", **thin)
    boxes(axes, found[ChunkState.ASLEEP], name="asleep", facecolors="#ffffff", **thin, linestyles=[(0, (4, 2))])
    style = KIND_STYLES[RowKind.RETIRING]
    boxes(axes, found[ChunkState.RETIRING], name="retiring", facecolors=style["facecolor"], hatch="\\\\\\\\", **thin)


def _blocks(picture: Picture, places: list[Place], tall: float) -> list[tuple[str, str, list[Box]]]:
    """For each sequence, and for the kinds that belong to none: a name, a colour and the places of its blocks."""
    first, kinds = picture.holders().first(), picture.kinds
    plain = {BlockKind.IDLE: ("idle", IDLE), BlockKind.BY_ID: ("by-id", BY_ID), BlockKind.SHARED: ("shared", SHARED)}
    shades = [hex_of(colour) for colour in colours(len(picture.tables))]
    found: dict[tuple[str, str], list[Box]] = defaultdict(list)
    for place in places:
        if place.free or picture.states[0, place.start] in (ChunkState.RESERVED, ChunkState.RETIRING):
            continue
        for block, start, stop, _first, _last in pieces_of(picture, place.start):
            kind = BlockKind(kinds[block])
            if kind == BlockKind.FREE:
                continue
            owner = int(first[block])
            key = (f"sequence-{picture.tables.names[owner]}", shades[owner]) if kind == BlockKind.OWN else plain[kind]
            x = _GUTTER + place.x + start * place.width
            found[key].append((x, place.line * tall + 0.01, (stop - start) * place.width, tall * 0.85 - 0.02))
    return [(name, color, _joined(runs)) for (name, color), runs in found.items()]


def _sign(axes: Axes, sign: str, color: str, found: list[Box]) -> None:
    """Letter or number of a sequence on its blocks, where it has room."""
    for x, y, width, height in found:
        if sign and width >= 0.08 + 0.05 * len(sign) and height >= 0.09:
            middle = x + width / 2, y + height * 0.52
            label(axes, *middle, sign, size=5.5, color=ink_on(parse(color)), ha="center", va="center")


def _joined(found: list[Box]) -> list[Box]:
    """Neighbours as one."""
    joined: list[Box] = []
    for x, y, width, height in found:
        if joined and joined[-1][1] == y and abs(joined[-1][0] + joined[-1][2] - x) < 1e-6:
            joined[-1] = (joined[-1][0], y, x + width - joined[-1][0], height)
        else:
            joined.append((x, y, width, height))
    return joined
