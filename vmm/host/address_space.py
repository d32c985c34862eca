"""The one address space of a process: reservations, their mappings, plain allocations and pinned host memory."""

from __future__ import annotations

import bisect
from collections.abc import Mapping as MappingOf

from .physical import Allocation, Bank
from .properties import Location


class AccessTable(dict[Location, int]):
    """What each location may do with one mapping; never changed in place, so that mappings can share one.

    ``permission`` is what any of them may do, and so what the operating system has to allow. ``reaches`` are the banks
    that all its locations are known to reach.
    """

    __slots__ = ("permission", "reaches")

    def __init__(self, grants: MappingOf[Location, int]) -> None:
        super().__init__(grants)
        self.permission = max(self.values(), default=0)
        self.reaches: set[Bank] = set()

    def over(self, old: AccessTable) -> AccessTable:
        """What ``old`` said, with what this one says instead."""
        return AccessTable({**old, **self})


NO_ACCESS = AccessTable({})


class Region:
    """A span of addresses that one call made and one call frees."""

    __slots__ = ("base", "end", "size")

    def __init__(self, base: int, size: int) -> None:
        self.base, self.size, self.end = base, size, base + size


_NOWHERE = Region(0, 0)


class Reservation(Region):
    """Addresses from cuMemAddressReserve; ``mapped`` counts the mappings that lie in it."""

    __slots__ = ("mapped",)

    def __init__(self, base: int, size: int) -> None:
        super().__init__(base, size)
        self.mapped = 0


class PlainMemory(Region):
    """Memory that came with its address: cuMemAlloc (in a device's bank) or cuMemHostAlloc (in the host's)."""

    __slots__ = ("bank", "context", "id", "offset", "taken")

    def __init__(self, base: int, size: int, taken: int, bank: Bank, offset: int, identity: int, context: int) -> None:
        super().__init__(base, size)
        self.taken, self.bank, self.offset, self.id, self.context = taken, bank, offset, identity, context


class Mapping:
    """A whole allocation mapped into a reservation, with the access of each location."""

    __slots__ = ("access", "allocation", "base", "end", "reservation")

    def __init__(self, base: int, end: int, allocation: Allocation, reservation: Reservation) -> None:
        self.base, self.end, self.allocation, self.reservation = base, end, allocation, reservation
        self.access = NO_ACCESS

    @property
    def size(self) -> int:
        """Bytes that are mapped."""
        return self.allocation.size


class AddressSpace:
    """Looks up what an address belongs to.

    Regions never overlap and are found by bisection. Mappings are found in one step: each granule that is mapped has
    an entry, and a granule belongs to at most one mapping because reservations begin on a granule.
    """

    def __init__(self, granularity: int) -> None:
        self.granularity = granularity
        self.granules: dict[int, Mapping] = {}
        self.mappings = 0
        self._bases: list[int] = []
        self._regions: dict[int, Region] = {}
        self._last = _NOWHERE

    def regions(self) -> list[Region]:
        """All regions in the order of their addresses."""
        return [self._regions[base] for base in self._bases]

    def find(self, address: int) -> Region | None:
        """The region that contains ``address``. The one found last is looked at first."""
        region = self._last
        if region.base <= address < region.end:
            return region
        at = bisect.bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        region = self._regions[self._bases[at]]
        if address >= region.end:
            return None
        self._last = region
        return region

    def overlaps(self, start: int, end: int) -> Region | None:
        """The last region that shares an address with [start, end), if one does."""
        at = bisect.bisect_left(self._bases, end) - 1
        if at < 0:
            return None
        region = self._regions[self._bases[at]]
        return region if start < region.end else None

    def add(self, region: Region) -> None:
        """Enter a region that overlaps no other."""
        bisect.insort(self._bases, region.base)
        self._regions[region.base] = region

    def remove(self, region: Region) -> None:
        """Take a region out again."""
        self._last = _NOWHERE
        del self._bases[bisect.bisect_left(self._bases, region.base)]
        del self._regions[region.base]

    def exact(self, base: int) -> Region | None:
        """The region that begins at ``base``."""
        return self._regions.get(base)

    # -- mappings -----------------------------------------------------------------------------------------------

    def mapping_at(self, address: int) -> Mapping | None:
        """The mapping that contains ``address``."""
        return self.granules.get(address // self.granularity)

    def enter(self, base: int, end: int, allocation: Allocation) -> Mapping | None:
        """Map an allocation at [base, end), whole granules; None where that is not clear and inside one reservation."""
        reservation = self.find(base)
        granules, unit = self.granules, self.granularity
        first, stop = base // unit, end // unit
        if (
            reservation.__class__ is not Reservation
            or end > reservation.end
            or first in granules
            or (stop - first > 1 and any(granule in granules for granule in range(first + 1, stop)))
        ):
            return None
        mapping = Mapping(base, end, allocation, reservation)
        granules[first] = mapping
        for granule in range(first + 1, stop):
            granules[granule] = mapping
        reservation.mapped += 1
        self.mappings += 1
        return mapping

    def leave(self, mapping: Mapping) -> None:
        """Take a mapping out again."""
        unit = self.granularity
        first, stop = mapping.base // unit, mapping.end // unit
        del self.granules[first]
        for granule in range(first + 1, stop) if stop - first > 1 else ():
            del self.granules[granule]
        mapping.reservation.mapped -= 1
        self.mappings -= 1

    def mappings_in(self, reservation: Reservation) -> list[Mapping]:
        """The mappings of a reservation, in any order."""
        if not reservation.mapped:
            return []
        return [*{m.base: m for m in self.granules.values() if m.reservation is reservation}.values()]

    def whole_mappings(self, base: int, end: int) -> list[Mapping] | None:
        """The adjacent mappings of one reservation that [base, end) is made of, or None if it is not."""
        first = self.granules.get(base // self.granularity)
        if first is None or first.base != base:
            return None
        found = [first]
        at = first.end
        while at < end:
            mapping = self.granules.get(at // self.granularity)
            if mapping is None or mapping.base != at or mapping.reservation is not first.reservation:
                return None
            found.append(mapping)
            at = mapping.end
        return found if at == end else None
