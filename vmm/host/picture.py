"""Picture: the whole state of a host driver at one moment, to compare before and after an operation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .address_space import Mapping, PlainMemory, Reservation
from .explain import ExplainCalls
from .state import Live

_Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Picture:
    """Everything that a driver keeps, in plain values. Two pictures are equal if nothing has changed in between.

    ``reservations`` are (base, size); ``mappings`` (base, size, handle, ((location type, id), access) for each location
    that was given any); ``allocations`` (handle, size, references, mappings); ``plain`` (base, size), pinned memory
    too; ``free`` bytes a device; ``contexts`` the users of each; ``streams`` and ``events`` are handles.
    """

    live: Live
    free: _Numbers
    reservations: tuple[_Numbers, ...]
    mappings: tuple[tuple[Any, ...], ...]
    allocations: tuple[_Numbers, ...]
    plain: tuple[_Numbers, ...]
    contexts: _Numbers
    streams: _Numbers
    events: _Numbers

    def differences(self, other: Picture) -> list[str]:
        """What ``other`` has and this has not, and the reverse, in words; empty if they are equal."""
        return [
            text
            for field in fields(self)
            for text in _compare(field.name, getattr(self, field.name), getattr(other, field.name))
        ]


def _compare(name: str, before: Any, after: Any) -> list[str]:
    if before == after:
        return []
    if name in ("live", "free", "contexts"):
        return [f"{name} was {before}, is {after}"]
    gone, fresh = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    return [
        *(f"{name}: {_shown(item)} is gone" for item in gone),
        *(f"{name}: {_shown(item)} is new" for item in fresh),
    ]


def _shown(item: Any) -> str:
    if isinstance(item, tuple):
        return f"({', '.join(map(_shown, item))})"
    return hex(item) if isinstance(item, int) and item >= 1 << 16 else str(item)


class PictureCalls(ExplainCalls):
    """The host driver's way to look at itself."""

    def picture(self) -> Picture:
        """The whole state now."""
        live = self.live()
        with self._lock:
            regions = self._space.regions()
            for bank in self._devices:
                bank.reap()
            mappings = {mapping.base: mapping for mapping in self._space.granules.values()}
            return Picture(
                live=live,
                free=tuple(bank.free for bank in self._devices),
                reservations=tuple((r.base, r.size) for r in regions if isinstance(r, Reservation)),
                mappings=tuple(_mapping(mappings[base]) for base in sorted(mappings)),
                allocations=tuple((a.handle, a.size, a.refs, a.maps) for a in self._allocations.values()),
                plain=tuple((r.base, r.size) for r in regions if isinstance(r, PlainMemory)),
                contexts=tuple(context.count for context in self._contexts),
                streams=tuple(self._streams),
                events=tuple(self._events),
            )


def _mapping(mapping: Mapping) -> tuple[Any, ...]:
    granted = tuple(sorted(item for item in mapping.access.items() if item[1]))
    return mapping.base, mapping.size, mapping.allocation.handle, granted
