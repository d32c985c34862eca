"""Shelf: the rows of one plane laid out in lines, to scale, with a mark for each long run of free ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .picture import Picture
from .stretches import Stretch, stretches_of

GAP = 0.85
"""Inches of the mark for a run of free rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row, or a run of free rows, is drawn: ``line`` from the top, inches ``x`` from the left."""

    start: int
    stop: int
    free: bool
    line: int
    x: float
    width: float


def shelve(picture: Picture, chunk_width: float, width: float) -> list[Place]:
    """Every row, each ``chunk_width`` wide, in lines of ``width``, at the end of which a mark for a gap has room."""
    found: list[Place] = []
    line, x = 0, 0.0
    for stretch in stretches_of(picture):
        for start, stop, size in _pieces(stretch, chunk_width):
            if x and x + size > width - (0 if stretch.free else GAP) + 1e-6:
                line, x = line + 1, 0.0
            found.append(Place(start, stop, stretch.free, line, x, size))
            x += size
    return found


def _pieces(stretch: Stretch, chunk_width: float) -> Iterator[tuple[int, int, float]]:
    if stretch.free:
        yield stretch.start, stretch.stop, GAP
    else:
        for row in range(stretch.start, stretch.stop):
            yield row, row + 1, chunk_width


def pieces_of(picture: Picture, row: int) -> Iterator[tuple[int, float, float, float, float]]:
    """The blocks of a row: (block, from, to, first, last), the former in parts of the row, the latter of the block."""
    stride, chunk = picture.block_stride, picture.chunk
    for block in picture.rows.touching(row):
        start, stop = block * stride, (block + 1) * stride
        low, high = max(start, row * chunk), min(stop, (row + 1) * chunk)
        yield (
            block,
            (low - row * chunk) / chunk,
            (high - row * chunk) / chunk,
            (low - start) / stride,
            (high - start) / stride,
        )
