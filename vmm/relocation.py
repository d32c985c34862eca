"""Relocation: physical memory leaves some addresses of a range and serves others, without the driver's create.

What no work uses any more need not be given back and made again: one unmap a run, one map a chunk, one access a run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .address_range import Mapping, adjacent
from .errors import VmmError
from .sizes import format_size

if TYPE_CHECKING:
    from .chunk_map import ChunkMap


def relocate(chunks: ChunkMap, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Map the memory of ``sources`` at ``targets`` instead; both ascending, of one length, and the targets are free.

    No work uses the sources. All or nothing.
    """
    gone: list[Mapping] = []
    placed: list[Mapping] = []
    with contextlib.ExitStack() as undo:
        undo.callback(_undo, chunks, gone, targets, placed)
        lifted = [chunks.mappings[source] for source in sources]
        chunks.unmap_runs(lifted)
        gone += lifted
        for window in chunks.windows:
            window.uncover(targets)
        _place(chunks, gone, targets, placed)
        undo.pop_all()
    for source in sources:
        del chunks.mappings[source]
        chunks.earlier.pop(source, None)
    chunks.mappings.update(zip(targets, placed, strict=True))


def _place(chunks: ChunkMap, lifted: Sequence[Mapping], targets: Sequence[int], placed: list[Mapping]) -> None:
    """Map, then set access a run at a time; ``placed`` grows with each mapping, for the undo."""
    chunk = targets[0]
    try:
        for chunk, mapping in zip(targets, lifted, strict=True):
            placed.append(chunks.addresses.map(chunk * chunks.chunk_size, mapping.memory))
        for run in adjacent(placed):
            chunk = run[0].offset // chunks.chunk_size
            chunks.addresses.set_access(run, chunks.access)
    except VmmError as error:
        error.add(f"at chunk {chunk} of {chunks.name}, {format_size(chunks.chunk_size)} each")
        raise


def _undo(chunks: ChunkMap, gone: list[Mapping], targets: Sequence[int], placed: list[Mapping]) -> None:
    for run in adjacent(placed):
        chunks.addresses.unmap(run)
    if gone:
        for window in chunks.windows:
            window.cover(targets)
            window.uncover(mapping.offset // chunks.chunk_size for mapping in gone)
    for mapping in gone:
        chunks.addresses.restore(mapping)
