"""Shortage: why a pool has not so many blocks, as data and as five lines. ``KVPool.shortage`` makes one.

A number of blocks is bounded by several limits at a time; the one that allows the fewest binds. What fills it up, and
what would help, is found on the pool's books; a remedy is only named after it was tried on a copy of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmm import format_size

MOST_SHOWN = 3
"""Holders in the text."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One of the bounds: with it alone, ``blocks`` blocks could be had. ``text`` says how it stands, with its numbers.

    ``name`` is "virtual range" (blocks with addresses), "budget" (the pool's own), "lowered budget" (pending),
    "ceiling" (of the pool's share), "shared budget" (of the supply, floors of others counted) or "device".
    """

    name: str
    blocks: int
    text: str


@dataclass(frozen=True, slots=True)
class Portion:
    """``bytes`` of the pool's committed memory by what they are for.

    ``name`` is "live" (tokens), "tails" (room in the last blocks), "by id" (blocks that no sequence holds), "cached"
    (idle blocks of the prefix cache), "free places" (in rows that are in use), "empty rows" or "retiring".
    """

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has how many bytes: a sequence, another taker of the supply, a pin, or what else is on the device."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that was tried on a copy of the books: ``blocks`` could be had then.

    ``action`` is "compact", "unpin" (``value``: reasons of the pins), "raise budget" (the new budget in bytes), "free"
    (rows of sequences), "more blocks" (the number for ``blocks=``), "raise ceiling", "raise shared budget" or "free
    elsewhere" (bytes). ``cost`` says what it takes.
    """

    action: str
    value: int | tuple[int, ...] | tuple[str, ...] | None
    blocks: int
    text: str
    cost: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """``asked`` blocks are not to be had, ``granted`` are. ``limits`` in the order in which they bind, the first does.

    ``cause`` is the first one's name, or what keeps it from being met: "fragmentation" or "pinned" where a lowered
    budget waits for rows that could be emptied, or that something relies on. ``remedies`` are in the order of their
    cost, and may be none.
    """

    pool: str
    asked: int
    granted: int
    cause: str
    limits: tuple[Limit, ...]
    portions: tuple[Portion, ...]
    holders: tuple[Holder, ...]
    remedies: tuple[Remedy, ...]

    @property
    def limit(self) -> Limit:
        """The one that binds."""
        return self.limits[0]

    def lines(self) -> list[str]:
        """What was asked and what binds; what memory is used for; what binds next; who has most; what to do."""
        held = ", ".join(f"{one.name} {format_size(one.bytes)}" for one in self.portions if one.bytes)
        others = ", ".join(
            f"{one.name} {one.blocks if one.blocks < self.asked else 'enough'}" for one in self.limits[1:]
        )
        return [
            f"{self.pool}: {self.asked} blocks asked, {self.granted} can be had: {self.cause}; {self.limit.text}",
            f"committed: {held or 'nothing'}",
            f"the other limits allow: {others}" if others else "no other limit applies",
            f"held by {_most(self.holders)}" if self.holders else "held by nobody",
            _advice(self.remedies),
        ]

    def advice(self) -> str:
        """What helps and costs the least."""
        return _advice(self.remedies[:1])

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _most(holders: Sequence[Holder]) -> str:
    ordered = sorted(holders, key=lambda one: one.bytes, reverse=True)
    shown = ", ".join(f"{one.name} {format_size(one.bytes)}" for one in ordered[:MOST_SHOWN])
    left = ordered[MOST_SHOWN:]
    return shown + (f", and {len(left)} more {format_size(sum(one.bytes for one in left))}" if left else "")


def _advice(remedies: Sequence[Remedy]) -> str:
    if not remedies:
        return "nothing that was tried helps alone; ask for fewer blocks"
    first, *rest = remedies
    return f"{first.text} ({first.cost})" + (f"; or {rest[0].text} ({rest[0].cost})" if rest else "")
