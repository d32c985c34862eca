"""Allocation: how a pool comes by blocks. Free ones, else new rows, else idle blocks of its prefix cache, else others'.

Nothing here guards against a second thread or an interrupt: what calls it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmm import OutOfMemoryError, StateError

from .blocks.block_ids import Ids, block_ids
from .blocks.block_pool import Choice
from .shortage.cause import explained

if TYPE_CHECKING:
    from .pool import KVPool


def grantable(pool: KVPool) -> int:
    """What ``KVPool.blocks_free`` says of a pool that is awake."""
    return pool.block_pool.largest_grantable(new_rows(pool, asking=True)) + pool.blocks_idle


def can_take(pool: KVPool, blocks: int) -> bool:
    """What ``KVPool.can_allocate`` says of a pool that is awake."""
    if 0 <= blocks <= pool.block_pool.available or pool.block_pool.can_allocate(blocks, new_rows(pool)):
        return True
    return (bool(pool.blocks_idle) or pool.shared_supply is not None) and blocks <= grantable(pool)


def take(pool: KVPool, blocks: int) -> list[int]:
    """What ``KVPool.allocate`` does, of a pool that is awake."""
    if 0 <= blocks <= pool.block_pool.available:
        return pool.block_pool.allocate(blocks)
    with explained(pool, blocks):
        return pool.block_pool.take(_prepare(pool, blocks))


def take_array(pool: KVPool, blocks: int) -> Ids:
    """What ``KVPool.allocate_array`` does, of a pool that is awake."""
    if 0 <= blocks <= pool.block_pool.available:
        return pool.block_pool.allocate_array(blocks)
    with explained(pool, blocks):
        return pool.block_pool.take_array(_prepare(pool, blocks))


def claim(pool: KVPool, blocks: Sequence[int]) -> None:
    """What ``KVPool.claim`` does."""
    pool.check_usable()
    books, blocks = pool.block_pool, block_ids(blocks)
    if len(set(blocks)) != len(blocks):
        raise StateError(f"{list(blocks)} names a block twice; claim each once and fork it to share it")
    held = next((block for block in blocks if books.count(block)), None)
    if held is not None:
        raise StateError(f"block {held} is held already, by somebody or the prefix cache; fork it to share it")
    rows = {row for block in blocks for row in books.rows.of(block)}
    new = sorted(row for row in rows if row not in books.committed)
    books.check_limit(len(new), new_rows(pool, asking=True))
    pool.memory.commit(new, books.max_rows)
    books.commit(new)
    books.hold(blocks)


def new_rows(pool: KVPool, *, asking: bool = False) -> int | None:
    """Rows that a shared supply could still give, with ``asking`` also from others; None where it sets no bound."""
    supply = pool.shared_supply
    left = None if supply is None else supply.obtainable(pool) if asking else supply.available
    return None if left is None else left // pool.layout.row_bytes


# -- steps ------------------------------------------------------------------------------------------------------


def _prepare(pool: KVPool, blocks: int) -> Choice:
    """Commit the rows that ``blocks`` blocks need, so that they can be taken."""
    choice, lacking = _grant(pool, blocks)
    rows = choice.rows
    try:
        pool.memory.commit(rows, pool.block_pool.max_rows)
    except OutOfMemoryError:  # the device is full for others' sake: idle blocks go instead of new rows
        rows, lacking = (), blocks - pool.block_pool.available
        if lacking > pool.blocks_idle:
            raise
    if lacking and pool.prefix:
        pool.prefix.evict(lacking)
    return Choice(blocks, rows)


def _grant(pool: KVPool, blocks: int) -> tuple[Choice, int]:
    """How ``blocks`` can be had: with which rows, and how many idle blocks must go besides.

    Own idle blocks go before others are asked: it takes no call of the driver.
    """
    books = pool.block_pool
    for asking in (False, True)[: 1 + (pool.shared_supply is not None)]:
        rows = new_rows(pool, asking=asking)
        found = books.find(blocks, rows)
        if found is not None:
            return found, 0
        lacking = blocks - books.largest_grantable(rows)
        if lacking <= pool.blocks_idle:
            return books.choose(blocks - lacking, rows), lacking
    return books.choose(blocks, rows), 0  # refuses
