"""Malloc: blocks of a heap by address, as allocators of other libraries ask for them.

They allocate in any thread, and free in any thread at any moment: in a finalizer that the garbage collector runs in the
middle of an allocation, in a forked child, at the end of the interpreter.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections import deque

from ..allocator import Allocator
from ..block import Block
from ..errors import ReleaseError, StateError, VmmError
from ..growable import GrowableRange
from ..sizes import format_size
from ..streams import PER_THREAD, Stream, stream_handle
from ..uninterrupted import handed_over, uninterrupted

__all__ = ["Held", "Malloc", "of"]

_log = logging.getLogger("vmm")


class _Turn:
    """Who changes a heap for other libraries: one thread, and not from inside a change."""

    def __init__(self) -> None:
        self.lock, self.inside = threading.RLock(), False


_turns: weakref.WeakKeyDictionary[GrowableRange, _Turn] = weakref.WeakKeyDictionary()  # a heap and what wraps it: one


class Malloc:
    """What several libraries hold of one heap; ``of`` gives the one of a heap. The heap cannot be closed meanwhile.

    An allocation waits for one in another thread. A free waits for nobody and raises nothing about the memory: what
    cannot be given back at once is with the next call.
    """

    def __init__(self, heap: Allocator) -> None:
        self.heap, self.device = heap, heap.range.device
        self._blocks: dict[int, Block] = {}
        self._leaving: deque[tuple[Block, int | None, Stream | None]] = deque()  # the stream itself is kept alive
        self._turn = _turns.setdefault(heap.range, _Turn())
        self._hold: object = None

    def __repr__(self) -> str:
        return f"Malloc({len(self)} blocks of {self.heap!r})"

    def __len__(self) -> int:
        """How many blocks are held."""
        return len(self._blocks)

    @handed_over(lambda self, address: self.free(address))
    def allocate(self, size: int, stream: Stream | None = None) -> int:
        """The address of ``size`` bytes for work on ``stream`` (None: any); 0 for 0 bytes, which hold nothing.

        Raises OutOfMemoryError as ``Heap.allocate``, StateError in a child that was forked from the heap's process and
        for an allocation from inside another one, as a finalizer may try.
        """
        if self.device.driver.forked:
            what = "this process was forked from the one that made the heap, where CUDA does not work"
            raise StateError(f"{what}; start processes with multiprocessing's 'spawn'")
        if not size:
            return 0
        handle = _handle(stream)
        with self._turn.lock:
            if self._turn.inside:
                raise StateError(f"{format_size(size)} were asked for in the middle of another allocation of the heap")
            if self._leaving:
                self._free_leaving()
            self._turn.inside = True
            try:
                block = self.heap.allocate(size, stream=handle)
            finally:
                self._turn.inside = False
            self._blocks[block.address] = block
            if self._hold is None:
                self._hold = self.heap.range.keep_open("blocks that were given to another library")
        if self._leaving:  # somebody could not free it meanwhile
            self._collect()
        return block.address

    def free(self, address: int, stream: Stream | None = None) -> None:
        """Give back what ``allocate`` returned, when the work now on ``stream`` is done (None: the block's own).

        Raises StateError for an address that is not held, and as ``stream_handle``; nothing is freed then. Does nothing
        in a forked child or an ending interpreter: the driver takes everything back with the process.
        """
        if not address or sys.is_finalizing() or self.device.idle:
            return
        handle = _handle(stream)
        block = self._blocks.pop(address, None)
        if block is None:
            raise StateError(f"{address:#x} is not held of this heap; was it freed before?")
        self._leaving.append((block, handle, stream))
        self._collect()

    @uninterrupted
    def _collect(self) -> None:
        """Free what leaves, unless somebody is in the middle of a change: whoever makes it comes here after."""
        while self._leaving and self._turn.lock.acquire(blocking=False):
            try:
                if self._turn.inside or not self._free_leaving():
                    return
            finally:
                self._turn.lock.release()

    def _free_leaving(self) -> bool:
        """Free what leaves; whether all could go. The turn is had."""
        self._turn.inside, refused = True, []
        try:
            while self._leaving:
                leaving = self._leaving.popleft()
                block, handle, _stream = leaving
                try:
                    block.free(after=handle)
                except ReleaseError as error:  # it is free all the same
                    _log.warning("a block that another library freed: %s", str(error))
                except VmmError as error:
                    # As text: the error's frames hold what is in the way.
                    _log.error("a block that another library freed stays for now: %s", str(error))
                    refused.append(leaving)
        finally:
            self._leaving.extend(refused)
            self._turn.inside = False
        if not self._blocks and not self._leaving:
            self._hold = None
        return not refused


def _handle(stream: Stream | None) -> int | None:
    """The handle of a stream; none of the per-thread default stream, which is another one where the free runs."""
    handle = None if stream is None else stream_handle(stream)
    return None if handle == PER_THREAD else handle


_of: weakref.WeakValueDictionary[Allocator, Malloc] = weakref.WeakValueDictionary()
_making = threading.Lock()


def of(heap: Allocator) -> Malloc:
    """The Malloc of a heap: one for all libraries, as long as any of them has it."""
    with _making:
        found = _of.get(heap)
        if found is None:
            found = _of[heap] = Malloc(heap)
        return found


class Held:
    """An address that is freed when nobody has this object any more: what an array of another library owns."""

    __slots__ = ("address", "malloc", "stream")

    def __init__(self, malloc: Malloc, address: int, stream: Stream | None) -> None:
        self.malloc, self.address, self.stream = malloc, address, stream

    def __del__(self) -> None:
        self.malloc.free(self.address, self.stream)
