"""Real memory management by the operating system: a reservation is mmap, physical memory is a sparse memory file.

A reservation is a PROT_NONE mapping; a store is one memory file whose spans are allocated at creation, so that memory
is taken then, and punched out at the last release; mapping is mmap over the reservation; access is mprotect.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

from ..sizes import format_size
from . import libc
from .backing import ADDRESS_LIMIT
from .headroom import Headroom
from .properties import Location
from .results import log
from .shared_file import SharedFile
from .spans import FreeSpans

PAGE = os.sysconf("SC_PAGE_SIZE")
_PROTECTION = {0: libc.PROT_NONE, 1: libc.PROT_READ, 3: libc.PROT_READ | libc.PROT_WRITE}
_FILL_STEP = 1 << 20
_TOO_MANY = "the process may have too many mappings; raise vm.max_map_count, or use larger chunks"


def _refused(what: str, remedy: str) -> bool:
    """Say why a call will answer CUDA_ERROR_OUT_OF_MEMORY although the device is not full."""
    log.warning("the operating system refused %s: %s", what, remedy)
    return False


class MemoryStore:
    """The physical memory of one bank: spans of one sparse memory file."""

    def __init__(self, name: str, headroom: Headroom) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        self._headroom = headroom
        self._spans = FreeSpans()

    def allocate(self, size: int) -> int | None:
        """Take memory from the system now, not at the first touch."""
        if not self._headroom.allows(size):
            _refused(f"{format_size(size)} of memory", "the machine has not that much left; lower memory=")
            return None
        offset = self._spans.take(size)
        try:
            os.posix_fallocate(self.descriptor, offset, size)
        except OSError as error:
            self._spans.give(offset, size)
            _refused(f"{format_size(size)} of memory", str(error))
            return None
        return offset

    def release(self, offset: int, size: int) -> None:
        """Give memory back to the system."""
        libc.punch_hole(self.descriptor, offset, size)
        self._spans.give(offset, size)

    def map(self, address: int, size: int, offset: int) -> bool:
        """Map a span over reserved addresses, without access."""
        return libc.map_file(address, size, self.descriptor, offset) or _refused("a mapping", _TOO_MANY)

    def fill(self, offset: int, size: int, byte: int) -> None:
        """Write every byte of a span."""
        step = bytes([byte]) * min(size, _FILL_STEP)
        for at in range(offset, offset + size, len(step)):
            os.pwrite(self.descriptor, step[: offset + size - at], at)

    def committed(self) -> int | None:
        """Bytes of memory behind the file as the operating system counts them."""
        return os.fstat(self.descriptor).st_blocks * 512


class MemoryBacking:
    """Addresses and access by mmap and mprotect."""

    name = "memory"

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self._reserved: dict[int, int] = {}
        self._headroom = Headroom()
        self._closers: list[Callable[[], None]] = []

    def file(self, location: Location, size: int) -> SharedFile | None:
        """A new memory file with its memory."""
        made = SharedFile(location, size, self.owned, real=True)
        if not self._headroom.allows(size):
            _refused(f"{format_size(size)} of memory", "the machine has not that much left; lower memory=")
            return None
        try:
            made.make()
        except OSError as error:
            remedy = "raise the limit of open files (ulimit -n), or create memory that is not exportable"
            _refused("a memory file", f"{error}; {remedy}" if error.errno == errno.EMFILE else str(error))
            return None
        return made

    def store(self, name: str) -> MemoryStore:
        """A new memory file."""
        made = MemoryStore(name, self._headroom)
        self._closers.append(lambda: os.close(made.descriptor))
        return made

    def reserve(self, size: int, alignment: int, hint: int) -> int:
        """Addresses at ``hint`` if they are free, else where the system has room."""
        length = -(-size // PAGE) * PAGE
        if length + alignment > ADDRESS_LIMIT:
            return 0
        base = hint if hint and libc.reserve_at(hint, length) else self._aligned(length, alignment)
        if base:
            self._reserved[base] = length
        return base

    @staticmethod
    def _aligned(length: int, alignment: int) -> int:
        """Reserve enough that an aligned part fits, and give the rest back."""
        found = libc.reserve(length + alignment - PAGE)
        if not found:
            return 0
        base = -(-found // alignment) * alignment
        if base > found:
            libc.unreserve(found, base - found)
        tail = found + alignment - PAGE - base
        if tail:
            libc.unreserve(base + length, tail)
        return base

    def unreserve(self, base: int, size: int) -> None:  # noqa: ARG002 - the length is kept in whole pages
        """Give addresses back to the system."""
        libc.unreserve(base, self._reserved.pop(base))

    def protect(self, base: int, size: int, permission: int) -> bool:
        """Set what this process may do with mapped addresses."""
        return libc.protect(base, size, _PROTECTION[permission]) or _refused("an access", _TOO_MANY)

    def unmap(self, base: int, size: int) -> bool:
        """Cover mapped addresses with a plain reservation."""
        return libc.make_plain(base, size) or _refused("an unmap", _TOO_MANY)

    def move(self, target: int, source: int, size: int) -> None:
        """Copy bytes; the spans may overlap."""
        ctypes.memmove(target, source, size)

    def snapshot(self, address: int, size: int) -> ctypes.Array[ctypes.c_char] | None:
        """The bytes that are there now."""
        kept = (ctypes.c_char * size)()
        ctypes.memmove(kept, address, size)
        return kept

    def fill(self, address: int, size: int, pattern: bytes) -> None:
        """Repeat ``pattern``: once by hand, then by doubling what is there."""
        if len(set(pattern)) == 1:
            ctypes.memset(address, pattern[0], size)
            return
        done = min(size, len(pattern))
        ctypes.memmove(address, pattern, done)
        while done < size:
            step = min(done, size - done)
            ctypes.memmove(address + done, address, step)
            done += step

    def close(self) -> None:
        """Give back every address and every file."""
        while self._reserved:
            libc.unreserve(*self._reserved.popitem())
        while self._closers:
            self._closers.pop()()
        while self.owned:
            os.close(self.owned.pop())
