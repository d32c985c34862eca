"""Export and import of physical memory as file descriptors, and the refusal of the older way."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from .address_space import PlainMemory
from .arguments import number
from .physical import Allocation, Bank
from .pointer_calls import PointerCalls
from .properties import DEVICE, FABRIC, PINNED, POSIX_FILE_DESCRIPTOR, Location, Property
from .results import (
    EXHAUSTED_1,
    INVALID,
    INVALID_1,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    SUCCESS,
    Result,
    log,
)
from .shared_file import SharedFile, is_writable, key_of, read_descriptor

_EXPORT_INSTEAD = (
    "%s: %#x is memory of the virtual memory calls, which has no legacy handle; create it with a POSIX file descriptor "
    "as its handle type and share it with cuMemExportToShareableHandle"
)


class SharingCalls(PointerCalls):
    """Memory lives as long as anybody holds it: a handle, a mapping, a descriptor, here or in another process.

    Memory counts as this driver's while this process holds it in one of these ways.
    """

    def cuMemExportToShareableHandle(self, handle: Any, handleType: Any, flags: int) -> Result:
        """A new file descriptor of an allocation that was created for that; the caller closes it."""
        value = number(handle)
        with self._lock:
            allocation = self._allocations.get(value)
            if allocation is None or not allocation.refs:
                return self._stale("cuMemExportToShareableHandle", value)[0], None
            file = allocation.store
            if number(flags) or int(handleType) != POSIX_FILE_DESCRIPTOR or not isinstance(file, SharedFile):
                return INVALID_1
            try:
                descriptor = file.export(writable=allocation.writable)
            except OSError as error:
                return self._no_descriptor(error)
        return SUCCESS, descriptor

    def cuMemImportFromShareableHandle(self, osHandle: Any, shHandleType: Any) -> Result:
        """A handle with one reference for the memory behind a descriptor, which stays the caller's."""
        kind = int(shHandleType)
        if kind == FABRIC:
            return NOT_PERMITTED, None
        if osHandle is not None and (not isinstance(osHandle, int) or osHandle < 0):
            raise TypeError(f"expected a file descriptor as an int or None, not {osHandle!r}")
        if kind != POSIX_FILE_DESCRIPTOR or not osHandle or (found := read_descriptor(osHandle)) is None:
            return INVALID_1
        location, size = found
        if not size or size % self.granularity or (location[0] == DEVICE and location[1] >= len(self._devices)):
            return NOT_SUPPORTED, None
        bank = self._devices[location[1]] if location[0] == DEVICE else self._host
        with self._lock:
            try:
                file = self._file_of(osHandle, bank, location, size)
            except OSError as error:
                return self._no_descriptor(error)
            bank.adopt(file)
            file.holders += 1
            handle = next(self._handles)
            prop = Property(PINNED, location, POSIX_FILE_DESCRIPTOR)
            self._allocations[handle] = made = Allocation(handle, size, prop, bank, 0, file)
            made.writable = is_writable(osHandle)
            self._read_only += not made.writable
        return SUCCESS, cuda.CUmemGenericAllocationHandle(handle)

    def _file_of(self, descriptor: int, bank: Bank, location: Location, size: int) -> SharedFile:
        """The file that a descriptor is of, known already or new, with a descriptor of the driver's own."""
        key = key_of(descriptor)
        known = next((file for file in bank.files if file.key == key), None)
        file = known or SharedFile(location, size, self._backing.owned, real=self.backing == "memory")
        file.adopt(descriptor)
        return file

    @staticmethod
    def _no_descriptor(error: OSError) -> Result:
        log.warning("the operating system refused a file descriptor: %s; raise the limit of open files", error)
        return EXHAUSTED_1

    # -- the older way ------------------------------------------------------------------------------------------

    def cuIpcGetMemHandle(self, dptr: Any) -> Result:
        """Refused: virtual memory has no such handle on any driver, and plain memory has none here."""
        address = number(dptr)
        region = self._space.find(address)
        if isinstance(region, PlainMemory):
            return NOT_SUPPORTED, None
        if region is not None:
            log.error(_EXPORT_INSTEAD, "cuIpcGetMemHandle", address)
        return INVALID_1

    def cuIpcOpenMemHandle(self, handle: Any, Flags: int) -> Result:  # noqa: ARG002
        """Refused, as none was given."""
        return NOT_SUPPORTED, None

    def cuIpcCloseMemHandle(self, dptr: Any) -> Result:
        """Refused: nothing was opened."""
        number(dptr)
        return INVALID
