"""A model in Python of CuPy's memory pool, to compare allocators where there is no GPU.

Written from what CuPy documents and tests of cupy.cuda.MemoryPool (cupy/cuda/memory.pyx, version 13): sizes in units of
512 bytes; an arena a stream, with free pieces in bins of equal size; the smallest bin that fits serves, and the rest of
its piece goes back; a freed piece merges with free neighbours of the same cudaMalloc; nothing is returned to the device
until free_all_blocks, which releases allocations that are wholly free, and which the pool calls itself when cudaMalloc
fails. Its two locks are here, and the pause of the garbage collector while one is held: they are steps of every call.
Bins that are empty are skipped by one search of bytes, where CuPy has a loop in C++.

CuPy's own pool is compiled, and faster than this; benchmarks/gpu_check.py times that one.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import vmm

UNIT = 512
COMPACTION = 512
"""Empty bins that a search passes before the index is compacted."""


class Piece:
    """A part of one cudaMalloc, with its neighbours in address order."""

    __slots__ = ("address", "following", "preceding", "size", "stream")

    def __init__(self, address: int, size: int, stream: int) -> None:
        self.address, self.size, self.stream = address, size, stream
        self.preceding: Piece | None = None
        self.following: Piece | None = None

    def split(self, size: int) -> Piece:
        """Keep ``size`` bytes; the rest as a piece of its own."""
        rest = Piece(self.address + size, self.size - size, self.stream)
        self.size = size
        rest.following, rest.preceding = self.following, self
        if rest.following is not None:
            rest.following.preceding = rest
        self.following = rest
        return rest

    def absorb(self, piece: Piece) -> None:
        """Take in the piece that follows."""
        self.size += piece.size
        self.following = piece.following
        if piece.following is not None:
            piece.following.preceding = self


class Bins:
    """The free pieces of one stream by size."""

    def __init__(self) -> None:
        self.index: list[int] = []  # the bins' numbers, ascending
        self.pieces: list[set[Piece] | None] = []
        self.filled = bytearray()

    def add(self, piece: Piece) -> None:
        number = (piece.size - 1) // UNIT
        at = bisect_left(self.index, number)
        if at == len(self.index) or self.index[at] != number:
            self.index.insert(at, number)
            self.pieces.insert(at, None)
            self.filled.insert(at, 0)
        found = self.pieces[at]
        if found is None:
            found = self.pieces[at] = set()
        found.add(piece)
        self.filled[at] = 1

    def remove(self, piece: Piece) -> bool:
        """Take a piece out; False where it is in use."""
        number = (piece.size - 1) // UNIT
        at = bisect_left(self.index, number)
        if at == len(self.index) or self.index[at] != number or not self.filled[at]:
            return False
        found = self.pieces[at]
        if found is None or piece not in found:
            return False
        found.remove(piece)
        if not found:
            self.pieces[at] = None
            self.filled[at] = 0
        return True

    def pop(self, size: int) -> Piece | None:
        """A piece of the smallest bin that has ``size`` bytes."""
        first = bisect_left(self.index, (size - 1) // UNIT)
        at = self.filled.find(1, first)
        if at < 0:
            return None
        found = self.pieces[at]
        assert found
        piece = found.pop()
        if not found:
            self.pieces[at] = None
            self.filled[at] = 0
        if at - first >= COMPACTION:
            self.compact()
        return piece

    def compact(self, *, release: bool = False) -> list[Piece]:
        """Forget empty bins; with ``release`` take out the pieces that are whole allocations."""
        whole: list[Piece] = []
        kept: list[tuple[int, set[Piece]]] = []
        for number, found in zip(self.index, self.pieces, strict=True):
            if not found:
                continue
            if release:
                whole += [piece for piece in found if piece.preceding is piece.following is None]
                found = {piece for piece in found if not piece.preceding is piece.following is None}
            if found:
                kept.append((number, found))
        self.index, self.pieces = [number for number, _ in kept], [found for _, found in kept]
        self.filled = bytearray(b"\1" * len(kept))
        return whole

    def __iter__(self) -> Iterator[Piece]:
        for found in self.pieces:
            yield from found or ()


class Memory:
    """What malloc gives."""

    __slots__ = ("address", "pool", "size")

    def __init__(self, address: int, size: int, pool: CupyPool) -> None:
        self.address, self.size, self.pool = address, size, pool

    def free(self) -> None:
        """Give it back; the second time nothing happens."""
        address, self.address = self.address, 0
        if address:
            self.pool.free(address)


class CupyPool:
    """The pool of one device; ``limit`` in bytes, 0 for none."""

    def __init__(self, device: vmm.Device, limit: int = 0) -> None:
        self._device, self._limit = device, limit
        self._in_use: dict[int, Piece] = {}
        self._bins: defaultdict[int, Bins] = defaultdict(Bins)
        self._free_lock, self._use_lock, self._total_lock = threading.RLock(), threading.RLock(), threading.RLock()
        self.total_bytes = self.peak_bytes = 0

    def malloc(self, size: int, stream: int = 0) -> Memory:
        """``size`` bytes, rounded up to 512, for ``stream``. Raises MemoryError."""
        size = (size + UNIT - 1) // UNIT * UNIT
        if not size:
            return Memory(0, 0, self)
        self._free_lock.acquire()
        collecting = gc.isenabled()
        if collecting:
            gc.disable()
        try:
            bins = self._bins[stream]
            piece = bins.pop(size)
            if piece is not None and piece.size > size:
                bins.add(piece.split(size))
        finally:
            if collecting:
                gc.enable()
            self._free_lock.release()
        if piece is None:
            piece = Piece(self._allocate(size), size, stream)
        with self._use_lock:
            self._in_use[piece.address] = piece
        return Memory(piece.address, piece.size, self)

    def free(self, address: int) -> None:
        """Give back what lies at ``address``."""
        with self._use_lock:
            piece = self._in_use.pop(address, None)
        if piece is None:
            raise RuntimeError(f"{address:#x} was not allocated here")
        self._free_lock.acquire()
        collecting = gc.isenabled()
        if collecting:
            gc.disable()
        try:
            bins = self._bins[piece.stream]
            neighbour = piece.following
            if neighbour is not None and bins.remove(neighbour):
                piece.absorb(neighbour)
            neighbour = piece.preceding
            if neighbour is not None and bins.remove(neighbour):
                neighbour.absorb(piece)
                piece = neighbour
            bins.add(piece)
        finally:
            if collecting:
                gc.enable()
            self._free_lock.release()

    def free_all_blocks(self, stream: int | None = None) -> None:
        """Release the allocations of which no part is in use."""
        with self._paused():
            for key in list(self._bins) if stream is None else [stream] if stream in self._bins else []:
                for piece in self._bins[key].compact(release=True):
                    self.total_bytes -= piece.size
                    self._device.driver.alloc_free(piece.address)

    @property
    def addresses(self) -> list[int]:
        """Where blocks are in use."""
        return list(self._in_use)

    @property
    def used_bytes(self) -> int:
        """Bytes in use."""
        return sum(piece.size for piece in self._in_use.values())

    @property
    def free_bytes(self) -> int:
        """Bytes kept and not in use."""
        return sum(piece.size for bins in self._bins.values() for piece in bins)

    @property
    def free_blocks(self) -> int:
        """How many pieces are kept."""
        return sum(1 for bins in self._bins.values() for _ in bins)

    def _allocate(self, size: int) -> int:
        """cudaMalloc, after which everything that can be released is, when it fails; and once more after a collect."""
        with self._total_lock:
            if self._limit and self.total_bytes + size > self._limit:
                raise MemoryError(f"{size} bytes would be more than the limit of {self._limit}")
            self.total_bytes += size
        for attempt in range(3):
            try:
                with self._device.current():
                    address = self._device.driver.alloc(size)
                self.peak_bytes = max(self.peak_bytes, self.total_bytes)
                return address
            except vmm.OutOfMemoryError:
                if attempt == 2:
                    self.total_bytes -= size
                    raise
                if attempt:
                    gc.collect()
                with self._device.current():
                    self.free_all_blocks()
        raise AssertionError

    @contextmanager
    def _paused(self) -> Iterator[None]:
        with self._free_lock:
            collecting = gc.isenabled()
            gc.disable()
            try:
                yield
            finally:
                if collecting:
                    gc.enable()
