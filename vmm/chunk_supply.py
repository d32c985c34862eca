"""ChunkSupply: creates, caches and budgets chunks for one or many ranges. A chunk is one physical allocation."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref

from .device import Device
from .errors import AlignmentError, ClosedError, OutOfMemoryError, RangeError, StateError
from .physical import PhysicalMemory
from .sizes import Size, format_size, parse_size


class ChunkSupply:
    """Chunks of ``chunk`` bytes (default: the device's granularity) for every range that shares this supply.

    ``budget`` bounds the bytes that exist: in use and cached together; None leaves the bound to the device. ``cache``
    is how many bytes of returned chunks are kept for the next taker instead of released. A chunk is never created
    while a cached one fits. ``exportable`` chunks can be shared with other processes. All methods may be called from
    several threads.

    Raises AlignmentError for a chunk that is no multiple of the granularity.
    """

    def __init__(
        self,
        device: Device,
        chunk: Size | None = None,
        *,
        budget: Size | None = None,
        cache: Size | None = None,
        exportable: bool = False,
    ) -> None:
        self.device = device
        self.exportable = exportable
        self.chunk_size = device.granularity if chunk is None else parse_size(chunk, name="chunk")
        if self.chunk_size % device.granularity:
            unit = f"{format_size(device.granularity)} ({device.granularity})"
            raise AlignmentError(f"chunk {chunk!r} is no multiple of the granularity {unit}")
        self.budget = None if budget is None else parse_size(budget, name="budget")
        self._cache_limit = (0 if not cache else parse_size(cache, name="cache")) // self.chunk_size
        self._cached: list[PhysicalMemory] = []
        self._out: set[PhysicalMemory] = set()  # what ranges hold
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _release_all, self._cached)

    def __repr__(self) -> str:
        bound = f" of {format_size(self.budget)}" if self.budget is not None else ""
        return f"ChunkSupply({format_size(self.in_use)} in use, {format_size(self.cached)} cached{bound})"

    def __enter__(self) -> ChunkSupply:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def in_use(self) -> int:
        """Bytes that ranges hold."""
        return len(self._out) * self.chunk_size

    @property
    def cached(self) -> int:
        """Bytes kept for the next taker."""
        return len(self._cached) * self.chunk_size

    @property
    def available(self) -> int | None:
        """Bytes that the budget still lets ``take`` give, in whole chunks; None without a budget."""
        if self.budget is None:
            return None
        return max(0, self.budget // self.chunk_size - len(self._out)) * self.chunk_size

    def can_take(self, count: int) -> bool:
        """Whether the budget has room for ``count`` more chunks in use. The device itself may still be full."""
        return self.budget is None or len(self._out) + count <= self.budget // self.chunk_size

    def take(self, count: int) -> list[PhysicalMemory]:
        """Give ``count`` chunks, cached ones first, or raise OutOfMemoryError and change nothing."""
        if count < 0:
            raise RangeError(f"cannot take {count} chunks; ask for 0 or more")
        with self._lock:
            self._check_open()
            if not self.can_take(count):
                raise OutOfMemoryError(self._over_budget(count))
            reused = [self._cached.pop() for _ in range(min(count, len(self._cached)))]
            with contextlib.ExitStack() as undo:
                undo.callback(self._cached.extend, reversed(reused))
                created = self._create(count - len(reused))
                undo.pop_all()
            taken = reused + created
            self._out.update(taken)
        return taken

    def give(self, chunks: list[PhysicalMemory]) -> None:
        """Take chunks back: keep what the cache has room for, release the rest, and all that were exported.

        Raises StateError for a chunk that this supply did not give, or that comes back twice; nothing has changed then.
        """
        with self._lock:
            returned = set(chunks)
            if len(returned) != len(chunks) or not returned <= self._out:
                strange = next((chunk for chunk in chunks if chunk not in self._out), "one chunk twice")
                raise StateError(f"{strange} was given back; this supply has {len(self._out)} others in use")
            self._out -= returned
            room = max(0, self._cache_limit - len(self._cached)) if self._finalizer.alive else 0
            ours = [chunk for chunk in chunks if not chunk.exported]  # another process may have the others mapped
            self._cached.extend(chunk for chunk in ours[:room] if not chunk.closed)
            for chunk in (*ours[room:], *(chunk for chunk in chunks if chunk.exported)):
                chunk.close()

    def trim(self) -> int:
        """Release every cached chunk and return the bytes that came free."""
        with self._lock:
            freed = self.cached
            while self._cached:
                self._cached.pop().close()
        return freed

    def close(self) -> None:
        """Release what is cached. Chunks still in use are released when they come back. Closing twice does nothing."""
        self.trim()
        self._finalizer.detach()

    def _create(self, count: int) -> list[PhysicalMemory]:
        """Create ``count`` chunks or none."""
        created: list[PhysicalMemory] = []
        with contextlib.ExitStack() as undo:
            undo.callback(_close_each, created)
            try:
                for _ in range(count):
                    created.append(PhysicalMemory(self.device, self.chunk_size, exportable=self.exportable))
            except OutOfMemoryError as error:
                free = format_size(self.device.memory_info().free)
                error.add(f"chunk {len(created) + 1} of {count} new ones; {free} free on device {self.device.ordinal}")
                raise
            undo.pop_all()
        return created

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("chunk supply is closed; make a new one")

    def _over_budget(self, count: int) -> str:
        assert self.budget is not None, "only a budget can be exceeded"
        asked, left = format_size(count * self.chunk_size), format_size(self.available or 0)
        used = f"{format_size(self.in_use)} of {format_size(self.budget)} are in use"
        return f"{asked} asked, {left} left in the budget ({used}); free something or raise the budget"


def _close_each(chunks: list[PhysicalMemory]) -> None:
    for chunk in chunks:
        chunk.close()


def _release_all(cached: list[PhysicalMemory]) -> None:
    """Release the cache of a supply that was dropped, and say so if there was one."""
    count = len(cached)
    _close_each(cached)
    if count:
        warnings.warn(f"chunk supply with {count} cached chunks was never closed", ResourceWarning, stacklevel=2)
