"""picture_of: both page tables of a pool as they are now. It only asks, and in steps of NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vmm import ClosedError

from .picture import BlockKind, ChunkState, Numbers, Picture, Tables

if TYPE_CHECKING:
    from ..pool import KVPool


def picture_of(pool: KVPool) -> Picture:
    """Both page tables of ``pool`` at this moment. A pool that sleeps can be asked too.

    Raises ClosedError after the pool's ``close``.
    """
    if pool.range.closed:
        raise ClosedError(f"{pool.range.name} is closed and has no page table; take the picture before close()")
    layout, tables = pool.layout, _tables(pool)
    states, handles = _chunks(pool)
    cached, counts = _holds(pool)
    return Picture(
        name=pool.range.name,
        order=layout.order,
        base=pool.range.base,
        chunk=layout.chunk,
        block_size=layout.block_size,
        block_stride=layout.block_stride,
        token_bytes=layout.spec.token_bytes,
        tokens=pool.tokens,
        states=_fixed(states),
        handles=_fixed(handles),
        counts=_fixed(counts),
        cached=_fixed(cached),
        filled=_fixed(_filled(tables, layout.block_size, len(counts))),
        kinds=_fixed(_kinds(tables, counts, cached)),
        tables=tables,
    )


def _chunks(pool: KVPool) -> tuple[Numbers, Numbers]:
    """State and handle of every chunk, [planes, rows]."""
    memory, rows, planes = pool.range, pool.block_pool.rows.count, pool.layout.planes
    states, handles = np.zeros(planes * rows, np.uint8), np.zeros(planes * rows, np.uint64)
    states[memory.held_chunks()] = ChunkState.ASLEEP
    committed = memory.committed_chunks()
    states[committed] = ChunkState.COMMITTED
    handles[committed] = [memory.mapping(chunk).handle for chunk in committed]
    if memory.retiring:
        states[[chunk for chunk in range(planes * rows) if memory.is_retiring(chunk)]] = ChunkState.RETIRING
    return states.reshape(planes, rows), handles.reshape(planes, rows)


def _holds(pool: KVPool) -> tuple[Numbers, Numbers]:
    """Whether the prefix cache has each block, and how many others hold it."""
    counts = pool.block_pool.counts.numbers
    cached = pool.prefix.cache.nodes >= 0 if pool.prefix else np.zeros(len(counts), np.bool_)
    return cached, counts - cached


def _tables(pool: KVPool) -> Tables:
    """The block tables of the open sequences, in the order of their rows."""
    table = pool.table
    names = np.array(table.open_rows(), np.int64)
    lengths, dropped = table.lengths[names], table.dropped[names]
    counts = -(-lengths // table.block_size) - dropped
    starts = np.concatenate(([0], np.cumsum(counts)))
    columns = np.arange(starts[-1]) - np.repeat(starts[:-1] - dropped, counts)
    blocks = table.blocks[np.repeat(names, counts), columns].astype(np.int64)
    return Tables(_fixed(names), _fixed(lengths), _fixed(dropped), _fixed(starts), _fixed(blocks))


def _filled(tables: Tables, block_size: int, blocks: int) -> Numbers:
    """Slots of each block that have a token: the most that any of its sequences has there."""
    filled = np.zeros(blocks, np.int64)
    tokens = np.minimum(np.repeat(tables.lengths, tables.counts) - tables.columns * block_size, block_size)
    np.maximum.at(filled, tables.blocks, tokens)
    return filled


def _kinds(tables: Tables, counts: Numbers, cached: Numbers) -> Numbers:
    named = np.zeros(len(counts), np.bool_)
    named[tables.blocks] = True
    kinds = np.where(cached, BlockKind.IDLE, BlockKind.FREE).astype(np.uint8)
    kinds[counts > 0] = BlockKind.BY_ID
    kinds[named] = BlockKind.OWN
    kinds[counts > 1] = BlockKind.SHARED
    return kinds


def _fixed(numbers: Numbers) -> Numbers:
    """A copy that nobody can write to."""
    found = np.array(numbers)
    found.flags.writeable = False
    return found
