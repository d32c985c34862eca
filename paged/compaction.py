"""Compaction: live blocks move together, so that rows come empty and their memory can go.

Which blocks to move is for integers (``plan_moves``). Rows that hold few blocks are emptied into the free places of
rows that hold many. The emptiest row costs the fewest copies for a row of memory, so it goes first; the fullest row
takes first, so that what stays is dense.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmm import After, Stream
from vmm.finishing import Finishing

from .block_copies import copy_blocks
from .blocks.block_pool import BlockPool
from .release import decommit

if TYPE_CHECKING:
    from .pool import KVPool


@dataclass(frozen=True, slots=True)
class Moves:
    """Copy block ``sources[i]`` to the free block ``targets[i]``, all at once; then ``rows`` are empty."""

    sources: list[int]
    targets: list[int]
    rows: list[int]


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did: blocks ``moved``, ``copied`` bytes, ``rows`` that came free and ``freed`` bytes."""

    moved: int
    copied: int
    rows: int
    freed: int


def compact(pool: KVPool, most: int, stream: Stream, after: After) -> Compacted:
    """What ``KVPool.compact`` does."""
    moves = plan_moves(pool.block_pool, movable(pool), most)
    if moves.rows:
        with Finishing() as rest, contextlib.ExitStack() as undo:
            copy_blocks(pool, moves.sources, moves.targets, stream)
            _rename(pool, moves.sources, moves.targets)
            undo.callback(_rename, pool, moves.targets, moves.sources)  # their bytes are still at the old places
            rest.run(decommit, pool, moves.rows, _and(stream, after))
            undo.pop_all()
    moved, rows = len(moves.sources), len(moves.rows)
    return Compacted(moved, moved * pool.layout.block_bytes, rows, rows * pool.layout.row_bytes)


def _and(stream: Stream, after: After) -> After:
    """The copies read the old rows too, on a stream that ``after`` need not name."""
    if after is None:
        return None
    return [*(after if isinstance(after, list | tuple) else [after]), stream]


def movable(pool: KVPool, *, unpinned: bool = False) -> Callable[[int], bool]:
    """Which blocks only the pool's own sequences and prefix cache hold, in rows that nothing outside relies on.

    With ``unpinned``, as if nothing relied on any.
    """
    rows, used = pool.block_pool.rows, set[int]() if unpinned else pool.memory.used()
    holders = pool.table.holders()
    return lambda block: holders.get(block, 0) == pool.count(block) and used.isdisjoint(rows.of(block))


def _rename(pool: KVPool, sources: list[int], targets: list[int]) -> None:
    """Blocks have moved: the counts, the cache and every table follow."""
    pool.block_pool.move(sources, targets)
    if pool.prefix:
        pool.prefix.cache.move(sources, targets)
    pool.table.rename(sources, targets)


def plan_moves(pool: BlockPool, movable: Callable[[int], bool], most: int) -> Moves:
    """The moves of at most ``most`` blocks that empty the most rows, the emptiest first. Nothing changes.

    A row with a block that is not ``movable`` stays. A block that lies in two rows moves with the first that goes.
    """
    free = _FreePlaces(pool)
    moves = Moves([], [], [])
    moved: dict[int, None] = {}
    for row in pool.sparse_rows():
        live = [block for block in pool.rows.touching(row) if pool.count(block) and block not in moved]
        if free.is_target(row) or not live or not all(map(movable, live)):
            continue
        if len(moved) + len(live) > most:
            break
        places = free.take(len(live), row)
        if places is None:
            break
        moved.update(dict.fromkeys(live))
        moves.sources.extend(live)
        moves.targets.extend(places)
        moves.rows.append(row)
    return moves


class _FreePlaces:
    """The available blocks of committed rows, those of the fullest rows first; rows that go give none."""

    def __init__(self, pool: BlockPool) -> None:
        self._rows = pool.rows
        self._left = [block for row in reversed(pool.sparse_rows()) for block in pool.available_in(row)]
        self._at = 0
        self._gone: set[int] = set()
        self._targets: set[int] = set()  # rows that take blocks must stay

    def is_target(self, row: int) -> bool:
        """Whether a row has taken a block."""
        return row in self._targets

    def take(self, count: int, row: int) -> list[int] | None:
        """``count`` places outside ``row`` and the rows that went before; None, and nothing taken, if too few."""
        gone, at = {*self._gone, row}, self._at
        found: list[int] = []
        while at < len(self._left) and len(found) < count:
            block = self._left[at]
            at += 1
            if not gone & set(self._rows.of(block)):
                found.append(block)
        if len(found) < count:
            return None
        self._at, self._gone = at, gone
        self._targets.update(place for block in found for place in self._rows.of(block))
        return found
