"""A floor that cannot be promised now, for others hold what it needs. Integers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sizes import format_size
from .report import Held, Limit, Portion, Remedy, Shortage

if TYPE_CHECKING:
    from ..accounts import Account, Accounts


def floor_shortage(accounts: Accounts, account: Account, needed: int, left: int) -> Shortage:
    """Why ``needed`` more chunks cannot be promised to ``account``: the others leave it ``left``."""
    size = accounts.size
    takers = [one for one in accounts.all if one.out]
    most = accounts.most * size
    text = f"{format_size(accounts.out * size)} of the budget of {format_size(most)} are in use, floors beside it"
    return Shortage(
        name=account.name,
        unit="bytes",
        asked=needed * size,
        granted=left * size,
        cause="shared budget",
        limits=(Limit("shared budget", left * size, text),),
        portions=tuple(Portion(one.name, one.out * size) for one in takers),
        holders=tuple(Held(who_is(accounts, one), one.out * size) for one in takers),
        remedies=tuple(_remedies(accounts, account, needed, left)),
    )


def who_is(accounts: Accounts, account: Account) -> str:
    """A taker in a text: the share by its name, or whoever takes from the supply itself."""
    if account.name != accounts.unnamed.name:
        return account.name
    return "who has no share" if accounts.named else "the ranges of this supply"


def _remedies(accounts: Accounts, account: Account, needed: int, left: int) -> list[Remedy]:
    """Whoever else has so much above its floor could give it back: tried on a copy of the accounts."""
    found, size, lacking = [], accounts.size, needed - left
    for index, one in enumerate(accounts.all):
        copy = accounts.copy()
        if one is account or one.out < lacking:
            continue
        copy.all[index].out -= lacking
        mine = copy.all[accounts.all.index(account)] if account in accounts.all else None
        if copy.shared_room(mine or account) >= needed:
            text = f"free {format_size(lacking * size)} of {who_is(accounts, one)}"
            found.append(Remedy("free elsewhere", lacking * size, needed * size, text, "their bytes"))
    return found
