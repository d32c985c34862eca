"""RowKind: what a row is good for, in one word: the state of its chunks and the blocks in them joined."""

from __future__ import annotations

import enum

import numpy as np

from .picture import BlockKind, ChunkState, Numbers, Picture


class RowKind(enum.IntEnum):
    """FREE has addresses only; LIVE holds a block that somebody holds, CACHED only idle ones, EMPTY none."""

    FREE = 0
    LIVE = 1
    CACHED = 2
    EMPTY = 3
    RETIRING = 4
    ASLEEP = 5


def chunk_kinds(picture: Picture) -> Numbers:
    """The RowKind of every chunk, uint8 [planes, rows]."""
    best = _best_kind(picture)
    used = np.select((best >= BlockKind.BY_ID, best == BlockKind.IDLE), (RowKind.LIVE, RowKind.CACHED), RowKind.EMPTY)
    kinds = np.zeros(picture.states.shape, np.uint8)
    for state, kind in (
        (ChunkState.COMMITTED, np.broadcast_to(used, kinds.shape)),
        (ChunkState.RETIRING, np.full(kinds.shape, RowKind.RETIRING)),
        (ChunkState.ASLEEP, np.full(kinds.shape, RowKind.ASLEEP)),
    ):
        kinds = np.where(picture.states == state, kind, kinds).astype(np.uint8)
    return kinds


def _best_kind(picture: Picture) -> Numbers:
    """The highest BlockKind that touches each row."""
    rows, kinds = picture.rows, picture.kinds
    found = np.zeros(rows.count, np.uint8)
    held = np.flatnonzero(kinds)
    first = held * rows.block_stride // rows.chunk
    last = ((held + 1) * rows.block_stride - 1) // rows.chunk
    for step in range(int((last - first).max(initial=-1)) + 1):
        inside = first + step <= last
        np.maximum.at(found, (first + step)[inside], kinds[held[inside]])
    return found
