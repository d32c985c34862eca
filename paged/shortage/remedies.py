"""What would help a pool that is short of blocks. Each remedy is tried on a copy of the books before it is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from vmm import format_size
from vmm.shortage import Limit, Remedy

from ..blocks.block_pool import BlockPool
from ..compaction import movable, plan_moves
from .limits import rows_free_on_device, shared_room, whole_supply

if TYPE_CHECKING:
    from ..pool import KVPool
    from ..sequence import Sequence


def remedies_of(pool: KVPool, asked: int, limit: Limit) -> list[Remedy]:
    """What helps against the limit that binds, the cheapest first."""
    tries: dict[str, tuple[Callable[[KVPool, int], Iterator[Remedy]], ...]] = {
        "virtual range": (_more_blocks, _free),
        "lowered budget": (_compact, _unpin, _free, _raise_budget),
        "budget": (_raise_budget, _free),
        "ceiling": (_raise_ceiling, _free),
        "shared budget": (_lower_floor, _raise_shared_budget, _free),
        "device": (_free_elsewhere, _free),
    }
    return [remedy for attempt in tries[limit.name] for remedy in attempt(pool, asked)]


def copy_of(books: BlockPool) -> BlockPool:
    """The same blocks held on the same rows, to try things on."""
    made = BlockPool(books.rows, books.rows.count)
    made.commit(books.committed)
    held = [block for block in range(books.rows.blocks) if books.count(block)]
    made.hold([block for block in held for _ in range(books.count(block))])
    made.limit(books.max_rows)
    return made


# -- what each would do -----------------------------------------------------------------------------------------


def _unpin(pool: KVPool, asked: int) -> Iterator[Remedy]:
    """Rows that could be emptied, but for what relies on them."""
    if pool.memory.used():
        reasons = tuple(pin.reason for pin in pool.range.pins) or ("arrays that view it",)
        for found in _compact(pool, asked, unpinned=True):
            text = f"close the pins for {', '.join(reasons)}, and compact()"
            yield Remedy("unpin", reasons, found.allows, text, found.cost)


def _compact(pool: KVPool, asked: int, *, unpinned: bool = False) -> Iterator[Remedy]:
    books = copy_of(pool.block_pool)
    moves = plan_moves(books, movable(pool, unpinned=unpinned), books.used)
    books.move(moves.sources, moves.targets)
    books.decommit(moves.rows)
    blocks = _grantable(pool, books)
    if moves.rows and blocks >= asked:
        cost = f"copies {format_size(len(moves.sources) * pool.layout.block_bytes)}"
        yield Remedy("compact", None, blocks, "compact() the pool", cost)


def _raise_budget(pool: KVPool, asked: int) -> Iterator[Remedy]:
    books, row = pool.block_pool, pool.layout.row_bytes
    have = books.places + pool.blocks_idle
    rows, gained = books.committed.plan(max(0, asked - have), books.rows.count)
    more = books.committed.count + len(rows) - books.max_rows
    if have + gained >= asked and len(rows) <= rows_free_on_device(pool):
        budget = (books.max_rows + more) * row
        text = f"raise the budget to {format_size(budget)} ({budget} bytes)"
        yield Remedy("raise budget", budget, have + gained, text, f"{format_size(more * row)} more of the device")


def _more_blocks(pool: KVPool, asked: int) -> Iterator[Remedy]:
    lacking = asked - (pool.block_pool.rows.blocks - pool.block_pool.used + pool.blocks_idle)
    blocks = pool.block_pool.rows.blocks + lacking
    yield Remedy("more blocks", blocks, asked, f"make the pool with blocks={blocks}", "addresses only")


def _raise_ceiling(pool: KVPool, asked: int) -> Iterator[Remedy]:
    return _of_supply(pool, asked, "raise ceiling")


def _lower_floor(pool: KVPool, asked: int) -> Iterator[Remedy]:
    return _of_supply(pool, asked, "lower floor")


def _of_supply(pool: KVPool, asked: int, action: str) -> Iterator[Remedy]:
    """The supply tries it on its own books."""
    supply = pool.shared_supply
    assert supply is not None, "only a shared supply has ceilings and floors"
    found = supply.shortage(_new_rows(pool, asked) * pool.layout.planes, pool)
    for one in found.remedies if found is not None else ():
        if one.action == action:
            yield dataclasses.replace(one, allows=asked)


def _raise_shared_budget(pool: KVPool, asked: int) -> Iterator[Remedy]:
    whole, rows = whole_supply(pool.shared_supply), _new_rows(pool, asked)
    assert whole is not None, "only a shared supply binds so"
    more = rows * pool.layout.row_bytes - shared_room(pool)
    if rows <= rows_free_on_device(pool):
        budget = (whole.budget or 0) + more
        text = f"make the supply with budget={budget} ({format_size(budget)}), or free {format_size(more)} elsewhere"
        yield Remedy("raise shared budget", more, asked, text, f"{format_size(more)} more of the device")


def _free_elsewhere(pool: KVPool, asked: int) -> Iterator[Remedy]:
    lacking = (_new_rows(pool, asked) - rows_free_on_device(pool)) * pool.layout.row_bytes
    memory = pool.device.memory_info()
    if lacking <= memory.total - memory.free - pool.committed:
        text = f"free {format_size(lacking)} of what else is on the device"
        yield Remedy("free elsewhere", lacking, asked, text, "not this pool's")


def _free(pool: KVPool, asked: int) -> Iterator[Remedy]:
    """End or preempt one sequence that is enough, the shortest such; else the youngest until it is enough."""
    open_now = [one for one in pool.sequences if one.held]
    enough = [one for one in open_now if _after_free(pool, [one]) >= asked]
    chosen = [min(enough, key=lambda one: one.length)] if enough else _youngest(pool, open_now, asked)
    if chosen:
        tokens = sum(one.length for one in chosen)
        rows = tuple(one.row for one in chosen)
        which = f"sequence{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows))}"
        cost = f"{tokens} tokens to compute again, or to swap"
        yield Remedy("free", rows, _after_free(pool, chosen), f"free {which}", cost)


def _youngest(pool: KVPool, open_now: list[Sequence], asked: int) -> list[Sequence]:
    """As many of the last sequences as are needed; none if all are not enough."""
    parts = (open_now[at:] for at in reversed(range(len(open_now))))
    return next((part for part in parts if _after_free(pool, part) >= asked), [])


# -- steps ------------------------------------------------------------------------------------------------------


def _after_free(pool: KVPool, sequences: Iterable[Sequence]) -> int:
    """Blocks to be had when these sequences have gone, and the rows that came empty where the budget is lowered."""
    ids = np.concatenate([np.zeros(0, np.int64), *(np.asarray(one.held, np.int64) for one in sequences)])
    blocks, times = np.unique(ids, return_counts=True)
    last = [block for block, gone in zip(blocks.tolist(), times.tolist(), strict=True) if pool.count(block) == gone]
    if not pool.block_pool.over:
        return pool.blocks_free + len(last)
    books = copy_of(pool.block_pool)
    used = pool.memory.used()
    going = [block for block in last for _ in range(books.count(block))]
    emptied = [row for row in books.free(going) if row not in used]
    books.decommit(emptied[: books.over])
    return _grantable(pool, books)


def _grantable(pool: KVPool, books: BlockPool) -> int:
    """Blocks to be had on changed books."""
    return books.largest_grantable(rows_free_on_device(pool)) + pool.blocks_idle


def _new_rows(pool: KVPool, asked: int) -> int:
    """Rows that must be committed for ``asked`` blocks."""
    books = pool.block_pool
    return len(books.committed.plan(max(0, asked - books.available - pool.blocks_idle), books.rows.count)[0])
