"""ChunkSupply: creates, caches and budgets chunks for one or many ranges. A chunk is one physical allocation."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import warnings
import weakref

from .device import Device
from .errors import AlignmentError, ClosedError, OutOfMemoryError, RangeError, SizeError, StateError
from .physical import PhysicalMemory, close_each, create_each
from .prefetch import Prefetch
from .sizes import Size, format_size, parse_size

_all: weakref.WeakSet[ChunkSupply] = weakref.WeakSet()  # for a fork


class ChunkSupply:
    """Chunks of ``chunk`` bytes (default: the device's granularity) for every range that shares this supply.

    ``budget`` bounds the bytes that exist: in use and cached together; None leaves the bound to the device. ``cache``
    is how many bytes of returned chunks are kept for the next taker instead of released. A chunk is never created
    while a cached one fits. ``prefetch`` is how many bytes, in whole chunks, a thread of this supply keeps cached by
    making chunks before they are asked for, within the budget; see ``prefetch_error``. ``exportable`` chunks can be
    shared with other processes. All methods may be called from several threads.

    Raises AlignmentError for a chunk that is no multiple of the granularity, SizeError for a prefetch of less than one.
    """

    def __init__(
        self,
        device: Device,
        chunk: Size | None = None,
        *,
        budget: Size | None = None,
        cache: Size | None = None,
        prefetch: Size | None = None,
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
        self._retiring = 0  # chunks in use that are on their way back
        self._lock = threading.RLock()  # a range that the garbage collector finds may give while its thread takes
        self._prefetch = self._start(prefetch) if prefetch else None
        self._finalizer = weakref.finalize(self, _release_all, self._cached, self._prefetch)
        device.caches[id(self)] = self
        _all.add(self)

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
        """Bytes kept for the next taker: given back, or prefetched."""
        return len(self._cached) * self.chunk_size

    @property
    def prefetch(self) -> int:
        """Bytes that the thread keeps cached by making chunks; 0 without a thread."""
        return self._prefetch.target * self.chunk_size if self._prefetch else 0

    @property
    def prefetch_error(self) -> Exception | None:
        """Why the thread makes no chunks, most often an OutOfMemoryError; None while it does what it can.

        It goes on when chunks are given back, or when ``take`` could create one by itself.
        """
        return self._prefetch.error if self._prefetch else None

    @property
    def available(self) -> int | None:
        """Bytes that the budget still lets ``take`` give, in whole chunks; None without a budget.

        What retires counts as available: ``take`` waits for it where it must.
        """
        if self.budget is None:
            return None
        return max(0, self.budget // self.chunk_size - len(self._out) + self._retiring) * self.chunk_size

    def can_take(self, count: int) -> bool:
        """Whether the budget has room for ``count`` more chunks in use. The device itself may still be full."""
        return self._fits(count - self._retiring)

    def retire(self, count: int) -> None:
        """Count ``count`` chunks more (or fewer) as on their way back: in use until the work that uses them is done."""
        with self._lock:
            self._retiring += count

    def _fits(self, count: int) -> bool:
        return self.budget is None or len(self._out) + count <= self.budget // self.chunk_size

    def take(self, count: int) -> list[PhysicalMemory]:
        """Give ``count`` chunks, cached ones first, or raise OutOfMemoryError and change nothing.

        Where the device is full, its other supplies release what they have cached; where memory still lacks, what
        retires on this Device is waited for, the oldest first.
        """
        if count < 0:
            raise RangeError(f"cannot take {count} chunks; ask for 0 or more")
        while True:  # each turn more comes free, or it ends
            try:
                return self._take(count)
            except OutOfMemoryError:
                if not self._make_room(count):
                    raise

    def _take(self, count: int) -> list[PhysicalMemory]:
        with self._lock:
            if self._prefetch is not None and count > len(self._cached):
                self._prefetch.land()
            self._check_open()
            if not self._fits(count):
                raise OutOfMemoryError(self._over_budget(count))
            reused = [self._cached.pop() for _ in range(min(count, len(self._cached)))]
            with contextlib.ExitStack() as undo:
                undo.callback(self._cached.extend, reversed(reused))
                created = create_each(self.device, self.chunk_size, count - len(reused), exportable=self.exportable)
                undo.pop_all()
            taken = reused + created
            self._out.update(taken)
            if self._prefetch is not None:
                self._prefetch.resume() if created else self._prefetch.wake()
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
            room = self._room()
            ours = [chunk for chunk in chunks if not chunk.exported]  # another process may have the others mapped
            self._cached.extend(chunk for chunk in ours[:room] if not chunk.closed)
            if self._prefetch is not None:
                self._prefetch.resume()
            close_each([*ours[room:], *(chunk for chunk in chunks if chunk.exported)])

    def trim(self) -> int:
        """Release every cached chunk and return the bytes that came free.

        The thread of ``prefetch`` makes no new ones until chunks are given back, or ``take`` had to create one.
        """
        with self._lock:
            if self._prefetch is not None:
                self._prefetch.rest()
                self._prefetch.land()
            leaving: list[PhysicalMemory] = []
            while self._cached:
                leaving.append(self._cached.pop())
            close_each(leaving)
        return len(leaving) * self.chunk_size

    def wait_prefetched(self, timeout: float | None = None) -> bool:
        """Wait until the thread of ``prefetch`` has made what it can; False if ``timeout`` seconds were not enough."""
        with self._lock:
            return self._prefetch is None or self._prefetch.wait(timeout)

    def close(self) -> None:
        """Release what is cached. Chunks still in use are released when they come back. Closing twice does nothing."""
        with self._lock:
            self._finalizer.detach()
        if self._prefetch is not None:
            self._prefetch.stop()
        self.trim()

    def forked(self) -> None:
        """In a child: no thread of the parent, which may have held the lock, is there to let it go."""
        if self._prefetch is None:  # else nobody held it: see ``Prefetch``
            self._lock = threading.RLock()

    def _start(self, prefetch: Size) -> Prefetch:
        """Start the thread. It knows what it needs of this supply, and not the supply."""
        target = parse_size(prefetch, name="prefetch") // self.chunk_size
        if not target:
            raise SizeError(
                f"prefetch {prefetch!r} is less than one chunk of {format_size(self.chunk_size)}; "
                f"it is in bytes: {self.chunk_size} for each chunk to keep ready"
            )
        make = functools.partial(PhysicalMemory, self.device, self.chunk_size, exportable=self.exportable)
        most = None if self.budget is None else self.budget // self.chunk_size
        return Prefetch(make, self._cached, self._out, self._lock, target, most)

    def _room(self) -> int:
        """How many more chunks are kept; a prefetching supply keeps what it would make otherwise."""
        if not self._finalizer.alive:
            return 0
        if self._prefetch is None:
            return max(0, self._cache_limit - len(self._cached))
        limit = max(self._cache_limit, self._prefetch.target)
        return max(0, limit - len(self._cached) - self._prefetch.coming)

    def _make_room(self, count: int) -> bool:
        """Have other caches released where the device is full, or wait for the oldest that retires; if it helped."""
        if self._fits(count) and self._trim_others():
            return True  # without a wait
        return self.device.retirement.collect_oldest() > 0

    def _trim_others(self) -> bool:
        """Let the other supplies of this device release their caches; whether anything came free."""
        found = [reference() for reference in self.device.caches.valuerefs()]  # threads may add while this looks
        return sum(other.trim() for other in found if other not in (None, self)) > 0

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("chunk supply is closed; make a new one")

    def _over_budget(self, count: int) -> str:
        assert self.budget is not None, "only a budget can be exceeded"
        asked, left = format_size(count * self.chunk_size), format_size(self.available or 0)
        used = f"{format_size(self.in_use)} of {format_size(self.budget)} are in use"
        return f"{asked} asked, {left} left in the budget ({used}); free something or raise the budget"


def _in_child() -> None:
    for found in _all:
        found.forked()


os.register_at_fork(after_in_child=_in_child)


def _release_all(cached: list[PhysicalMemory], prefetch: Prefetch | None) -> None:
    """End the thread and release the cache of a supply that was dropped, and say so if there was either."""
    count = len(cached)
    if prefetch is None or prefetch.abandon():
        leaving = cached[:]
        cached.clear()
        close_each(leaving)
    if count or prefetch is not None:
        text = f"chunk supply with {count} cached chunks was never closed"
        warnings.warn(text, ResourceWarning, stacklevel=2)
