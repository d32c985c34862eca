"""What must always be true of a pool. The checks recompute everything from the counts and compare."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from .rooms import Rooms

if TYPE_CHECKING:
    from .block_pool import BlockPool
    from .cached_blocks import CachedBlocks
    from .pool import KVPool


def must(holds: object, text: str) -> None:
    """Raise AssertionError with ``text`` unless it holds; unlike an assert also where Python optimises those away."""
    if not holds:
        raise AssertionError(text)


def check_block_pool(pool: BlockPool) -> None:
    """Free + held = total; rooms, fills and empty rows are what counts and committed rows say; nothing stands twice."""
    rows = pool.rows
    counts = np.array(pool._counts)
    ids = np.arange(rows.blocks)
    first, last = ids * rows.block_stride // rows.chunk, ((ids + 1) * rows.block_stride - 1) // rows.chunk
    committed = np.zeros(rows.count + 1, np.int64)
    committed[list(pool.committed)] = 1
    before = np.concatenate(([0], np.cumsum(committed)))  # committed rows below each row
    whole = before[last + 1] - before[first] == last + 1 - first
    held = counts > 0
    must((counts >= 0).all(), f"block {np.argmin(counts)} has a count below zero")
    must(pool.used == held.sum(), f"{pool.used} used, {held.sum()} held")
    must(pool.shared == counts.sum() - held.sum(), f"{pool.shared} holds beyond the first are counted wrong")
    must(whole[held].all(), f"block {ids[held & ~whole][:1]} is live on an uncommitted row")
    free = sorted(chain.from_iterable(pool._rooms.room(row) for row in range(rows.count)))
    must(free == ids[whole & ~held].tolist(), "rooms are not the free blocks on committed rows")
    must(pool._rooms.available == len(free), f"{pool._rooms.available} available, {len(free)} in rooms")
    must(pool.committed.count == committed.sum(), "the committed rows are counted wrong")
    must(pool.over or pool.committed.count <= pool.max_rows, "more rows are committed than allowed")
    starts = np.bincount(first[held], minlength=rows.count + 1)
    ends = np.bincount(last[held] + 1, minlength=rows.count + 1)
    _check_rows(pool, np.cumsum(starts - ends))


def _check_rows(pool: BlockPool, fill: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Each row's fill, its place among the rows with room, and whether it is empty. ``fill`` is the truth."""
    fills = [pool._rooms.fill(row) for row in range(pool.rows.count)]
    must(fills == fill[: pool.rows.count].tolist(), "the fill of a row is wrong")
    must(sorted(pool.empty) == [row for row in pool.committed if not fill[row]], "the empty rows are wrong")
    if isinstance(pool._rooms, Rooms):
        _check_buckets(pool, pool._rooms, fill)
    else:
        must(len(set(pool.empty)) == len(pool.empty), "a row stands twice among those with room")


def _check_buckets(pool: BlockPool, rooms: Rooms, fill: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    for row, room in enumerate(rooms.rooms):
        must(all(pool.rows.first(block) == row for block in room), f"row {row} has a block of another")
    where = {row: number for number, bucket in enumerate(rooms.by_fill) for row in bucket}
    wanted = {row: int(fill[row]) for row, room in enumerate(rooms.rooms) if room}
    must(where == wanted, "a row is in a wrong bucket")
    must(not any(rooms.by_fill[rooms.top + 1 :]), "a row with room is fuller than the top")


def check_prefix(prefix: CachedBlocks, holders: dict[int, int]) -> None:
    """The cache holds each of its blocks once; idle is what nobody else holds; every chain of keys is whole."""
    cache, counts = prefix.cache, prefix.pool
    held = {block for block in range(counts.rows.blocks) if block in cache}
    must(len(cache) == len(held), f"{len(cache)} blocks counted in the cache, {len(held)} are")
    idle = {block for block in held if counts.count(block) == 1}
    must(set(cache.idle) == idle, "the idle blocks are not those that only the cache holds")
    must(not idle & holders.keys(), "an idle block stands in a table")
    chained = [block for key in cache._first for block in cache._chain(key)]
    must(sorted(chained) == sorted(held), "a block of the cache cannot be found by its key")


def check_pool(pool: KVPool) -> None:
    """The ids, the rows and the driver's layer agree; tables hold live blocks; the tokens are counted right."""
    check_block_pool(pool.block_pool)
    chunks = sorted(pool.memory.chunks(pool.block_pool.committed))
    must(pool.range.held_chunks() == chunks, "committed chunks are not those of the committed rows")
    must(not pool.prealloc or pool.block_pool.committed.count == pool.block_pool.max_rows, "a row was given back")
    size = pool.layout.block_size
    holders: dict[int, int] = {}
    filled: dict[int, int] = {}
    must(sorted(pool.table.open_rows()) == sorted(one.row for one in pool.sequences), "a row has no sequence")
    for sequence in pool.sequences:
        must(sequence.dropped <= sequence.length, f"{sequence} has dropped {sequence.dropped} tokens")
        for first, block in zip(range(sequence.dropped, sequence.length, size), sequence.held, strict=True):
            holders[block] = holders.get(block, 0) + 1
            filled[block] = min(size, sequence.length - first)
    if pool.prefix:
        check_prefix(pool.prefix, holders)
    for block, number in holders.items():
        must(pool.count(block) >= number, f"block {block} is in {number} tables, counted {pool.count(block)} times")
    must(pool.tokens == sum(filled.values()), f"{pool.tokens} tokens counted, {sum(filled.values())} in tables")
