"""Physical memory: granularity, create, release, retain, properties."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from . import properties
from .arguments import number
from .device_calls import ContextCalls
from .physical import Allocation, Bank
from .results import (
    EXHAUSTED_1,
    INVALID,
    INVALID_1,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    OK,
    SUCCESS,
    Result,
    log,
)
from .shared_file import SharedFile

_NO_MASK = ~(properties.POSIX_FILE_DESCRIPTOR | properties.FABRIC)


class AllocationCalls(ContextCalls):
    """Handles and the memory behind them. Memory is taken at create and given back at the last release or unmap."""

    def cuMemGetAllocationGranularity(self, prop: Any, option: Any) -> Result:
        """Minimum (0) and recommended (1) are equal here, for every location."""
        if prop is None or int(option) not in (0, 1):
            return INVALID_1
        return SUCCESS, self.granularity

    def cuMemCreate(self, size: int, prop: Any, flags: int) -> Result:
        """Allocate ``size`` bytes where the property says and return a handle with one reference."""
        if prop is None or size <= 0 or size % self.granularity or flags:
            number(size), number(flags)
            return INVALID_1
        raw = properties.property_bytes(prop)
        found, bank = self._places.get(raw) or self._judge(raw)
        if bank.__class__ is not Bank:
            return bank, None
        if found.handle_types:
            return self._create_exportable(size, found, bank)
        with self._lock:
            offset = bank.take(size)
            if offset is None:
                number(size)
                return EXHAUSTED_1
            handle = next(self._handles)
            self._allocations[handle] = Allocation(handle, size, found, bank, offset, bank.store)
        if self.poison is not None:
            bank.store.fill(offset, size, self.poison)
        return SUCCESS, cuda.CUmemGenericAllocationHandle(handle)

    def _create_exportable(self, size: int, prop: properties.Property, bank: Bank) -> Result:
        """Allocate memory with a file of its own, which costs a file descriptor where there are bytes."""
        with self._lock:
            file = self._backing.file(bank.location, size) if bank.has_room(size) else None
            if file is None:
                return EXHAUSTED_1
            bank.adopt(file)
            file.holders = 1
            handle = next(self._handles)
            self._allocations[handle] = Allocation(handle, size, prop, bank, 0, file)
        if self.poison is not None:
            file.fill(self.poison)
        return SUCCESS, cuda.CUmemGenericAllocationHandle(handle)

    def _judge(self, raw: bytes) -> tuple[properties.Property, Any]:
        """A property, and the memory that it asks for or the status that refuses it; remembered by its bytes."""
        prop = properties.read_property(raw)
        self._places[raw] = found = (prop, self._bank_of(prop))
        return found

    def _bank_of(self, prop: properties.Property) -> Bank | Any:
        kind, ordinal = prop.location
        if prop.kind == properties.MANAGED:
            return NOT_SUPPORTED
        if prop.kind != properties.PINNED or prop.handle_types & _NO_MASK:
            return INVALID[0]
        if kind == properties.DEVICE:
            if not 0 <= ordinal < len(self._devices):
                return INVALID[0]
            if prop.handle_types & properties.FABRIC:
                return NOT_PERMITTED
            return self._devices[ordinal]
        if kind == properties.HOST and not prop.handle_types:
            return self._host
        if kind == properties.HOST_NUMA and ordinal == 0:
            return NOT_PERMITTED if prop.handle_types & properties.FABRIC else self._host
        return INVALID[0]

    def cuMemRelease(self, handle: Any) -> Result:
        """Drop one reference; the memory goes when no reference and no mapping is left."""
        if handle.__class__ is not int:
            handle = number(handle)
        with self._lock:
            allocation = self._allocations.get(handle)
            if allocation is None or not allocation.refs:
                return self._stale("cuMemRelease", handle)
            allocation.refs -= 1
            if not allocation.refs and not allocation.maps:
                self._drop(allocation)
        return OK

    def _drop(self, allocation: Allocation) -> None:
        """Give back the memory of an allocation that nobody holds any more."""
        del self._allocations[allocation.handle]
        if allocation.store.__class__ is SharedFile:
            self._read_only -= not allocation.writable
            allocation.bank.let_go(allocation.store)
        else:
            allocation.bank.give(allocation.offset, allocation.size)

    def _stale(self, call: str, handle: int) -> Result:
        """Refuse a handle that names nothing, and say so: a real driver may crash."""
        number(handle)
        if handle:
            log.error("%s: handle %#x names no allocation; it was released already, or never created", call, handle)
        return INVALID

    def cuMemRetainAllocationHandle(self, addr: Any) -> Result:
        """The handle that is mapped at ``addr``, with one more reference."""
        with self._lock:
            mapping = self._space.mapping_at(number(addr))
            if mapping is None:
                return INVALID_1
            mapping.allocation.refs += 1
            return SUCCESS, cuda.CUmemGenericAllocationHandle(mapping.allocation.handle)

    def cuMemGetAllocationPropertiesFromHandle(self, handle: Any) -> Result:
        """What was granted to the allocation."""
        allocation = self._allocations.get(number(handle))
        if allocation is None or not allocation.refs:
            return INVALID_1
        return SUCCESS, allocation.prop.struct()
