"""Givers: whom to ask for memory, and for how much, when a taker of a supply lacks some.

Nobody's working set is asked for: only what lies empty, and then what is only cached, and never what a floor promises.
Nothing is asked for unless all that is lacking would come. No lock is held while anybody is asked.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .accounts import UNBOUNDED, Account, Accounts

_numbers = itertools.count(1)


class Giver(Protocol):
    """Who holds memory of a supply and could do without some of it when another needs it. A KVPool is one.

    Both methods may be called in any thread that takes memory, and never wait for another thread.
    """

    def spare(self, *, cached: bool) -> int:
        """How many chunks it could give up now without losing anything, with ``cached`` also what it only caches.

        0 while it is being changed.
        """

    def give_up(self, chunks: int, *, cached: bool) -> int:
        """Give ``chunks`` of them back, in whole rows; how many went. They may retire for a while."""


@dataclass(frozen=True, slots=True)
class Lack:
    """Chunks that must come back before a taker can have more: ``own`` from its own account, ``total`` from anybody."""

    own: int
    total: int


class Givers:
    """Who can be asked, by account. Holds nobody alive."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._known: weakref.WeakValueDictionary[int, Giver] = weakref.WeakValueDictionary()
        self._of: dict[int, Account] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, account: Account, giver: Giver) -> None:
        """Let ``giver``, which takes for ``account``, be asked from now on, as long as it lives."""
        number = next(_numbers)
        self._known[number], self._of[number] = giver, account
        weakref.finalize(giver, self._of.pop, number, None).atexit = False

    def spare(self, account: Account, askers: Sequence[Giver] = ()) -> int:
        """Chunks that the givers of one account, without ``askers``, could give up, floor or not."""
        return sum(giver.spare(cached=True) for giver in self._givers(account, askers))

    def obtainable(self, account: Account, askers: Sequence[Giver]) -> int:
        """What ``account`` could take once what retires is back and everybody but ``askers`` has given what it can."""
        room = self._accounts.shared_room(account, settled=True)
        if room == account.ceiling == UNBOUNDED:
            return UNBOUNDED
        own = self.spare(account, askers)
        if room != UNBOUNDED:
            room += own + sum(self._others(account, askers).values())
        return max(0, min(room, account.ceiling - account.held(settled=True) + own))

    def lack(self, account: Account, count: int) -> Lack:
        """What must come back before ``account`` can take ``count`` chunks, beyond what retires already."""
        room = self._accounts.shared_room(account, settled=True)
        own = max(0, count + account.held(settled=True) - account.ceiling)
        return Lack(own, max(own, count - room))

    def at_least(self, lack: Lack, total: int) -> Lack:
        """The same, with ``total`` chunks from anybody where that is more."""
        return Lack(lack.own, max(lack.total, total))

    def ask(self, account: Account, lack: Lack) -> bool:
        """Have others give up what ``account`` lacks; whether anything came. Nobody is asked if it cannot be enough."""
        own, others = self.spare(account), self._others(account, ())
        if lack.total <= 0 or own < lack.own or own + sum(others.values()) < lack.total:
            return False
        given = self._have_given([account], lack.own, below_floor=True)
        given += self._have_given(list(others), lack.total - given)
        given += self._have_given([account], lack.total - given, below_floor=True)
        return given > 0

    # -- steps --------------------------------------------------------------------------------------------------

    def _have_given(self, accounts: list[Account], wanted: int, *, below_floor: bool = False) -> int:
        """Ask for ``wanted`` chunks, of those first who have most beyond their floor; how many came.

        What lies empty first, with whomever. A giver gives whole rows, so it may be more.
        """
        given = 0
        for cached in (False, True):
            for account in sorted(accounts, key=lambda one: one.above, reverse=True):
                for giver in self._givers(account, ()):
                    most = wanted - given if below_floor else min(wanted - given, account.above)
                    asked = min(most, giver.spare(cached=cached)) if most > 0 else 0
                    given += giver.give_up(asked, cached=cached) if asked else 0
        return given

    def _others(self, account: Account, askers: Sequence[Giver]) -> dict[Account, int]:
        """What each other account could give up and others could then have."""
        found = {other: min(other.above, self.spare(other, askers)) for other in self._accounts.all}
        return {other: spare for other, spare in found.items() if spare and other is not account}

    def _givers(self, account: Account, askers: Sequence[Giver]) -> Iterator[Giver]:
        for number, owner in list(self._of.items()):
            giver = self._known.get(number)
            if owner is account and giver is not None and not any(giver is asker for asker in askers):
                yield giver
