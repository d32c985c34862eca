"""Which limits bound the blocks of a pool, what its memory is used for, and who has it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from vmm import ChunkSupply, Share, Supply, VmmError, format_size
from vmm.givers import Giver
from vmm.shortage import Held, Limit, Portion
from vmm.shortage.device_memory import device_limit, holders_on
from vmm.shortage.report import sorted_limits

if TYPE_CHECKING:
    from ..pool import KVPool


def limits_of(pool: KVPool, asked: int) -> tuple[Limit, ...]:
    """Every limit on the way to ``asked`` blocks, the one that allows the fewest first."""
    device = device_limit(pool.device, with_rows(pool, asked, rows_free_on_device(pool)))
    return sorted_limits([_addresses(pool), _budget(pool, asked), *_supply(pool, asked), device])


def portions_of(pool: KVPool) -> list[Portion]:
    """What the committed bytes are for; they add up."""
    layout, books = pool.layout, pool.block_pool
    block = layout.block_stride * layout.planes  # with what a stride leaves over
    held = pool.table.holders()
    cached = pool.blocks_idle * block
    by_id = (books.used - pool.blocks_idle - len(held)) * block
    empty = pool.empty_rows * layout.row_bytes
    sequences = len(held) * block
    rest = pool.committed - pool.retiring - cached - by_id - empty - sequences
    return [
        Portion("live", pool.live),
        Portion("tails", sequences - pool.live),
        Portion("by id", by_id),
        Portion("cached", cached),
        Portion("free places", rest),
        Portion("empty rows", empty),
        Portion("retiring", pool.retiring),
    ]


def holders_of(pool: KVPool, limit: Limit) -> list[Held]:
    """Who has what the limit bounds."""
    whole = whole_supply(pool.shared_supply)
    if limit.name in ("ceiling", "shared budget") and whole is not None:
        return [Held(one.name, one.in_use) for one in whole.holders() if one.in_use]
    if limit.name == "device":
        return list(holders_on(pool.device))
    block = pool.layout.block_stride * pool.layout.planes
    return [Held(f"sequence {one.row}", len(one.held) * block) for one in pool.sequences if one.held]


def rows_free_on_device(pool: KVPool) -> int:
    """Rows for which the device has memory, once what retires and what is only cached has gone; all if it is silent."""
    try:
        return pool.device.obtainable // pool.layout.row_bytes
    except VmmError:  # a device that does not answer hides no lack of memory
        return pool.block_pool.rows.count


def with_rows(pool: KVPool, asked: int, rows: int) -> int:
    """The blocks to be had, up to ``asked``, if ``rows`` more rows were the only limit."""
    books = pool.block_pool
    have = books.available + pool.blocks_idle
    return have + books.committed.plan(max(0, asked - have), max(0, rows))[1]


def _addresses(pool: KVPool) -> Limit:
    books = pool.block_pool
    blocks = books.rows.blocks - books.used + pool.blocks_idle
    text = f"{books.used} of {books.rows.blocks} blocks that have addresses are in use"
    return Limit("virtual range", blocks, text)


def _budget(pool: KVPool, asked: int) -> Limit:
    books, row = pool.block_pool, pool.layout.row_bytes
    stands = f"{format_size(books.committed.count * row)} of {format_size(books.max_rows * row)} committed"
    if books.over:
        return Limit("lowered budget", pool.blocks_idle, f"{stands}: nothing is given out until that is reached")
    return Limit("budget", with_rows(pool, asked, books.max_rows - books.committed.count), stands)


def _supply(pool: KVPool, asked: int) -> list[Limit]:
    row = pool.layout.row_bytes
    found = supply_limits(pool.shared_supply, pool)
    return [Limit(one.name, with_rows(pool, asked, (one.allows or 0) // row), one.text) for one in found]


def supply_limits(supply: Supply | None, *askers: Giver) -> list[Limit]:
    """The ceiling of a share, and the budget that it is a part of, in bytes: with what others than ``askers`` spare."""
    names = {"ceiling": "ceiling", "budget": "shared budget"}
    found = () if supply is None else supply.limits(*askers)
    return [dataclasses.replace(one, name=names[one.name]) for one in found if one.name in names]


def whole_supply(supply: Supply | None) -> ChunkSupply | None:
    """The supply itself, of a share of it too."""
    if isinstance(supply, Share):
        return supply.supply
    return supply if isinstance(supply, ChunkSupply) else None


def shared_room(pool: KVPool) -> int:
    """Bytes that the shared budget has for this pool: floors of others counted, and what they can spare."""
    found = supply_limits(pool.shared_supply, pool)
    return next(one.allows or 0 for one in found if one.name == "shared budget")
