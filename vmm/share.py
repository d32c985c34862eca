"""Share: a part of a supply's budget with a name, a floor and a ceiling, for one of several models on a device."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .accounts import UNBOUNDED, Account
from .errors import ClosedError, SizeError
from .givers import Giver
from .physical import PhysicalMemory
from .sizes import Size, format_size, parse_size
from .stock import Stock
from .supply import Supply

if TYPE_CHECKING:
    from .chunk_supply import ChunkSupply


@dataclass(frozen=True, slots=True)
class Holder:
    """What one taker of a supply has, in bytes. ``retiring`` and ``spare`` are parts of ``in_use``.

    ``cached`` is what the supply keeps for anybody, and stands with those that have no share. ``spare`` is what others
    could get of it: it lies empty or is only cached, and is above the floor. ``ceiling`` is None without one.
    """

    name: str
    in_use: int
    cached: int
    retiring: int
    floor: int
    ceiling: int | None
    spare: int

    @classmethod
    def of(cls, account: Account, size: int, spare: int, cached: int = 0) -> Holder:
        """An account in chunks of ``size`` bytes."""
        ceiling = None if account.ceiling == UNBOUNDED else account.ceiling * size
        counts = (account.out, account.retiring, account.floor, min(spare, account.above))
        in_use, retiring, floor, spare = (count * size for count in counts)
        return cls(account.name, in_use, cached, retiring, floor, ceiling, spare)

    def __str__(self) -> str:
        parts = [f"floor {format_size(self.floor)}"] if self.floor else []
        parts += [f"ceiling {format_size(self.ceiling)}"] if self.ceiling is not None else []
        parts += [f"{format_size(self.retiring)} retiring"] if self.retiring else []
        parts += [f"{format_size(self.spare)} to spare"] if self.spare else []
        return f"{self.name}: {format_size(self.in_use)}" + (f" ({', '.join(parts)})" if parts else "")


class Share(Supply):
    """A taker of a ChunkSupply, made by ``ChunkSupply.share``: a supply for ranges and pools, within bounds of its own.

    ``floor`` bytes of the budget are left to it by all others; more than ``ceiling`` it never has.
    """

    def __init__(self, supply: ChunkSupply, stock: Stock, account: Account) -> None:
        super().__init__(stock, account)
        self._supply = supply  # lives as long as its shares
        self._finalizer = weakref.finalize(self, stock.accounts.close, account)  # a floor without a taker helps nobody
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        most = f", ceiling {format_size(self.ceiling)}" if self.ceiling is not None else ""
        return f"Share({self.name!r}, {format_size(self.in_use)} in use, floor {format_size(self.floor)}{most})"

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Who it is, in errors and in ``ChunkSupply.holders``."""
        return self._account.name

    @property
    def supply(self) -> ChunkSupply:
        """Whose budget it is a part of."""
        return self._supply

    @property
    def floor(self) -> int:
        """Bytes that nobody else may take, in whole chunks."""
        return self._account.floor * self.chunk_size

    @property
    def ceiling(self) -> int | None:
        """The most bytes that it can have, in whole chunks; None leaves that to the budget."""
        return self._bytes(self._account.ceiling)

    @property
    def budget(self) -> int | None:
        """The most bytes that it could ever have: its ceiling or the supply's budget, whichever is lower."""
        return min((bound for bound in (self.ceiling, super().budget) if bound is not None), default=None)

    def take(self, count: int) -> list[PhysicalMemory]:
        """As ``Supply.take``. Raises ClosedError after ``close``."""
        self._check_open()
        return super().take(count)

    def register(self, giver: Giver) -> None:
        """As ``Supply.register``. Raises ClosedError after ``close``."""
        self._check_open()
        super().register(giver)

    def set_bounds(self, *, floor: Size | None = None, ceiling: Size | None = None) -> None:
        """Change the floor, the ceiling or both, while in use; what is not named stays. A floor may be 0.

        A ceiling below what is in use takes nothing away: nothing more is given until it is reached. Raises SizeError
        for a floor above the ceiling or floors above the budget, OutOfMemoryError while others hold what a higher floor
        needs; nothing has changed then.
        """
        self._check_open()
        now = self._account
        first = now.floor if floor is None else chunks_of(floor, self.chunk_size, "floor", up=True)
        last = now.ceiling if ceiling is None else chunks_of(ceiling, self.chunk_size, "ceiling")
        with self._stock.lock:
            self._stock.accounts.bound(now, first, last)

    def close(self) -> None:
        """Leave its floor to the others and take nothing more. Closing twice does nothing.

        What its ranges still hold comes back when they close.
        """
        self._finalizer()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError(f"share {self.name!r} is closed; make a new one with supply.share()")


def chunks_of(size: Size, chunk: int, name: str, *, up: bool = False) -> int:
    """A floor (rounded ``up``) or a ceiling in whole chunks. Raises SizeError for a ceiling that holds none."""
    if up:
        return -(-parse_size(size, name=name) // chunk) if size else 0
    found = parse_size(size, name=name) // chunk
    if not found:
        raise SizeError(f"{name} {size!r} holds no chunk of {format_size(chunk)}; give {chunk} bytes or more")
    return found
