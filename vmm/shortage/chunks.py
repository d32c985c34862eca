"""Chunks that a supply does not give: the ceiling of a share, the budget, floors of others, or a device that is full.

Remedies are tried on a copy of the accounts, on which what retires is back and everybody has given up what it can: so
much a taker gets by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..accounts import UNBOUNDED, Account, Accounts
from ..errors import VmmError
from ..sizes import format_size
from .device_memory import device_limit, holders_on
from .floors import who_is
from .report import Held, Limit, Portion, Remedy, Shortage, sorted_limits

if TYPE_CHECKING:
    from ..givers import Giver
    from ..stock import Stock


def chunk_shortage(
    stock: Stock,
    account: Account,
    count: int,
    askers: Sequence[Giver] = (),
    *,
    refused: bool = False,
    settled: bool = True,
) -> Shortage | None:
    """Why ``account`` cannot have ``count`` more chunks, in bytes; None where it can, unless the driver ``refused``.

    Unless ``settled``, what retires and what others could spare does not count: it was asked for, and did not come.
    """
    books = Books(stock, account, askers, settled=settled)
    found = books.limits()
    limits, of_device = sorted_limits(found), found[-1]
    if refused and _enough(limits[0], count * stock.chunk_size):
        limits = (Limit("driver", None, f"the driver refuses although {of_device.text}"), *limits)
    elif _enough(limits[0], count * stock.chunk_size):
        return None
    remedies = tuple(books.remedies(count, limits[0].name))
    held_back = any(remedy.action == "lower floor" for remedy in remedies)
    return Shortage(
        name=account.name if stock.accounts.named else "chunk supply",
        unit="bytes",
        asked=count * stock.chunk_size,
        granted=limits[0].allows,
        cause="floor" if held_back and limits[0].name == "budget" else limits[0].name,
        limits=limits,
        portions=books.portions(),
        holders=books.holders(limits[0].name),
        remedies=remedies,
    )


def chunk_limits(stock: Stock, account: Account, askers: Sequence[Giver] = ()) -> tuple[Limit, ...]:
    """What ``Supply.limits`` does."""
    return sorted_limits(Books(stock, account, askers, settled=True).limits())


def _enough(limit: Limit, size: int) -> bool:
    return limit.allows is None or limit.allows >= size


class Books:
    """The accounts of a stock for one taker, ``mine``: copies in which, if ``settled``, nothing retires or is spare."""

    def __init__(self, stock: Stock, account: Account, askers: Sequence[Giver], *, settled: bool) -> None:
        self.stock, self.size = stock, stock.chunk_size
        known = {
            one: stock.givers.spare(one, askers) for one in stock.accounts.all
        }  # no lock is held while anybody is asked
        known = known if settled else {}
        with stock.lock:
            self.accounts = stock.accounts.copy()
            for one, copy in zip(stock.accounts.all, self.accounts.all, strict=True):
                spare = known.get(one, 0)
                given = spare if one is account else min(spare, one.above)
                copy.out, copy.retiring = one.out - one.retiring * settled - given, 0
            self.at = stock.accounts.all.index(account) if account in stock.accounts.all else 0
            self.spare = stock.accounts.out - stock.accounts.retiring * settled - self.accounts.out
        self.device_chunks = self._on_device()

    @property
    def mine(self) -> Account:
        """The copy of who asks."""
        return self.accounts.all[self.at]

    def limits(self) -> list[Limit]:
        """Ceiling and budget, as far as they are there, and the device."""
        found, mine, size = [], self.mine, self.size
        if mine.ceiling != UNBOUNDED:
            has, most = format_size(mine.out * size), format_size(mine.ceiling * size)
            text = f"share {mine.name!r} has {has} of its ceiling {most}"
            found.append(Limit("ceiling", max(0, mine.ceiling - mine.out) * size, text))
        if self.accounts.most != UNBOUNDED:
            used, most = format_size(self.accounts.out * size), format_size(self.accounts.most * size)
            room = max(0, self.accounts.shared_room(mine))
            promised = sum(max(0, one.floor - one.out) for one in self.accounts.named if one is not mine)
            kept = f", {format_size(promised * size)} more are promised to others" if promised else ""
            found.append(Limit("budget", room * size, f"{used} of {most} are in use{kept}"))
        allows = None if self.device_chunks is None else self.device_chunks * size
        return [*found, device_limit(self.stock.device, allows)]

    def portions(self) -> tuple[Portion, ...]:
        """The memory that there is: in use, on its way back, and cached."""
        real, cached = self.stock.accounts, len(self.stock.cached)
        return (
            Portion("held", real.settled * self.size),
            Portion("retiring", real.retiring * self.size),
            Portion("cached", cached * self.size),
        )

    def holders(self, limit: str) -> tuple[Held, ...]:
        """Who has what the limit bounds."""
        if limit in ("device", "driver"):
            return holders_on(self.stock.device)
        return tuple(
            Held(who_is(self.accounts, one), one.out * self.size) for one in self.stock.accounts.all if one.out
        )

    # -- remedies -----------------------------------------------------------------------------------------------

    def remedies(self, count: int, limit: str) -> Iterator[Remedy]:
        """What helps against the limit that binds, the cheapest first."""
        tries: dict[str, tuple[Callable[[int], Iterator[Remedy]], ...]] = {
            "ceiling": (self._raise_ceiling, self._free),
            "budget": (self._lower_floor, self._free, self._raise_budget),
            "device": (self._free_here, self._free_elsewhere),
            "driver": (),
        }
        for attempt in tries[limit]:
            yield from attempt(count)

    def _raise_ceiling(self, count: int) -> Iterator[Remedy]:
        accounts, mine = self._copy()
        mine.ceiling = mine.out + count
        if self._allows(accounts, mine, count):
            size = mine.ceiling * self.size
            text = f"raise the ceiling of {mine.name!r} to {format_size(size)} ({size} bytes)"
            yield Remedy("raise ceiling", size, count * self.size, text, self._more(count, "budget"))

    def _lower_floor(self, count: int) -> Iterator[Remedy]:
        lacking = count - self.accounts.shared_room(self.mine)
        for at, one in enumerate(self.accounts.all):
            accounts, mine = self._copy()
            other = accounts.all[at]
            other.floor = max(other.out, other.floor - lacking)
            if at != self.at and other.floor < one.floor and self._allows(accounts, mine, count):
                size = other.floor * self.size
                text = f"lower the floor of {one.name!r} to {format_size(size)} ({size} bytes)"
                cost = f"a promise of {format_size((one.floor - other.floor) * self.size)}"
                yield Remedy("lower floor", (one.name, size), count * self.size, text, cost)

    def _free(self, count: int) -> Iterator[Remedy]:
        """Of one's own memory first, then of the others'."""
        lacking = count - self.accounts.room(self.mine)
        for at in sorted(range(len(self.accounts.all)), key=lambda index: index != self.at):
            accounts, mine = self._copy()
            one = accounts.all[at]
            if one.out < lacking:
                continue
            one.out -= lacking
            if self._allows(accounts, mine, count, freed=lacking):
                size = lacking * self.size
                text = f"free {format_size(size)} of {who_is(self.accounts, one)}"
                action = "free here" if at == self.at else "free elsewhere"
                yield Remedy(action, size, count * self.size, text, "the bytes in it")

    def _raise_budget(self, count: int) -> Iterator[Remedy]:
        accounts, mine = self._copy()
        lacking = count - accounts.shared_room(mine)
        accounts.most += lacking
        if self._allows(accounts, mine, count):
            size = accounts.most * self.size
            text = f"make the supply with budget={size} ({format_size(size)})"
            yield Remedy("raise budget", size, count * self.size, text, self._more(lacking, "device"))

    def _free_here(self, count: int) -> Iterator[Remedy]:
        lacking = count - (self.device_chunks or 0)
        if lacking <= self.mine.out:
            text = f"free {format_size(lacking * self.size)} of {who_is(self.accounts, self.mine)}"
            yield Remedy("free here", lacking * self.size, count * self.size, text, "the bytes in it")

    def _free_elsewhere(self, count: int) -> Iterator[Remedy]:
        lacking = (count - (self.device_chunks or 0)) * self.size
        beside = sum(one.bytes or 0 for one in holders_on(self.stock.device)) - self.stock.accounts.out * self.size
        if lacking <= beside - len(self.stock.cached) * self.size:
            text = f"free {format_size(lacking)} of what else is on the device"
            yield Remedy("free elsewhere", lacking, count * self.size, text, "not this supply's")

    # -- steps --------------------------------------------------------------------------------------------------

    def _copy(self) -> tuple[Accounts, Account]:
        accounts = self.accounts.copy()
        return accounts, accounts.all[self.at]

    def _allows(self, accounts: Accounts, mine: Account, count: int, *, freed: int = 0) -> bool:
        """Whether the taker could have so many then, and the device has them."""
        return accounts.room(mine) >= count and (self.device_chunks is None or self.device_chunks + freed >= count)

    def _on_device(self) -> int | None:
        """Chunks that could be had if the device were the only bound."""
        try:
            return self.stock.device.obtainable // self.size + self.spare
        except VmmError:
            return None

    def _more(self, chunks: int, of: str) -> str:
        return f"{format_size(chunks * self.size)} more of the {of}"
