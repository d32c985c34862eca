"""Release: how a pool gives up blocks, and the rows that come empty. Their memory goes when the work on it is done.

Nothing here guards against a second thread or an interrupt: what calls it does.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmm import After, Size, handles_of
from vmm.finishing import Finishing

from .blocks.block_ids import block_ids
from .row_memory import capacity

if TYPE_CHECKING:
    from .pool import KVPool


def free(pool: KVPool, blocks: Sequence[int], after: After) -> None:
    """What ``KVPool.free`` does."""
    books, blocks = pool.block_pool, block_ids(blocks)
    handles_of(after)  # raises for what is neither a stream nor an event
    if pool.prefix:
        pool.prefix.check_held(blocks)
        if books.over:  # a lowered limit is to be reached
            pool.prefix.let_go(blocks)
    emptied = books.free(blocks)
    pool.memory.note(blocks, after)
    surplus = max(len(books.empty) - pool.reserve_rows, min(books.over, len(emptied)))
    with Finishing() as rest, contextlib.ExitStack() as undo:
        if emptied and surplus > 0 and not pool.prealloc:
            undo.callback(books.hold, blocks)
            rest.run(decommit, pool, _surplus(pool, surplus), after)
        undo.pop_all()
        if pool.prefix:
            pool.prefix.rest(blocks)


def decommit(pool: KVPool, rows: list[int], after: After) -> None:
    """Give the memory of empty rows back; what ``free``, ``trim`` and ``compact`` do."""
    with Finishing() as rest:
        rest.run(pool.memory.decommit, rows, after)
        pool.block_pool.decommit(rows)


def trim(pool: KVPool, *, cache: bool, after: After) -> int:
    """What ``KVPool.trim`` does."""
    if cache and pool.prefix:
        pool.prefix.evict(pool.blocks_idle)
    rows = [] if pool.prealloc else list(pool.block_pool.empty)
    if rows:
        decommit(pool, rows, after)
    return len(rows) * pool.layout.row_bytes


def set_budget(pool: KVPool, budget: Size, after: After) -> bool:
    """What ``KVPool.set_budget`` does."""
    if pool.prealloc:
        raise ValueError(f"{pool.range.name!r} has all of its memory from the start; make a new pool")
    if budget is None:
        raise ValueError("a new budget must be a number of bytes or text such as '2 MiB', not None")
    books = pool.block_pool
    _total, rows = capacity(pool.layout, None, budget, None, prealloc=False)
    with Finishing() as rest, contextlib.ExitStack() as undo:
        undo.callback(books.limit, books.max_rows)
        books.limit(books.rows.count if rows is None else rows)
        if books.over > len(books.empty) and pool.prefix:
            pool.prefix.evict(pool.blocks_idle)
        going = heapq.nlargest(books.over, books.empty)
        if going:
            rest.run(decommit, pool, going, after)
        undo.pop_all()
    return not books.over


def _surplus(pool: KVPool, rows: int) -> list[int]:
    """The highest empty rows, those first that nothing outside relies on."""
    used = pool.memory.used()
    return heapq.nlargest(rows, pool.block_pool.empty, key=lambda row: (row not in used, row))
