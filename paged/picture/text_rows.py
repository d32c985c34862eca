"""Physical memory as text: a character a block, chunks apart; or a character for many rows, if there are many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .colours import colours, hex_of
from .level import NAMED, letter
from .memory_bins import Part, memory_bins
from .memory_title import memory_note, memory_title
from .picture import BlockKind, ChunkState, Holders, Picture
from .stretches import handle_runs, stretches_of
from .table_bands import TableBands, table_bands
from .text_line import Line, joined, wrapped

_GUTTER = 9
_MOST_RUNS = 4

Cell = tuple[str, str]
"""A character and its style."""


def memory_rows(picture: Picture, width: int, most: int) -> Iterator[Line]:
    """The rows of the first plane, their handles, and what the characters mean; on ``most`` lines or few more."""
    yield from wrapped(memory_title(picture), width, "bold")
    yield from wrapped(memory_note(picture), width)
    bands = table_bands(picture, NAMED, 1)
    who = "sequence" if bands.per_band == 1 else "band"
    if _cells(picture) <= (width - _GUTTER) * most:
        yield from _every_block(picture, width, bands)
        text = "a line begins with the number of its first row, and | ends each row; "
        text += f"A to T: a {who}'s block, lower case if slots are left; 2 to 9, +: so many hold it; "
        text += "~ cached, idle; @ held by its id; . no block; < goes on; / retiring"
    else:
        yield from _bins(picture, width, most, bands)
        text = f"A to T: a {who}; 2 shared; ~ cached, idle; @ held by id; . no block; / retiring; "
        text += "blank: free. A cell shows what most of its bytes are"
    yield from wrapped(text, width, "dim")
    yield from _handles(picture, width)


def _cells(picture: Picture) -> int:
    """Characters that a block each would take."""
    rows = sum(len(stretch) for stretch in stretches_of(picture) if not stretch.free)
    return rows * (1 + -(-picture.chunk // picture.block_stride))


def _every_block(picture: Picture, width: int, bands: TableBands) -> Iterator[Line]:
    shades = _Shades(picture.holders(), bands.per_band, [hex_of(colour) for colour in colours(len(bands))])
    for stretch in stretches_of(picture):
        if stretch.free:
            last = f"rows {stretch.start:,} to {stretch.stop - 1:,}"
            yield [(f"{last}: {len(stretch):,} free, addresses only", "dim")]
            continue
        line: list[Cell] = []
        first = stretch.start
        for row in range(stretch.start, stretch.stop):
            cells = [*_row(picture, row, shades), ("|", "")]
            if line and _GUTTER + len(line) + len(cells) > width:
                yield from _lines(first, line, width)
                line, first = [], row
            line += cells
        yield from _lines(first, line, width)


@dataclass(frozen=True, slots=True, eq=False)
class _Shades:
    """Letter and style of the sequence, or its band, that holds a block."""

    holders: Holders
    per_band: int
    styles: list[str]

    def of(self, block: int) -> Cell | None:
        """None where no sequence holds it."""
        places = self.holders.of(block)
        return (letter(places[0] // self.per_band), self.styles[places[0] // self.per_band]) if places else None


def _lines(row: int, cells: list[Cell], width: int) -> Iterator[Line]:
    """Cells behind the number of their first row; what is too long goes on in the next line."""
    room = width - _GUTTER
    for start in range(0, len(cells), room):
        name = f"row {row:,}" if not start else ""
        yield [
            (name.ljust(_GUTTER - 1) + "|"[: not start] + " "[: bool(start)], ""),
            *joined(cells[start : start + room]),
        ]


def _row(picture: Picture, row: int, shades: _Shades) -> list[Cell]:
    """What stands for one row."""
    state, rows = ChunkState(picture.states[0, row]), picture.rows
    touching = rows.touching(row)
    if state in (ChunkState.RESERVED, ChunkState.RETIRING):
        begins = sum(rows.first(block) == row for block in touching)
        return [(" " if state == ChunkState.RESERVED else "/", "dim")] * max(1, begins)
    return [_block(picture, block, rows.first(block) < row, shades) for block in touching]


def _block(picture: Picture, block: int, before: bool, shades: _Shades) -> Cell:
    """What stands for one block; ``before`` if it begins in an earlier row."""
    kind, owner = BlockKind(picture.kinds[block]), shades.of(block)
    if before:
        return "<", owner[1] if owner else "dim"
    if kind == BlockKind.SHARED:
        count = int(picture.counts[block])
        return (str(count) if count < 10 else "+"), "bold reverse"
    if kind != BlockKind.OWN or owner is None:
        return {BlockKind.FREE: ".", BlockKind.IDLE: "~"}.get(kind, "@"), "dim"
    mark, style = owner
    return (mark if picture.filled[block] == picture.block_size else mark.lower()), style


def _bins(picture: Picture, width: int, most: int, bands: TableBands) -> Iterator[Line]:
    room = width - _GUTTER - 1
    bins = memory_bins(picture, room * most, bands.per_band)
    styles = [hex_of(colour) for colour in colours(len(bands))]
    marks: list[Cell] = [(letter(band), style) for band, style in enumerate(styles)]
    parts = {Part.SHARED: ("2", "bold reverse"), Part.BY_ID: ("@", ""), Part.IDLE: ("~", "dim")}
    parts |= {Part.EMPTY: (".", "dim"), Part.RETIRING: ("/", "dim"), Part.RESERVED: (" ", "")}
    order = [*marks, *(parts[part] for part in Part)]
    greatest = np.concatenate((bins.bands, bins.parts)).argmax(0).tolist()
    rows = f"{bins.rows_per_bin:,} row{'s' * (bins.rows_per_bin > 1)}"
    yield [(f"{rows} a cell, row 0 to the last that is not free", "")]
    for start in range(0, len(greatest), room):
        cells = [order[at] for at in greatest[start : start + room]]
        name = f"{start * bins.rows_per_bin:,}".rjust(_GUTTER - 2)
        yield [(f"{name} |", ""), *joined(cells), ("|", "")]


def _handles(picture: Picture, width: int) -> Iterator[Line]:
    """The page table: which handles lie behind which rows."""
    runs = handle_runs(picture, 0)
    for run in runs[:_MOST_RUNS]:
        rows = f"row {run.start:,}" if run.stop - run.start == 1 else f"rows {run.start:,} to {run.stop - 1:,}"
        behind = f"handle {run.handle:#x}" if run.stop - run.start == 1 else f"handles {run.handle:#x} to {run.last:#x}"
        address = picture.base + run.start * picture.chunk
        yield from wrapped(f"page table: {address:#x}, {rows}: {behind}", width, "dim", indent="  ")
    if len(runs) > _MOST_RUNS:
        yield [(f"and {len(runs) - _MOST_RUNS:,} more runs of handles", "dim")]
