"""Explain: from an address or a chunk of a pool back up to the blocks, sequences and tokens that live there.

The way of ``walk`` in the other direction. The driver's layer knows chunks; which tokens are in one, and how many hold
them, only the tables know.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vmm import RangeError

from .layout import KVLayout
from .place import Place, place_of

if TYPE_CHECKING:
    from .pool_state import PoolState


@dataclass(frozen=True, slots=True)
class Holder:
    """A sequence that has a block in its table: the ``row`` of the pool's table, and the tokens that lie there.

    Tokens ``start`` to ``stop`` - 1 of the sequence; the rest of the block is its tail.
    """

    row: int
    start: int
    stop: int

    def token(self, slot: int) -> int | None:
        """The token in one slot; None in the tail."""
        return self.start + slot if self.start + slot < self.stop else None


@dataclass(frozen=True, slots=True)
class LiveBlock:
    """A block that somebody holds: ``count`` holders in all, the prefix cache not counted, which has it if ``cached``.

    ``others`` of them are no sequences: they took or forked the block by its id.
    """

    block: int
    count: int
    cached: bool
    holders: tuple[Holder, ...]

    @property
    def others(self) -> int:
        """Holders that are no sequences of the pool."""
        return self.count - len(self.holders)


@dataclass(frozen=True, slots=True)
class ChunkContents:
    """One chunk of a pool: chunk ``row`` of ``plane``, and what lives in it.

    ``state`` is "committed", "retiring" (given up, mapped until work is done), "asleep" or "reserved" (addresses only);
    ``handle`` is 0 where nothing is mapped. ``blocks`` are those that touch the row and somebody holds, ``free`` how
    many more touch it.
    """

    chunk: int
    row: int
    plane: int
    state: str
    handle: int
    blocks: tuple[LiveBlock, ...]
    free: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """What lies at one address: byte ``offset`` of the range, in a chunk; ``place`` is None outside every block.

    ``block`` is the block there if somebody holds it.
    """

    address: int
    offset: int
    chunk: ChunkContents
    place: Place | None
    block: LiveBlock | None
    layout: KVLayout = field(repr=False, compare=False)

    def __str__(self) -> str:
        from .explain_text import explanation_lines

        return "\n".join(explanation_lines(self))


def explain(pool: PoolState, address: int) -> Explanation:
    """What ``KVPool.explain`` does."""
    try:
        address = operator.index(address)
    except TypeError:
        raise RangeError(f"an address is a number, such as pool.address(block=0), not {address!r}") from None
    offset = address - pool.range.base
    if not 0 <= offset < pool.reserved:
        where = f"{pool.range.name!r} has {pool.range.base:#x} to {pool.range.base + pool.reserved - 1:#x}"
        raise RangeError(f"address {address:#x} is not of this pool; {where}")
    contents = explain_chunk(pool, offset // pool.layout.chunk)
    place = place_of(pool.layout, offset, pool.block_pool.rows.blocks)
    found = live_block(pool, place.block) if place else None
    return Explanation(address, offset, contents, place, found, pool.layout)


def explain_chunk(pool: PoolState, chunk: int) -> ChunkContents:
    """What lies in one chunk of the pool's range. Raises RangeError for a chunk that is not there."""
    rows, memory = pool.block_pool.rows, pool.range
    if not 0 <= chunk < rows.count * pool.layout.planes:
        last = rows.count * pool.layout.planes - 1
        raise RangeError(f"chunk {chunk} is not there; {memory.name!r} has chunks 0 to {last}")
    plane, row = divmod(chunk, rows.count)
    touching = list(rows.touching(row))
    live = [found for found in (live_block(pool, block) for block in touching) if found]
    mapped = memory.is_committed(chunk)
    return ChunkContents(
        chunk=chunk,
        row=row,
        plane=plane,
        state=_state(pool, chunk),
        handle=memory.mapping(chunk).handle if mapped else 0,
        blocks=tuple(live),
        free=len(touching) - len(live),
    )


def live_block(pool: PoolState, block: int) -> LiveBlock | None:
    """Who holds a block; None if it is free. Raises RangeError for an unknown id."""
    count, cached = pool.count(block), bool(pool.prefix and block in pool.prefix.cache)
    if not count and not cached:
        return None
    size, lengths = pool.layout.block_size, pool.table.lengths
    holders = tuple(
        Holder(row, column * size, min((column + 1) * size, int(lengths[row])))
        for row, column in pool.table.places(block)
    )
    return LiveBlock(block, count, cached, holders)


def _state(pool: PoolState, chunk: int) -> str:
    memory = pool.range
    if memory.is_committed(chunk):
        return "committed"
    if memory.is_retiring(chunk):
        return "retiring"
    return "asleep" if memory.is_held(chunk) else "reserved"
