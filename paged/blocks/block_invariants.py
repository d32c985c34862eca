"""What must always be true of a BlockPool and of the blocks of a prefix cache: recomputed from the counts, compared.

Steps of NumPy over all blocks and rows, so that the checks can run after every step of every test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .even_rooms import EvenRooms
from .rooms import Rooms

if TYPE_CHECKING:
    from .block_pool import BlockPool

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def must(holds: object, text: str) -> None:
    """Raise AssertionError with ``text`` unless it holds; unlike an assert also where Python optimises those away."""
    if not holds:
        raise AssertionError(text)


def check_block_pool(pool: BlockPool) -> None:
    """Free + held = total; rooms, fills and empty rows are what counts and committed rows say; nothing stands twice."""
    rows, counts, marks = pool.rows, pool.counts.numbers, pool.committed.marks
    ids = np.arange(rows.blocks)
    first, last = ids * rows.block_stride // rows.chunk, ((ids + 1) * rows.block_stride - 1) // rows.chunk
    before = np.concatenate(([0], np.cumsum(marks)))  # committed rows below each row
    whole = before[last + 1] - before[first] == last + 1 - first
    held = counts > 0
    used = int(np.count_nonzero(held))
    must(not (counts < 0).any(), f"block {np.argmin(counts)} has a count below zero")
    must(pool.used == used, f"{pool.used} used, {used} held")
    must(pool.shared == counts.sum() - used, f"{pool.shared} holds beyond the first are counted wrong")
    must(not (held & ~whole).any(), f"block {ids[held & ~whole][:1]} is live on an uncommitted row")
    free = np.flatnonzero(whole & ~held).tolist()
    must(pool._rooms.listed() == free, "rooms are not the free blocks on committed rows")
    must(pool._rooms.available == len(free), f"{pool._rooms.available} available, {len(free)} in rooms")
    must(pool.committed.count == before[-1], "the committed rows are counted wrong")
    must(pool.over or pool.committed.count <= pool.max_rows, "more rows are committed than allowed")
    starts = np.bincount(first[held], minlength=rows.count + 1)
    ends = np.bincount(last[held] + 1, minlength=rows.count + 1)
    _check_rows(pool, np.cumsum(starts - ends)[: rows.count], marks > 0)


def _check_rows(pool: BlockPool, fill: Numbers, committed: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Each row's fill, its place among the rows with room, and whether it is empty. ``fill`` is the truth."""
    must(sorted(pool.empty) == np.flatnonzero(committed & (fill == 0)).tolist(), "the empty rows are wrong")
    if isinstance(pool._rooms, Rooms | EvenRooms):
        must(pool._rooms.fills == fill.tolist(), "the fill of a row is wrong")
        _check_buckets(pool._rooms)
    if isinstance(pool._rooms, Rooms):
        homes = ((row, block) for row, room in enumerate(pool._rooms.rooms) for block in room)
        must(all(pool.rows.first(block) == row for row, block in homes), "a row has a block of another")


def _check_buckets(rooms: Rooms | EvenRooms) -> None:
    """The rows that have room stand under their fill, each once."""
    wanted = {row: rooms.fills[row] for row in rooms.with_room()}
    where = {row: fill for fill, bucket in enumerate(rooms.by_fill) for row in bucket}
    must(where == wanted, "a row is in a wrong bucket")
    must(sum(map(len, rooms.by_fill)) == len(wanted), "a row stands in two buckets")
    must(not any(rooms.by_fill[rooms.top + 1 :]), "a row with room is fuller than the top")
