"""Heap: a general allocator on one growable range. It commits a chunk when the first block enters it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from .device import Device
from .errors import OutOfMemoryError, StateError
from .fence import After
from .finishing import Finishing
from .growable import GrowableRange
from .last_work import LastWork
from .one_thread import one_thread
from .shortage.addresses import span_shortage
from .sizes import Size, format_size, parse_size, round_up
from .spans import FreeSpans
from .supply import Supply
from .uninterrupted import handed_over, uninterrupted, whole
from .views import Shape

ALIGNMENT = 512
"""Every block starts at a multiple of this many bytes, as cudaMalloc's and CuPy's pool do at least."""


class Block:
    """``size`` bytes at ``address``, of which ``requested`` were asked for. Belongs to the heap that made it."""

    __slots__ = ("heap", "offset", "requested", "size")

    def __init__(self, heap: Heap, offset: int, size: int, requested: int) -> None:
        self.heap, self.offset, self.size, self.requested = heap, offset, size, requested

    def __repr__(self) -> str:
        return f"Block({self.address:#x}, {format_size(self.size)})"

    @property
    def address(self) -> int:
        """The first address; it stays the same until the block is freed."""
        return self.heap.range.base + self.offset

    def array(self, dtype: Any, shape: Shape) -> Any:
        """An array on the block's memory; the block cannot be freed while it lives."""
        return self.heap.view(self, dtype, shape)

    def free(self, *, after: After = None) -> None:
        """Give the block back. Raises StateError the second time, and while an array views it.

        Its chunks go when the work ``after`` is done (by default all of the device's; see ``ChunkedRange.decommit``);
        nothing waits for it. The next block there may be had at once: order new work after the old.
        """
        self.heap.release(self, after=after)


class Heap:
    """Allocates blocks of any size in ``reserve`` bytes of addresses: best fit over coalescing free spans.

    Physical memory is committed by chunk where blocks lie, and given back when a chunk's last block goes, so free
    addresses cost nothing and physical memory never fragments: any free chunk serves any address.
    Raises OutOfMemoryError when addresses, the supply's budget or the device are exhausted; nothing has changed then.
    """

    @whole
    def __init__(
        self, device: Device, reserve: Size, *, chunk: Size | None = None, supply: Supply | None = None
    ) -> None:
        self.range = GrowableRange(device, reserve, chunk=chunk, supply=supply, name="heap")
        self._spans = FreeSpans(self.range.reserved)
        self._blocks: dict[int, Block] = {}
        self.busy = threading.Lock()
        self._users: Counter[int] = Counter()  # chunk -> blocks that touch it
        self._work = LastWork()  # of blocks that left a chunk before its last one did

    def __repr__(self) -> str:
        if self.range.closed:
            return "Heap(closed)"
        return f"Heap({len(self._blocks)} blocks, {format_size(self.allocated)} in {format_size(self.committed)})"

    def __enter__(self) -> Heap:
        return self

    def __exit__(self, *exc: object) -> None:
        self.range.__exit__(*exc)

    @property
    def reserved(self) -> int:
        """Bytes of addresses."""
        return self.range.reserved

    @property
    def committed(self) -> int:
        """Bytes of physical memory."""
        return self.range.committed

    @property
    def allocated(self) -> int:
        """Bytes in blocks, rounding included."""
        return self.reserved - self._spans.free

    @handed_over(lambda self, block: self.release(block))
    @one_thread
    def allocate(self, size: Size) -> Block:
        """A block of at least ``size`` bytes, rounded up to 512, at an address that is a multiple of 512."""
        requested = parse_size(size)
        length = round_up(requested, ALIGNMENT)
        offset = self._spans.take(length)
        if offset is None:
            raise OutOfMemoryError(
                f"no free span of {format_size(length)} in the heap's {format_size(self.reserved)} of addresses; "
                f"the largest is {format_size(self._spans.largest)}; reserve more, addresses cost no memory",
                span_shortage("heap", length, self.reserved, self.allocated, self._spans.largest, len(self._blocks)),
            )
        chunks = self._chunks(offset, length)
        try:
            self.range.commit(chunk for chunk in chunks if not self._users[chunk])
        except BaseException:
            self._spans.give(offset, length)
            raise
        self._users.update(chunks)
        block = self._blocks[offset] = Block(self, offset, length, requested)
        return block

    @one_thread
    def release(self, block: Block, *, after: After = None) -> None:
        """What ``block.free()`` does."""
        self._check_mine(block)
        self.range.check_unused(block.offset, block.offset + block.size, "free")
        chunks = self._chunks(block.offset, block.size)
        with Finishing() as rest:
            leaving = [chunk for chunk in chunks if self._users[chunk] == 1]
            self._work.note(chunks, after)
            rest.run(self.range.decommit, leaving, after=self._work.before(leaving, after))
            self._work.forget(leaving)
            self._users.subtract(chunks)
            del self._blocks[block.offset]
            self._spans.give(block.offset, block.size)

    def view(self, block: Block, dtype: Any, shape: Shape) -> Any:
        """What ``block.array()`` does."""
        self._check_mine(block)
        return self.range.array(dtype, shape, block.offset, limit=block.offset + block.size)

    @uninterrupted
    def close(self) -> None:
        """Give back everything, allocated blocks too. Closing twice does nothing."""
        with Finishing() as rest:
            rest.run(self.range.close)
            self._blocks.clear()

    def _check_mine(self, block: Block) -> None:
        if self._blocks.get(block.offset) is not block:
            raise StateError(f"block at offset {block.offset:#x} is not allocated in this heap; was it freed before?")

    def _chunks(self, offset: int, length: int) -> range:
        """The chunks that a span touches."""
        return range(offset // self.range.chunk_size, -(-(offset + length) // self.range.chunk_size))
