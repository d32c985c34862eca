"""Virtual memory: reserve, free, map, unmap, access. Each call looks at everything first and changes only then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cuda

from . import properties
from .address_space import NO_ACCESS, AccessTable, Mapping, Reservation
from .allocation_calls import AllocationCalls
from .arguments import number
from .physical import Bank
from .results import (
    EXHAUSTED,
    EXHAUSTED_1,
    INVALID,
    INVALID_1,
    INVALID_DEVICE,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    OK,
    PEER_ACCESS_UNSUPPORTED,
    SUCCESS,
    Result,
)
from .state import HOST_PAGE


class MappingCalls(AllocationCalls):
    """The calls on addresses."""

    def cuMemAddressReserve(self, size: int, alignment: int, addr: Any, flags: int) -> Result:
        """Reserve addresses; ``addr`` is a hint, and a taken one is passed over."""
        size, alignment, hint = number(size), number(alignment), number(addr)
        unit = max(alignment, self.granularity)
        if not size or size % HOST_PAGE or alignment & (alignment - 1) or hint % unit or number(flags):
            return INVALID_1
        with self._lock:
            if hint and self._space.overlaps(hint, hint + size):
                hint = 0
            base = self._backing.reserve(size, unit, hint)
            if not base:
                return EXHAUSTED_1
            self._space.add(Reservation(base, size))
        return SUCCESS, cuda.CUdeviceptr(base)

    def cuMemAddressFree(self, ptr: Any, size: int) -> Result:
        """Give back one whole reservation in which nothing is mapped."""
        base, size = number(ptr), number(size)
        with self._lock:
            region = self._space.exact(base)
            if not isinstance(region, Reservation) or region.size != size:
                return INVALID
            if region.mapped:
                return self._free_with_mappings(region) if self._free_mapped else INVALID
            self._backing.unreserve(base, size)
            self._space.remove(region)
            self._note(("cuMemAddressFree", base, size))
        return OK

    def _free_with_mappings(self, region: Reservation) -> Result:
        """Unmap everything in a reservation and free it. The lock is held."""
        for mapping in self._space.mappings_in(region):
            self._space.leave(mapping)
            mapping.allocation.maps -= 1
            if not mapping.allocation.maps and not mapping.allocation.refs:
                self._drop(mapping.allocation)
        self._backing.unreserve(region.base, region.size)
        self._space.remove(region)
        self._note(("cuMemAddressFree", region.base, region.size))
        return OK

    def cuMemMap(self, ptr: Any, size: int, offset: int, handle: Any, flags: int) -> Result:
        """Map a whole allocation over clear addresses of one reservation, without access."""
        if ptr.__class__ is not int:
            ptr = number(ptr)
        if handle.__class__ is not int:
            handle = number(handle)
        with self._lock:
            allocation = self._allocations.get(handle)
            if allocation is None or not allocation.refs:
                return self._stale("cuMemMap", handle)
            if allocation.size != size or offset or flags or ptr % self.granularity:
                return self._refuse(ptr, size, offset, flags)
            mapping = self._space.enter(ptr, ptr + size, allocation)
            if mapping is None:
                return self._refuse(ptr)
            if not allocation.store.map(ptr, size, allocation.offset):
                self._space.leave(mapping)
                return EXHAUSTED
            allocation.maps += 1
        return OK

    @staticmethod
    def _refuse(*numbers: int) -> Result:
        """INVALID_VALUE, or the bindings' OverflowError for what they would not have passed on."""
        for value in numbers:
            number(value)
        return INVALID

    def cuMemUnmap(self, ptr: Any, size: int) -> Result:
        """Unmap adjacent whole mappings of one reservation; nothing waits."""
        if ptr.__class__ is not int:
            ptr = number(ptr)
        with self._lock:
            found = self._space.whole_mappings(ptr, ptr + size)
            if found is None:
                return self._refuse(ptr, size)
            if not self._backing.unmap(ptr, size):
                return EXHAUSTED
            for mapping in found:
                self._space.leave(mapping)
                allocation = mapping.allocation
                allocation.maps -= 1
                if not allocation.maps and not allocation.refs:
                    self._drop(allocation)
            self._note(("cuMemUnmap", ptr, size))
        return OK

    def cuMemSetAccess(self, ptr: Any, size: int, desc: Any, count: int) -> Result:
        """Set what the listed locations may do with adjacent whole mappings; the others keep theirs."""
        if ptr.__class__ is not int:
            ptr = number(ptr)
        table = self._table(desc, count)
        if not isinstance(table, AccessTable):
            return (table,)
        with self._lock:
            found = self._space.whole_mappings(ptr, ptr + size)
            if found is None:
                return self._refuse(ptr, size)
            tables = []
            for mapping in found:
                bank, old = mapping.allocation.bank, mapping.access
                if bank not in table.reaches:
                    status = self._judge_reach(table, bank)
                    if status is not None:
                        return (status,)
                tables.append(table if old is table or old is NO_ACCESS else table.over(old))
            if self._read_only and table.permission > properties.READ and not all(m.allocation.writable for m in found):
                return (NOT_PERMITTED,)
            if self._has_pages and not self._protect(found, tables):
                return EXHAUSTED
            for mapping, merged in zip(found, tables):  # noqa: B905 - strict costs a third of the call
                mapping.access = merged
            self._note(("cuMemSetAccess", ptr, size))
        return OK

    def _protect(self, mappings: list[Mapping], tables: list[AccessTable]) -> bool:
        """Let the system allow what the tables say, a run of equal permission at a time, or change nothing."""
        start, stop = 0, len(mappings)
        while start < stop:
            wanted = tables[start].permission
            end = start + 1
            while end < stop and tables[end].permission == wanted:
                end += 1
            base = mappings[start].base
            if not self._backing.protect(base, mappings[end - 1].end - base, wanted):
                for mapping in mappings[:end]:
                    self._backing.protect(mapping.base, mapping.size, mapping.access.permission)
                return False
            start = end
        return True

    def _table(self, desc: Any, count: int) -> AccessTable | Any:
        """The access table of a list of descriptors, or the status that refuses it. Equal lists share one table."""
        if desc is None or not count:
            return INVALID[0]
        if desc.__class__ is not list and desc.__class__ is not tuple:
            raise TypeError("desc must be a list or tuple of CUmemAccessDesc")
        if count > len(desc) or count < 0:
            raise RuntimeError(f"List is too small: {len(desc)} < {number(count)}")
        key = properties.grant_bytes(desc[0])
        if count > 1:
            key = b"".join([properties.grant_bytes(struct) for struct in desc[:count]])
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._judge_grants(properties.read_grants(key))
        return table

    def _judge_grants(self, grants: Sequence[properties.Grant]) -> AccessTable | Any:
        for grant in grants:
            kind, ordinal = grant.location
            if grant.access not in properties.FLAGS:
                return INVALID[0]
            if kind == properties.DEVICE:
                if not 0 <= ordinal < len(self._devices):
                    return INVALID_DEVICE
            elif kind not in (properties.HOST, properties.HOST_NUMA) or ordinal:
                return INVALID[0]
            else:
                self._uneven = True
        return AccessTable({grant.location: grant.access for grant in grants})

    def _judge_reach(self, table: AccessTable, bank: Bank) -> Any:
        """The status for a location that cannot reach a bank's memory; None, and remembered, if all of them can."""
        if bank is not self._host:
            for location in table:
                if location[0] == properties.HOST:
                    return NOT_SUPPORTED
                if location[0] == properties.HOST_NUMA:
                    return INVALID[0]
                if location != bank.location and (location[1], bank.location[1]) not in self._peers:
                    return PEER_ACCESS_UNSUPPORTED
        table.reaches.add(bank)
        return None

    def cuMemGetAccess(self, location: Any, ptr: Any) -> Result:
        """What a location may do at an address; 0 where it was never told."""
        mapping = self._space.mapping_at(number(ptr))
        if location is None or mapping is None:
            return INVALID_1
        kind, ordinal = place = properties.location_of(location)
        if kind == properties.DEVICE and not 0 <= ordinal < len(self._devices):
            return INVALID_1
        if kind not in (properties.DEVICE, properties.HOST, properties.HOST_NUMA):
            return INVALID_1
        return SUCCESS, mapping.access.get(place, 0)
