"""SharedFile: the memory file of one exportable allocation; an export never shows another allocation's bytes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

from . import libc
from .properties import DEVICE, HOST_NUMA, Location

Key = tuple[int, int]
"""(device, inode) of a file: the same memory, whatever the descriptor."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_DESCRIPTORS = Path("/proc/self/fd")
_KINDS = {"device": DEVICE, "host": HOST_NUMA}
_NAME = re.compile(r"/memfd:vmm-export-(device|host)-(\d+)\b")


class SharedFile:
    """A store of its own with one span. ``holders`` are the allocations of this driver that it is the memory of.

    ``descriptor`` is the driver's own, and one of ``owned`` until it is closed; a file without ``real`` bytes gets one
    at the first export only. The size of the file is that of the allocation, and is sealed.
    """

    __slots__ = ("_owned", "descriptor", "exported", "holders", "key", "location", "real", "size", "writable")

    def __init__(self, location: Location, size: int, owned: set[int], *, real: bool) -> None:
        self.location, self.size, self.real = location, size, real
        self.holders, self.exported, self.writable = 0, False, True
        self.descriptor: int | None = None
        self.key: Key | None = None
        self._owned = owned

    def make(self) -> None:
        """Create the file, with its memory where it has any. OSError where the system refuses."""
        kind = "device" if self.location[0] == DEVICE else "host"
        name = f"vmm-export-{kind}-{self.location[1]}"
        self._take(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        try:
            if self.real:
                os.posix_fallocate(self.descriptor or 0, 0, self.size)
            else:
                os.ftruncate(self.descriptor or 0, self.size)
            fcntl.fcntl(self.descriptor or 0, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:
            self.close()
            raise

    def adopt(self, descriptor: int) -> None:
        """Keep a duplicate of a descriptor that came from elsewhere, unless it allows no more than what is held."""
        writable = is_writable(descriptor)
        if self.descriptor is None or (writable and not self.writable):
            duplicate = os.dup(descriptor)
            self.close()
            self._take(duplicate)
            self.writable = writable
        self.exported = True

    def _take(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._owned.add(descriptor)
        self.key = key_of(descriptor)

    def export(self, *, writable: bool) -> int:
        """A new descriptor, which the caller closes."""
        if self.descriptor is None:
            self.make()
        found = os.dup(self.descriptor or 0) if writable else os.open(_DESCRIPTORS / str(self.descriptor), os.O_RDONLY)
        self.exported = True
        return found

    def close(self) -> None:
        """Close the driver's own descriptor; others may keep the memory."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            self._owned.discard(descriptor)
            os.close(descriptor)

    # -- what a store does --------------------------------------------------------------------------------------

    def map(self, address: int, size: int, offset: int) -> bool:
        """Put the file behind reserved addresses, without access; False where the system refuses."""
        return not self.real or libc.map_file(address, size, self.descriptor or 0, offset)

    def fill(self, byte: int) -> None:
        """Set every byte."""
        if self.real:
            os.pwrite(self.descriptor or 0, bytes([byte]) * self.size, 0)

    def committed(self) -> int:
        """Bytes that the operating system counts."""
        return os.fstat(self.descriptor).st_blocks * 512 if self.real and self.descriptor is not None else 0


def key_of(descriptor: int) -> Key:
    """Which file a descriptor is of."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def is_writable(descriptor: int) -> bool:
    """Whether memory behind a descriptor can be mapped for writing."""
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def open_files() -> set[Key]:
    """Every file that this process has a descriptor of."""
    found = set()
    for entry in _DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):  # closed since it was listed
            status = entry.stat()
            found.add((status.st_dev, status.st_ino))
    return found


def read_descriptor(descriptor: int) -> tuple[Location, int] | None:
    """(location, size) of the memory that a descriptor is an export of; None for any other descriptor.

    The location is the exporting device's; the size is the file's. It must be sealed: a file that could shrink under
    its mappings would end the process.
    """
    try:
        found = _NAME.match(str((_DESCRIPTORS / str(descriptor)).readlink()))
        if not found or fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            return None
        return (_KINDS[found[1]], int(found[2])), os.fstat(descriptor).st_size
    except OSError:
        return None
