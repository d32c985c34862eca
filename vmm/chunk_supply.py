"""ChunkSupply: creates, caches and budgets chunks for one or many ranges. A chunk is one physical allocation."""

from __future__ import annotations

import warnings
import weakref

from .accounts import UNBOUNDED
from .device import Device
from .errors import AlignmentError
from .physical import PhysicalMemory, close_each
from .prefetch import Prefetch
from .share import Holder, Share, chunks_of
from .sizes import Size, format_size, parse_size
from .stock import Stock
from .supply import Supply


class ChunkSupply(Supply):
    """Chunks of ``chunk`` bytes (default: the device's granularity) for every range that shares this supply.

    ``budget`` bounds the bytes that exist: in use and cached together; None leaves the bound to the device. ``cache``
    is how many bytes of returned chunks are kept for the next taker instead of released. A chunk is never created
    while a cached one fits. ``prefetch`` is how many bytes, in whole chunks, a thread of this supply keeps cached by
    making chunks before they are asked for, within the budget; see ``prefetch_error``. ``exportable`` chunks can be
    shared with other processes. ``share`` divides the budget among several takers. All methods may be called from
    several threads.

    Raises AlignmentError for a chunk that is no multiple of the granularity, SizeError for a prefetch of less than one.

        >>> import vmm
        >>> device = vmm.Device(driver=vmm.HostDriver(memory="1 GiB"))
        >>> with vmm.ChunkSupply(device, budget="8 MiB", cache="4 MiB") as supply:
        ...     with vmm.GrowableRange(device, "1 GiB", supply=supply) as memory:
        ...         memory.grow("6 MiB")
        ...         print(supply.in_use, supply.cached, supply.can_take(2))
        ...     print(supply.in_use, supply.cached)  # two chunks are kept for the next taker
        6291456 0 False
        0 4194304
        >>> device.close()
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
        size = device.granularity if chunk is None else parse_size(chunk, name="chunk")
        if size % device.granularity:
            unit = f"{format_size(device.granularity)} ({device.granularity})"
            raise AlignmentError(f"chunk {chunk!r} is no multiple of the granularity {unit}")
        bound = None if budget is None else parse_size(budget, name="budget")
        limit = (0 if not cache else parse_size(cache, name="cache")) // size
        stock = Stock(device, size, bound, limit, exportable=exportable)
        super().__init__(stock, stock.accounts.unnamed)
        if prefetch:
            stock.start(prefetch)
        self._finalizer = weakref.finalize(self, _release_all, stock.cached, stock.prefetch)

    def __repr__(self) -> str:
        bound = f" of {format_size(self.budget)}" if self.budget is not None else ""
        return f"ChunkSupply({format_size(self.in_use)} in use, {format_size(self.cached)} cached{bound})"

    def __enter__(self) -> ChunkSupply:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def in_use(self) -> int:
        """Bytes that ranges hold, those of shares included."""
        return len(self._stock.out) * self.chunk_size

    @property
    def retiring(self) -> int:
        """Bytes in use that are on their way back, once the work that uses them is done; those of shares included."""
        return self._stock.accounts.retiring * self.chunk_size

    @property
    def cached(self) -> int:
        """Bytes kept for the next taker: given back, or prefetched."""
        return len(self._stock.cached) * self.chunk_size

    @property
    def prefetch(self) -> int:
        """Bytes that the thread keeps cached by making chunks; 0 without a thread."""
        return self._stock.prefetch.target * self.chunk_size if self._stock.prefetch else 0

    @property
    def prefetch_error(self) -> Exception | None:
        """Why the thread makes no chunks, most often an OutOfMemoryError; None while it does what it can.

        It goes on when chunks are given back, or when ``take`` could create one by itself.
        """
        return self._stock.prefetch.error if self._stock.prefetch else None

    def share(self, name: str, *, floor: Size | None = None, ceiling: Size | None = None) -> Share:
        """A taker of this supply with a ``floor`` that the others leave to it and a ``ceiling``, both in bytes.

        Use it as ``supply=`` of ranges and pools. Memory above the floors goes to whoever needs it; nobody's working
        set is taken for another, only what lies empty or is merely cached. A floor promises a part of the budget; that
        the device has so much memory is for the budget to be right about.

        Raises StateError for a name that is in use, SizeError for a floor above the ceiling, without a budget, or where
        all floors are above the budget, OutOfMemoryError while others hold what the floor needs.
        """
        first = chunks_of(floor, self.chunk_size, "floor", up=True) if floor else 0
        last = UNBOUNDED if ceiling is None else chunks_of(ceiling, self.chunk_size, "ceiling")
        with self._stock.lock:
            self._stock.check_open()
            return Share(self, self._stock, self._stock.accounts.open(name, first, last))

    def holders(self) -> list[Holder]:
        """Who holds what: those without a share first. Their ``in_use`` and ``cached`` are all the memory there is."""
        accounts, spare = self._stock.accounts, self._stock.givers.spare
        cached = {accounts.unnamed: self.cached}
        return [Holder.of(one, self.chunk_size, spare(one), cached.get(one, 0)) for one in accounts.all]

    def wait_prefetched(self, timeout: float | None = None) -> bool:
        """Wait until the thread of ``prefetch`` has made what it can; False if ``timeout`` seconds were not enough."""
        with self._stock.lock:
            return self._stock.prefetch is None or self._stock.prefetch.wait(timeout)

    def close(self) -> None:
        """Release what is cached. Chunks still in use are released when they come back. Closing twice does nothing."""
        with self._stock.lock:
            self._stock.closed = True
            self._finalizer.detach()
        if self._stock.prefetch is not None:
            self._stock.prefetch.stop()
        self.trim()


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
