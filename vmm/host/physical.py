"""Physical memory: banks that hold it, and allocations that own a part of one."""

from __future__ import annotations

from .backing import Store
from .properties import Location, Property


class Bank:
    """The physical memory of one device, or of the host; ``total`` is None where only the machine limits it."""

    __slots__ = ("location", "store", "total", "used")

    def __init__(self, location: Location, total: int | None, store: Store) -> None:
        self.location, self.total, self.store = location, total, store
        self.used = 0

    @property
    def free(self) -> int:
        """Bytes that can still be allocated, where there is a total."""
        return 0 if self.total is None else self.total - self.used

    def take(self, size: int) -> int | None:
        """Allocate ``size`` bytes and return their offset in the store; None where there are not that many."""
        if self.total is not None and self.used + size > self.total:
            return None
        offset = self.store.allocate(size)
        if offset is not None:
            self.used += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Give back what ``take`` gave."""
        self.store.release(offset, size)
        self.used -= size


class Allocation:
    """What a handle names. It lives while somebody holds a reference or it is mapped anywhere."""

    __slots__ = ("bank", "handle", "maps", "offset", "prop", "refs", "size")

    def __init__(self, handle: int, size: int, prop: Property, bank: Bank, offset: int) -> None:
        self.handle, self.size, self.prop, self.bank, self.offset = handle, size, prop, bank, offset
        self.refs, self.maps = 1, 0
