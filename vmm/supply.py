"""Supply: where ranges and pools take their chunks from. A ``ChunkSupply`` is one, and so is each share of it."""

from __future__ import annotations

from .accounts import UNBOUNDED, Account
from .device import Device
from .givers import Giver
from .physical import PhysicalMemory
from .shortage.chunks import chunk_limits, chunk_shortage
from .shortage.report import Limit, Shortage
from .stock import Stock
from .uninterrupted import handed_over


class Supply:
    """What everything that takes chunks uses. Made as ``ChunkSupply``, or by ``ChunkSupply.share``."""

    def __init__(self, stock: Stock, account: Account) -> None:
        self._stock, self._account = stock, account

    @property
    def device(self) -> Device:
        """The device of the chunks."""
        return self._stock.device

    @property
    def chunk_size(self) -> int:
        """Bytes of a chunk."""
        return self._stock.chunk_size

    @property
    def exportable(self) -> bool:
        """Whether the chunks can be shared with other processes."""
        return self._stock.exportable

    @property
    def budget(self) -> int | None:
        """The most bytes that can be had here; None without a bound."""
        return self._stock.budget

    @property
    def in_use(self) -> int:
        """Bytes that ranges hold."""
        return self._account.out * self.chunk_size

    @property
    def retiring(self) -> int:
        """Bytes in use that are on their way back, once the work that uses them is done."""
        return self._account.retiring * self.chunk_size

    @property
    def available(self) -> int | None:
        """Bytes that the budget still lets ``take`` give, in whole chunks, without asking others; None without a bound.

        What retires counts as available: ``take`` waits for it where it must. What a floor leaves to others does not.
        """
        return self._bytes(self._stock.accounts.room(self._account, settled=True))

    def can_take(self, count: int) -> bool:
        """Whether the budget has room for ``count`` more chunks in use. The device itself may still be full."""
        return count <= self._stock.accounts.room(self._account, settled=True)

    def shortage(self, count: int, *askers: Giver) -> Shortage | None:
        """Why ``count`` more chunks are not to be had, in bytes; None where they are. See ``vmm.Shortage``.

        The same is ``report`` of the error that ``take`` raises. What retires counts as to be had, and what others than
        ``askers`` could spare; a driver may refuse all the same.
        """
        return chunk_shortage(self._stock, self._account, count, askers)

    def limits(self, *askers: Giver) -> tuple[Limit, ...]:
        """What bounds the next ``take``, in bytes, as ``shortage`` has it: "ceiling", "budget" and "device"."""
        return chunk_limits(self._stock, self._account, askers)

    def obtainable(self, *askers: Giver) -> int | None:
        """Bytes available, and what others than ``askers`` could give up for them; None without a bound."""
        return self._bytes(self._stock.givers.obtainable(self._account, askers))

    @handed_over(lambda self, chunks: self.give(chunks))
    def take(self, count: int) -> list[PhysicalMemory]:
        """Give ``count`` chunks, cached ones first, or raise OutOfMemoryError and change nothing.

        Where the device is full, its other supplies release what they have cached; where memory still lacks, what
        retires on this Device is waited for, the oldest first, and then those that registered give up what they can
        spare, if it is enough.
        """
        return self._stock.take(self._account, count)

    def give(self, chunks: list[PhysicalMemory]) -> None:
        """Take chunks back: keep what the cache has room for, release the rest, and all that were exported.

        Raises StateError for a chunk that was not given here, or that comes back twice; nothing has changed then.
        """
        self._stock.give(self._account, chunks)

    def retire(self, count: int) -> None:
        """Count ``count`` chunks more (or fewer) as on their way back: in use until the work that uses them is done."""
        with self._stock.lock:
            self._account.retiring += count

    def register(self, giver: Giver) -> None:
        """Ask ``giver``, which takes its memory here, for what it can spare when others lack some.

        It is not kept alive.
        """
        self._stock.givers.add(self._account, giver)

    def trim(self) -> int:
        """Release every cached chunk, for whomever it is kept, and return the bytes that came free.

        The thread of ``prefetch`` makes no new ones until chunks are given back, or ``take`` had to create one.
        """
        return self._stock.trim()

    def close(self) -> None:
        """Give nothing more."""
        raise NotImplementedError

    def _bytes(self, chunks: int) -> int | None:
        return None if chunks == UNBOUNDED else chunks * self.chunk_size
