"""Heap: a general allocator on one growable range, with physical memory where its blocks are."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .allocator import ALIGNMENT, parse_alignment
from .arena import Arena
from .block import Block
from .device import Device
from .errors import OutOfMemoryError, ReleaseError, StateError, VmmError
from .fence import After
from .finishing import Finishing
from .growable import GrowableRange
from .heap_check import check_heap
from .heap_chunks import HeapChunks
from .heap_spare import HeapSpare
from .heap_turn import HeapTurn
from .late_frees import LateFrees
from .sizes import LARGEST, Size, format_size, parse_size
from .streams import PER_THREAD, Stream
from .supply import Supply
from .uninterrupted import Uninterrupted, uninterrupted, whole
from .views import Shape

_LAST = ALIGNMENT - 1


class Heap:
    """Allocates blocks of any size in ``reserve`` bytes of addresses: best fit over free spans that coalesce.

    Physical memory comes by chunk where blocks lie. A chunk whose last block went is kept for the next block, wherever
    that lies, until ``trim``, or until anybody on the device lacks memory; with ``keep=False`` it goes at once. So
    physical memory never fragments: any empty chunk serves any address. A heap belongs to one thread at a time.

    Memory is ordered by streams: see ``Block.free``. Streams are told apart by their handles; wait for a stream's work
    before you destroy it, for a new one may get its handle.
    Raises as ``GrowableRange``. ``StatisticsHeap`` and ``LimitedHeap`` wrap a heap.

        >>> import vmm
        >>> device = vmm.Device(driver=vmm.HostDriver(memory="1 GiB"))
        >>> with vmm.Heap(device, reserve="64 GiB") as heap:
        ...     block = heap.allocate(123_456)
        ...     print(block.size, heap.committed)  # rounded up to 512; one chunk
        ...     block.free()
        ...     print(heap.allocated, heap.committed, heap.trim(), heap.committed)
        123904 2097152
        0 2097152 2097152 0
        >>> device.close()
    """

    @whole
    def __init__(
        self,
        device: Device,
        reserve: Size,
        *,
        chunk: Size | None = None,
        supply: Supply | None = None,
        keep: bool = True,
    ) -> None:
        self.range = GrowableRange(device, reserve, chunk=chunk, supply=supply, name="heap")
        self.keep = keep
        self._blocks: dict[int, Block] = {}
        self.chunks = HeapChunks(self.range, self._blocks, exact=not keep)
        self.turn = HeapTurn()
        self._small, self._large, self._large_from = self.chunks.small, self.chunks.large, self.chunks.large_from
        self._late = LateFrees(self.range, self._blocks)
        self._dropped = self._late.dropped
        self._spare = HeapSpare(self.chunks, self.turn)

    def __repr__(self) -> str:
        if self.range.closed:
            return "Heap(closed)"
        return f"Heap({len(self._blocks)} blocks, {format_size(self.allocated)} in {format_size(self.committed)})"

    def __enter__(self) -> Heap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.range.__exit__(kind, error, trace)
        if self.range.closed:
            self.close()

    @property
    def reserved(self) -> int:
        """Bytes of addresses."""
        return self.range.reserved

    @property
    def committed(self) -> int:
        """Bytes of physical memory, that which retires included."""
        return self.range.committed

    @property
    def allocated(self) -> int:
        """Bytes in blocks, rounding included, and those of freed blocks that other work still uses."""
        return self.chunks.held - self.chunks.free

    @property
    def trimmable(self) -> int:
        """Bytes that ``trim`` would give back: whole chunks without a block."""
        return self.chunks.empty() * self.range.chunk_size

    def allocate(self, size: Size, *, stream: Stream | None = None, alignment: Size = ALIGNMENT) -> Block:
        """A block of at least ``size`` bytes, rounded up to 512, at a multiple of ``alignment``.

        Work queued on ``stream`` from now on may use it; None leaves the order of work to the caller. ``stream`` is a
        handle, or a stream of CuPy, cuda.core, PyTorch or the bindings. ``alignment`` is a power of two up to the
        chunk.

        Raises SizeError, AlignmentError, TypeError for what is no stream, and OutOfMemoryError where addresses, the
        supply's budget or the device have no more and nothing retires: all blocks are as they were.
        """
        block, turn = Block(), self.turn
        block.heap = self
        try:
            if turn.setdefault(0, block) is not block:
                turn.wait(block)
            if self._dropped:
                self._late.collect_dropped(self._give)
            block.requested = requested = size if type(size) is int and 0 < size <= LARGEST else parse_size(size)
            block.size = length = requested + _LAST & ~_LAST
            arenas = self._small if length < self._large_from else self._large
            arena = arenas.get(stream) if stream is None or type(stream) is int else None
            if arena is None:  # so it is for CU_STREAM_PER_THREAD: its arenas have other keys
                self.range.check_awake()
                arena = self.chunks.arena(stream, length)
            block.arena = arena
            if self.range.asleep:
                self.range.check_awake()
            offset = arena.take(length) if alignment == ALIGNMENT else None
            if offset is None:
                offset = self._take_more(arena, length, alignment, stream)
            block.offset = offset
            block.address = self.range.base + offset
            self._blocks[offset] = block
            del turn[0]
            return block
        except (VmmError, TypeError):
            turn.end(block)
            raise
        except BaseException:
            self._undo_allocate(block)
            raise

    def release(self, block: Block, *, after: After = None) -> None:
        """What ``block.free()`` does."""
        turn = self.turn
        try:
            if turn.setdefault(0, block) is not block:
                turn.wait(block)
            if self._dropped:
                self._late.collect_dropped(self._give)
            if self._blocks.get(block.offset) is not block:
                self._check_mine(block)
            if self.range.relied_on:
                self.range.check_unused(block.offset, block.offset + block.size, "free")
            arena = block.arena
            if after is not None and (after != arena.stream or type(after) is not int or after == PER_THREAD):
                self._late.add(block, after, self._give)
            elif self.keep:
                del self._blocks[block.offset]
                arena.clock += 1
                arena.give(block.offset, block.size, arena.clock)
            else:
                self._give(block, False)
            del turn[0]
        except (VmmError, TypeError):
            turn.end(block)
            raise
        except BaseException:
            self._mend(block)
            raise

    def drop(self, block: Block) -> None:
        """What ``block.drop()`` does."""
        self._dropped.append(block)

    def holds(self, block: Block) -> bool:
        """Whether ``block`` is allocated here, and was not freed."""
        return self._blocks.get(block.offset) is block

    def view(self, block: Block, dtype: Any, shape: Shape) -> Any:
        """What ``block.array()`` does."""
        self._check_mine(block)
        return self.range.array(dtype, shape, block.offset, limit=block.offset + block.size)

    def trim(self) -> int:
        """Give every chunk back that holds no block; how many bytes. What work still uses retires first."""
        with self.turn.taken():
            self.range.check_awake()
            self._late.collect(self._give)
            return self.chunks.give_back() * self.range.chunk_size

    def collect(self, *, wait: bool = False) -> int:
        """Take in what was freed after other work that is done, and unmap what retires; the bytes unmapped.

        With ``wait``, wait until that is all of it.
        """
        with self.turn.taken():
            self.range.check_awake()
            self._late.collect(self._give, wait=wait)
            return self.range.collect(wait=wait)

    @uninterrupted
    def close(self) -> None:
        """Give back everything, allocated blocks too. Closing twice does nothing."""
        with self.turn.taken(), Finishing() as rest:
            rest.run(self.range.close)
            rest.run(self.chunks.forget)
            rest.run(self._late.forget)
            self._blocks.clear()

    def check(self) -> None:
        """Raise AssertionError where the books contradict each other or the range. For tests."""
        check_heap(self.chunks, [*self._blocks.values(), *self._late.waiting])

    # -- steps ----------------------------------------------------------------------------------------------------

    @uninterrupted
    def _take_more(self, arena: Arena, length: int, alignment: Size, stream: Stream | None) -> int:
        """Take what no free span has, or what an alignment needs beyond the usual."""
        if alignment == ALIGNMENT:
            return self._extend(arena, length, stream)
        wanted = parse_alignment(alignment, self.range.chunk_size)
        found = length + max(0, wanted - ALIGNMENT)  # an aligned place is in it; the rest goes back
        offset = arena.take(found)
        if offset is None:
            offset = self._extend(arena, found, stream)
        start = offset + -(self.range.base + offset) % wanted
        arena.give_around(offset, offset + found, start, start + length)
        if not self.keep:
            try:
                self.chunks.decommit(arena.empty_runs())
            except VmmError:
                arena.give(start, length, arena.clock)
                raise
        return start

    def _extend(self, arena: Arena, length: int, stream: Stream | None) -> int:
        """Make room for ``length`` in an arena that has none, and take it. What lies empty goes before memory lacks."""
        while True:
            if self._late:
                self._late.collect(self._give)
                offset = arena.take(length)
                if offset is not None:
                    return offset
            try:
                return self.chunks.extend(arena, length, stream)
            except OutOfMemoryError:
                if not (self.chunks.give_back() or self.chunks.wait() or self._late.wait()):
                    raise

    def _give(self, block: Block, settled: bool) -> None:
        """Let the bytes of a block be free, in the order of its stream, or ``settled`` for anybody."""
        arena, offset = block.arena, block.offset
        del self._blocks[offset]
        arena.clock += 1
        start, length = arena.give(offset, block.size, 0 if settled else arena.clock)
        if not self.keep and length >= arena.chunk_size:
            self._shrink(block, arena, start, length)

    @uninterrupted
    def _shrink(self, block: Block, arena: Arena, start: int, length: int) -> None:
        """Give the chunks of a free span back that ``block`` left. Where that is refused, it is not free."""
        try:
            self.chunks.decommit(arena.runs_in(start, length))
        except ReleaseError:
            raise
        except VmmError:
            arena.cut(start, block.offset, block.size)
            self._blocks[block.offset] = block
            raise

    def _check_mine(self, block: Block) -> None:
        if not self.holds(block):
            raise StateError(f"block at offset {block.offset:#x} is not allocated in this heap; was it freed before?")

    # -- an interrupt came between two steps ------------------------------------------------------------------------

    def _undo_allocate(self, block: Block) -> None:
        """The caller will never have ``block``."""
        with Uninterrupted():
            if self._blocks.get(getattr(block, "offset", -1)) is block:  # it may have come to nothing before that
                if self.turn.get(0) is not block:
                    self._dropped.append(block)  # the turn is another's by now
                    return
                del self._blocks[block.offset]
            self._mend(block)

    def _mend(self, block: Block) -> None:
        """Set the free spans right by what is allocated, and end the turn."""
        with Uninterrupted():
            if self.turn.get(0) is block:
                arena = getattr(block, "arena", None)
                if arena is not None:
                    held = [*self._blocks.values(), *self._late.waiting]
                    arena.rebuild((one.offset, one.size) for one in held if one.arena is arena)
                self.turn.end(block)
