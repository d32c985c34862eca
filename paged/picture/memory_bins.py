"""MemoryBins: the virtual range in bins of whole rows, each byte counted once by what it is spent on."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from .picture import BlockKind, ChunkState, Numbers, Picture


class Part(enum.IntEnum):
    """What a byte of the range is spent on, besides blocks of one band of sequences."""

    SHARED = 0
    BY_ID = 1
    IDLE = 2
    EMPTY = 3
    RETIRING = 4
    RESERVED = 5


@dataclass(frozen=True, slots=True, eq=False)
class MemoryBins:
    """Bytes of one plane, int64: ``parts`` [Part, bins], and ``bands`` [bands, bins] of blocks that one sequence holds.

    Bin i covers rows ``i * rows_per_bin`` on; the last may have fewer, ``sizes`` says the bytes of each.
    """

    rows_per_bin: int
    sizes: Numbers
    parts: Numbers
    bands: Numbers


def memory_bins(picture: Picture, most: int, per_band: int) -> MemoryBins:
    """Rows 0 to the last one that is not free, in at most ``most`` bins; bands have ``per_band`` sequences each."""
    states = picture.states[0]
    used = np.flatnonzero(states)
    count = int(used[-1]) + 1 if len(used) else 1
    rows_per_bin = -(-count // most)
    bins = -(-count // rows_per_bin)
    size = rows_per_bin * picture.chunk
    sizes = np.full(bins, size)
    sizes[-1] = count * picture.chunk - (bins - 1) * size
    first = picture.holders().first()
    bands = np.zeros((-(-len(picture.tables) // per_band), bins), np.int64)
    parts = np.zeros((len(Part), bins), np.int64)
    own = np.flatnonzero(picture.kinds == BlockKind.OWN)
    _add_blocks(picture, bands, first[own] // per_band, own, size)
    for part, kind in ((Part.SHARED, BlockKind.SHARED), (Part.BY_ID, BlockKind.BY_ID), (Part.IDLE, BlockKind.IDLE)):
        blocks = np.flatnonzero(picture.kinds == kind)
        _add_blocks(picture, parts, np.full(len(blocks), part), blocks, size)
    for part, state in ((Part.RETIRING, ChunkState.RETIRING), (Part.RESERVED, ChunkState.RESERVED)):
        rows = np.flatnonzero(states[:count] == state)
        np.add.at(parts[part], rows // rows_per_bin, picture.chunk)
    parts[Part.EMPTY] = sizes - parts.sum(0) - bands.sum(0)
    return MemoryBins(rows_per_bin, sizes, parts, bands)


def _add_blocks(picture: Picture, into: Numbers, lines: Numbers, blocks: Numbers, size: int) -> None:
    """Add the bytes of blocks to the bins of ``size`` bytes that they lie in, each block on its line of ``into``."""
    start, stop = blocks * picture.block_stride, (blocks + 1) * picture.block_stride
    first, last = start // size, (stop - 1) // size
    for step in range(int((last - first).max(initial=-1)) + 1):
        at = first + step
        overlap = np.minimum(stop, (at + 1) * size) - np.maximum(start, at * size)
        inside = at <= last
        np.add.at(into, (lines[inside], at[inside]), overlap[inside])
