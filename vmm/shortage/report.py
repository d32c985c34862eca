"""Shortage: why there is not so much as was asked, as data and as five lines.

What can be had is bounded by several limits at a time; the one that allows the least binds. What fills it up, and what
would help, is found on the books; a remedy is only named after it was tried on a copy of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..sizes import format_size

MOST_SHOWN = 3
"""Holders in the text."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One of the bounds: with it alone, ``allows`` could be had, in the unit of its shortage; None where nobody knows.

    ``text`` says how it stands, with its numbers. ``name`` is

    * "virtual range" (addresses, or blocks and spans that have some);
    * "budget" (of the pool or the supply itself), "lowered budget" (pending), "ceiling" (of a share), "shared budget"
      (of the supply that a pool shares, floors of others counted);
    * "device" (its memory), "pinned memory" (of the host), "swap space", "driver" (what it needs for itself);
    * "sequences" (that may run at a time), "step tokens" and "watermark": those of a scheduler.
    """

    name: str
    allows: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Portion:
    """``bytes`` of what is in use by what they are for; the portions of a shortage add up.

    Of a pool ``name`` is "live" (tokens), "tails" (room in the last blocks), "by id" (blocks that no sequence holds),
    "cached" (idle blocks of the prefix cache), "free places" (in rows that are in use), "empty rows" or "retiring".
    """

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Held:
    """Who has how many bytes: a sequence, a taker of the supply, a range, a process. None where it is not known."""

    name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that was tried on a copy of the books: ``allows`` could be had then.

    ``action`` is a word for programs and ``value`` what it needs: bytes for "raise budget", "raise ceiling" (the new
    ones), "raise shared budget" (by how much), "trim", "free here", "free elsewhere" and "larger swap space"; (name,
    bytes) for "lower floor"; rows of sequences, spans or numbers of requests for "free"; reasons of the pins for
    "unpin"; the name of a range for "close"; the number to make it with for "more blocks", "more spans", "more
    addresses" and "more sequences"; rows for "raise limit"; 0 for "lower watermark", the next step for "wait", None for
    "compact". ``cost`` says what it takes.
    """

    action: str
    value: int | str | tuple[int | str, ...] | None
    allows: int
    text: str
    cost: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """``asked`` is not to be had, ``granted`` is. ``limits`` in the order in which they bind, the first does.

    ``unit`` is what is counted: "bytes", "blocks", "rows", "tokens", "spans" or "sequences". ``cause`` is the first
    limit's name, or what keeps it from being met: "fragmentation" or "pinned" where a lowered budget waits for rows
    that could be emptied, or that something relies on; "floor" where a budget has room that others were promised.
    ``remedies`` are in the order of their cost, and may be none. ``granted`` is None where only the driver could tell.
    """

    name: str
    unit: str
    asked: int
    granted: int | None
    cause: str
    limits: tuple[Limit, ...]
    portions: tuple[Portion, ...] = ()
    holders: tuple[Held, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    @property
    def limit(self) -> Limit:
        """The one that binds."""
        return self.limits[0]

    def lines(self) -> list[str]:
        """What was asked and what binds; what memory is used for; what binds next; who has most; what to do."""
        held = ", ".join(f"{one.name} {format_size(one.bytes)}" for one in self.portions if one.bytes)
        others = ", ".join(f"{one.name} {self._allowed(one)}" for one in self.limits[1:])
        return [
            f"{self.name}: {self._headline()}: {self.cause}; {self.limit.text}",
            f"in use: {held or 'nothing'}",
            f"the other limits allow: {others}" if others else "no other limit applies",
            f"held by {_most(self.holders)}" if self.holders else "held by nobody",
            _advice(self.remedies),
        ]

    def advice(self) -> str:
        """What helps and costs the least."""
        return _advice(self.remedies[:1])

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _headline(self) -> str:
        granted = "nobody knows how much" if self.granted is None else self._count(self.granted)
        unit = "" if self.unit == "bytes" else f" {self.unit.removesuffix('s') if self.asked == 1 else self.unit}"
        return f"{self._count(self.asked)}{unit} asked, {granted} can be had"

    def _allowed(self, limit: Limit) -> str:
        if limit.allows is None:
            return "unknown"
        return self._count(limit.allows) if limit.allows < self.asked else "enough"

    def _count(self, number: int) -> str:
        return format_size(number) if self.unit == "bytes" else str(number)


def sorted_limits(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """In the order in which they bind; those that nobody knows are last."""
    return tuple(sorted(limits, key=lambda one: (one.allows is None, one.allows or 0)))


def _most(holders: Sequence[Held]) -> str:
    ordered = sorted(holders, key=lambda one: one.bytes or 0, reverse=True)
    shown = ", ".join(f"{one.name} {_size(one.bytes)}" for one in ordered[:MOST_SHOWN])
    left = ordered[MOST_SHOWN:]
    return shown + (f", and {len(left)} more {format_size(sum(one.bytes or 0 for one in left))}" if left else "")


def _size(count: int | None) -> str:
    return "(not known)" if count is None else format_size(count)


def _advice(remedies: Sequence[Remedy]) -> str:
    if not remedies:
        return "nothing that was tried helps alone; ask for less"
    first, *rest = remedies
    return f"{first.text} ({first.cost})" + (f"; or {rest[0].text} ({rest[0].cost})" if rest else "")
