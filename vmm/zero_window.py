"""ZeroWindow: reads of uncommitted chunks give zeros instead of a fault, in an explicit part of a range.

One chunk of zeros, shared and read-only, is mapped at every place of the window that has no memory of its own. Some
servers do so to let kernels run over a whole table. What it costs: one chunk of physical memory; a cuMemMap for every
uncommitted chunk of the window and a cuMemSetAccess a run when it opens; and for every commit inside it a wait for the
device and an unmap a run more, because work in flight may be reading the zeros. A stray read is no longer found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .address_range import Mapping, adjacent
from .driver import Access
from .sizes import format_size
from .uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .chunk_map import ChunkMap
    from .physical import PhysicalMemory


class ZeroWindow:
    """Chunks ``first`` to ``stop`` - 1 of a range read as zeros where they are not committed, until ``close``.

    Made by ``ChunkedRange.zero_window``. Writes there are refused as everywhere without memory.
    """

    def __init__(self, chunks: ChunkMap, first: int, stop: int) -> None:
        self.first, self.stop = first, stop
        self._chunks, self._addresses = chunks, chunks.addresses
        self._zeros: dict[int, Mapping] = {}
        self._closed = False
        with contextlib.ExitStack() as undo:
            taken = chunks.supply.take(1)
            undo.callback(chunks.supply.give, taken)
            self._memory = taken[0]
            with chunks.second_address(taken[0]) as address:
                chunks.device.driver.fill_async(address, 0, taken[0].size)
            with chunks.retirement.alone():  # what goes from now on is covered as it goes
                self.cover(chunk for chunk in range(first, stop) if not chunks.is_mapped(chunk))
                chunks.windows.append(self)
            undo.pop_all()

    def __repr__(self) -> str:
        what = "closed" if self._closed else f"{len(self._zeros)} of them zeros"
        return f"ZeroWindow(chunks {self.first} to {self.stop - 1} of {self._chunks.name!r}, {what})"

    def __str__(self) -> str:
        cost = f"{format_size(self._memory.size)} of memory, {len(self._zeros)} mappings"
        return f"{self!r}: {cost}; a commit inside waits for the device"

    def __enter__(self) -> ZeroWindow:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def zeros(self) -> list[int]:
        """The chunks that read as zeros now, ascending."""
        return sorted(self._zeros)

    def cover(self, chunks: Iterable[int]) -> None:
        """Map zeros at chunks of the window that have no memory of their own. All or nothing."""
        wanted = sorted(chunk for chunk in chunks if self.first <= chunk < self.stop and chunk not in self._zeros)
        done: list[Mapping] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._unmap, done)
            for chunk in wanted:
                done.append(self._addresses.map(chunk * self._memory.size, self._memory, most=Access.READ))
            for run in adjacent(done):
                self._addresses.set_access(run, Access.READ)
            undo.pop_all()
        self._zeros.update(zip(wanted, done, strict=True))

    def uncover(self, chunks: Iterable[int]) -> list[int]:
        """Wait for the device and unmap the zeros of ``chunks``; which they were. All or nothing."""
        leaving = sorted(self._zeros.keys() & set(chunks))
        if leaving:
            self._chunks.device.synchronize()
            self._unmap_all([self._zeros[chunk] for chunk in leaving])
            for chunk in leaving:
                del self._zeros[chunk]
        return leaving

    @uninterrupted
    def close(self) -> None:
        """Wait for the device, unmap the zeros and give their chunk back. Closing twice does nothing."""
        if not self._closed:
            self._chunks.device.synchronize()
            with self._chunks.retirement.alone():  # nothing is covered meanwhile
                self._unmap_all([self._zeros[chunk] for chunk in self.zeros])
                self._closed = True
                self._zeros.clear()
                self._chunks.windows.remove(self)
            self._chunks.supply.give([self._memory])

    def forget(self) -> PhysicalMemory:
        """The chunk of zeros, when the range closes and has unmapped everything."""
        self._closed = True
        self._zeros.clear()
        return self._memory

    def _unmap(self, mappings: Sequence[Mapping]) -> None:
        for run in adjacent(mappings):
            self._addresses.unmap(run)

    def _unmap_all(self, mappings: Sequence[Mapping]) -> None:
        """Unmap zeros in order. All or nothing."""
        gone: list[Mapping] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._restore, gone)
            for run in adjacent(mappings):
                self._addresses.unmap(run)
                gone.extend(run)
            undo.pop_all()

    def _restore(self, mappings: Sequence[Mapping]) -> None:
        for mapping in mappings:
            self._addresses.restore(mapping)
