"""Level: how much of a picture can be shown one by one on a page."""

from __future__ import annotations

import enum

import numpy as np

from .picture import Picture
from .stretches import stretches_of

NAMED = 20
"""So many sequences get a letter and a colour each."""

_BLOCKS_WITH_IDS, _SEQUENCES, _BLOCKS, _COLUMNS = 400, 400, 20_000, 1_200
_LONGEST_WITH_IDS = 40


class Level(enum.IntEnum):
    """BLOCKS shows every block with its id, LINES every block and every sequence, BINS counts both in bins."""

    BLOCKS = 0
    LINES = 1
    BINS = 2


def level_of(picture: Picture) -> Level:
    """The finest level at which a page shows the whole picture."""
    rows = sum(len(stretch) for stretch in stretches_of(picture) if not stretch.free)
    cells = max(rows, rows * picture.chunk // picture.block_stride)
    sequences = len(picture.tables)
    longest = int((picture.tables.counts + picture.tables.dropped).max(initial=0))
    if sequences <= NAMED and cells <= _BLOCKS_WITH_IDS and longest <= _LONGEST_WITH_IDS:
        return Level.BLOCKS
    if sequences <= _SEQUENCES and cells <= _BLOCKS and longest <= _COLUMNS:
        return Level.LINES
    return Level.BINS


def letter(place: int) -> str:
    """The letter of one of ``NAMED`` sequences."""
    return chr(ord("A") + place)


def used_names(picture: Picture) -> list[int]:
    """The names of the sequences, as ``KVPool.explain`` has them."""
    names: list[int] = np.asarray(picture.tables.names).tolist()
    return names
