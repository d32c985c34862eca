"""Physical memory: banks that hold it, and allocations that own a part of one."""

from __future__ import annotations

from .backing import Store
from .properties import Location, Property
from .shared_file import SharedFile, open_files


class Bank:
    """The physical memory of one device, or of the host; ``total`` is None where only the machine limits it."""

    __slots__ = ("files", "location", "store", "total", "used")

    def __init__(self, location: Location, total: int | None, store: Store) -> None:
        self.location, self.total, self.store = location, total, store
        self.used = 0
        self.files: set[SharedFile] = set()

    @property
    def free(self) -> int:
        """Bytes that can still be allocated, where there is a total; memory that was imported may go beyond it.

        As of the last ``reap``.
        """
        return 0 if self.total is None else max(0, self.total - self.used)

    def take(self, size: int) -> int | None:
        """Allocate ``size`` bytes and return their offset in the store; None where there are not that many."""
        if self.total is not None and self.used + size > self.total and not self._reaped(size):
            return None
        offset = self.store.allocate(size)
        if offset is not None:
            self.used += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Give back what ``take`` gave."""
        self.store.release(offset, size)
        self.used -= size

    # -- memory with a file of its own ---------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether ``size`` bytes more can be allocated."""
        return self.total is None or self.used + size <= self.total or self._reaped(size)

    def adopt(self, file: SharedFile) -> None:
        """Count a file's memory, once."""
        if file not in self.files:
            self.files.add(file)
            self.used += file.size

    def let_go(self, file: SharedFile) -> None:
        """One allocation less holds a file. Its memory counts until this process has no descriptor of it either.

        Who asks for ``free`` reaps first: to look for descriptors at every release would cost their number each time.
        """
        file.holders -= 1
        if not file.holders:
            file.close()
            if not file.exported:
                self._forget(file)

    def reap(self) -> None:
        """Count no more what nobody in this process holds."""
        unheld = [file for file in self.files if not file.holders]
        elsewhere = open_files() if unheld else set()
        for file in unheld:
            if file.key not in elsewhere:
                self._forget(file)

    def _forget(self, file: SharedFile) -> None:
        self.files.remove(file)
        self.used -= file.size

    def _reaped(self, size: int) -> bool:
        self.reap()
        return self.total is None or self.used + size <= self.total


class Allocation:
    """What a handle names. It lives while somebody holds a reference or it is mapped anywhere.

    ``store`` and ``offset`` say where its bytes are; ``writable`` is False where it came from a read-only descriptor.
    """

    __slots__ = ("bank", "handle", "maps", "offset", "prop", "refs", "size", "store", "writable")

    def __init__(
        self, handle: int, size: int, prop: Property, bank: Bank, offset: int, store: Store | SharedFile
    ) -> None:
        self.handle, self.size, self.prop, self.bank, self.offset = handle, size, prop, bank, offset
        self.store = store
        self.refs, self.maps, self.writable = 1, 0, True
