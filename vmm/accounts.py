"""Accounts: who holds how many chunks of one supply, and how many more each may take. Integers only.

A taker has a floor, which the others leave to it, and a ceiling. Of a budget, taker i may still take

    min(ceiling_i - out_i,  budget - sum of all out - sum over the others j of max(0, floor_j - out_j))
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from .errors import OutOfMemoryError, SizeError, StateError
from .shortage.floors import floor_shortage
from .sizes import format_size

UNBOUNDED = sys.maxsize
"""A number of chunks that nobody reaches."""
UNNAMED = "without a share"
"""What takes from the supply itself, in errors and accounts."""


@dataclass(slots=True, eq=False)
class Account:
    """What one taker may have and has, in chunks; ``retiring`` of those ``out`` are on their way back."""

    name: str
    floor: int = 0
    ceiling: int = UNBOUNDED
    out: int = 0
    retiring: int = 0

    def held(self, *, settled: bool) -> int:
        """What it has, or will have once what retires is back."""
        return self.out - self.retiring if settled else self.out

    def describe(self, size: int) -> str:
        """What it has and may have, in chunks of ``size`` bytes, for errors."""
        parts = [f"floor {format_size(self.floor * size)}"] if self.floor else []
        parts += [f"ceiling {format_size(self.ceiling * size)}"] if self.ceiling != UNBOUNDED else []
        return f"{self.name} {format_size(self.out * size)}" + (f" of {', '.join(parts)}" if parts else "")

    @property
    def above(self) -> int:
        """Chunks beyond the floor, once what retires is back: what others could get of it."""
        return max(0, self.out - self.retiring - self.floor)


class Accounts:
    """The takers of ``most`` chunks of ``size`` bytes.

    ``unnamed`` is whoever takes from the supply itself, without floor or ceiling.
    """

    def __init__(self, most: int, size: int = 1) -> None:
        self.most, self.size = most, size
        self.unnamed = Account(UNNAMED)
        self.named: tuple[Account, ...] = ()  # exchanged whole: a share may be dropped in any thread

    @property
    def all(self) -> list[Account]:
        """The unnamed taker first, then the others as they came."""
        return [self.unnamed, *self.named]

    @property
    def out(self) -> int:
        """Chunks that anybody has."""
        return sum((account.out for account in self.named), self.unnamed.out)

    @property
    def retiring(self) -> int:
        """Chunks in use that are on their way back."""
        return sum((account.retiring for account in self.named), self.unnamed.retiring)

    @property
    def settled(self) -> int:
        """Chunks that are in use and will stay so."""
        return self.out - self.retiring

    def room(self, account: Account, *, settled: bool = False) -> int:
        """How many more chunks ``account`` may take now, or (``settled``) once what retires is back. Never negative."""
        left = self.shared_room(account, settled=settled)
        if left == account.ceiling == UNBOUNDED:
            return UNBOUNDED
        return max(0, min(account.ceiling - account.held(settled=settled), left))

    def shared_room(self, account: Account, *, settled: bool = False) -> int:
        """The same without its ceiling; negative where floors were promised that others still hold."""
        if self.most == UNBOUNDED:
            return UNBOUNDED
        left = self.most - self.unnamed.held(settled=settled)
        for other in self.named:
            held = other.held(settled=settled)
            left -= held if other is account else max(held, other.floor)
        return left

    def copy(self) -> Accounts:
        """The same takers with the same counts, in the same order, to try things on."""
        made = Accounts(self.most, self.size)
        made.unnamed, *named = [replace(account) for account in self.all]
        made.named = tuple(named)
        return made

    def open(self, name: str, floor: int, ceiling: int) -> Account:
        """A new taker. Raises StateError for a name that is in use, and as ``bound``."""
        if any(account.name == name for account in self.named) or name == UNNAMED:
            raise StateError(f"the supply has a share {name!r} already; give each taker a name of its own")
        made = Account(name)
        self.bound(made, floor, ceiling)
        self.named += (made,)
        return made

    def bound(self, account: Account, floor: int, ceiling: int) -> None:
        """Set floor and ceiling. A ceiling below what is held lets nothing more be taken until it is reached.

        Raises SizeError for floors that the budget does not hold, OutOfMemoryError, both with the numbers in chunks,
        while others hold what a higher floor needs; nothing has changed then.
        """
        if floor > ceiling:
            raise SizeError(f"the floor of {account.name!r}, {floor} chunks, is above its ceiling of {ceiling} chunks")
        others = sum(other.floor for other in self.named if other is not account)
        if floor and self.most == UNBOUNDED:
            raise SizeError(f"a floor of {account.name!r} needs a supply with a budget; make it with budget=")
        if others + floor > self.most:
            text = f"the floors of all shares need {others + floor} chunks"
            raise SizeError(f"{text} and the budget has {self.most}; lower a floor or raise the budget")
        left = self.shared_room(account) - (0 if account in self.named else account.out)
        if floor > account.floor and floor - account.out > left:
            text = f"a floor of {floor} chunks for {account.name!r} needs {floor - account.out} now"
            report = floor_shortage(self, account, floor - account.out, max(0, left))
            raise OutOfMemoryError(f"{text}, and the others leave {max(0, left)}; {report.advice()}", report)
        account.floor, account.ceiling = floor, ceiling

    def close(self, account: Account) -> None:
        """Leave its floor to the others and let it take nothing more; it is gone when it has nothing left."""
        account.floor = account.ceiling = 0
        self.forget_ended(account)

    def forget_ended(self, account: Account) -> None:
        """Strike off a closed taker that has given everything back."""
        if not account.ceiling and not account.out and account in self.named:
            self.named = tuple(other for other in self.named if other is not account)
