"""check_heap: whether the books of a heap agree with each other and with its range."""

from __future__ import annotations

import itertools

from .arena import runs_of
from .block import Block
from .heap_chunks import HeapChunks

Span = tuple[int, int]
"""(start, length)."""


def check_heap(chunks: HeapChunks, blocks: list[Block]) -> None:
    """Assert that blocks and free spans tile what arenas have, arenas and addresses tile the range, and that every
    chunk of an arena has memory, which no other chunk has.
    """
    memory, size = chunks.range, chunks.chunk_size
    taken: list[Span] = [(first * size, (stop - first) * size) for first, stop in chunks.leaving]
    taken += [(first * size, count * size) for first, count in chunks.addresses]
    held: set[int] = set()
    for arena in chunks.arenas:
        assert held.isdisjoint(arena.chunks), f"chunks {held & arena.chunks} belong to two streams"
        held |= arena.chunks
        mine = sorted((block.offset, block.size) for block in blocks if block.arena is arena)
        free = list(arena)
        _check_coalesced(free)
        assert sum(length for _, length in free) == arena.free
        runs = [(first * size, (stop - first) * size) for first, stop in runs_of(arena.chunks)]
        assert _joined(sorted(mine + free)) == runs, f"stream {arena.stream}: {mine} and {free} are not {runs}"
        taken += runs
    _check_coalesced(list(chunks.addresses))
    assert _joined(sorted(taken)) == [(0, memory.reserved)], f"{sorted(taken)} are not all addresses"
    assert held == set(memory.held_chunks()), "memory lies where no arena has it"


def _check_coalesced(free: list[Span]) -> None:
    for (start, length), (after, _) in itertools.pairwise(free):
        assert start + length < after, f"free spans {start} + {length} and {after} touch"


def _joined(spans: list[Span]) -> list[Span]:
    """Sorted spans with those that touch put together. Asserts that none overlap."""
    found: list[Span] = []
    for start, length in spans:
        assert length > 0, f"an empty span at {start}"
        if found and found[-1][0] + found[-1][1] == start:
            found[-1] = (found[-1][0], found[-1][1] + length)
            continue
        assert not found or found[-1][0] + found[-1][1] < start, f"{found[-1]} overlaps what begins at {start}"
        found.append((start, length))
    return found
