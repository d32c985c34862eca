"""Where bytes live. Two protocols that the rules stand on, and the backing that has no bytes at all.

``backing="memory"`` is in memory_backing.py. With ``backing="none"`` every rule holds and nothing is stored, so that a
GPU of any size can be replayed anywhere.
"""

from __future__ import annotations

import ctypes
import os
from typing import Protocol

from .properties import Location
from .shared_file import SharedFile

ADDRESS_LIMIT = 1 << 47
"""How many bytes of addresses a process can have reserved at once."""


class Store(Protocol):
    """Physical memory of one bank."""

    def allocate(self, size: int) -> int | None:
        """Take ``size`` bytes and return their offset, or None where there is no room."""

    def release(self, offset: int, size: int) -> None:
        """Give bytes back."""

    def map(self, address: int, size: int, offset: int) -> bool:
        """Put bytes behind reserved addresses, without access; False where the system refuses."""

    def fill(self, offset: int, size: int, byte: int) -> None:
        """Set every byte."""

    def committed(self) -> int | None:
        """Bytes that the operating system counts, or None where it has none."""


class Backing(Protocol):
    """Addresses, and what may be done with them."""

    name: str
    owned: set[int]

    def file(self, location: Location, size: int) -> SharedFile | None:
        """Memory with a file of its own; None where the system refuses."""

    def store(self, name: str) -> Store:
        """A new, empty store."""

    def reserve(self, size: int, alignment: int, hint: int) -> int:
        """Reserve addresses, at ``hint`` (0 or free as far as the driver knows) if possible; 0 where there are none."""

    def unreserve(self, base: int, size: int) -> None:
        """Give back reserved addresses."""

    def protect(self, base: int, size: int, permission: int) -> bool:
        """Set what may be done with mapped addresses (0, 1 read, 3 read and write); False where refused."""

    def unmap(self, base: int, size: int) -> bool:
        """Make mapped addresses a plain reservation again; False where the system refuses."""

    def move(self, target: int, source: int, size: int) -> None:
        """Copy bytes; the two spans may overlap."""

    def snapshot(self, address: int, size: int) -> ctypes.Array[ctypes.c_char] | None:
        """The bytes that are there now; None where there are none to keep."""

    def fill(self, address: int, size: int, pattern: bytes) -> None:
        """Repeat ``pattern`` over ``size`` bytes."""

    def close(self) -> None:
        """Give everything back to the system."""


class NoStore:
    """A store without bytes."""

    __slots__ = ()

    def allocate(self, size: int) -> int | None:  # noqa: ARG002 - the bank has counted it already
        """Always possible."""
        return 0

    def release(self, offset: int, size: int) -> None:
        """Nothing to do."""

    def map(self, address: int, size: int, offset: int) -> bool:  # noqa: ARG002
        """Always possible."""
        return True

    def fill(self, offset: int, size: int, byte: int) -> None:
        """Nothing to do."""

    def committed(self) -> int | None:
        """There is no memory behind it."""
        return None


class NoBacking:
    """Addresses from a counter. They are never used again, so a stale one is always found out."""

    name = "none"

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self._lowest = self._next = 1 << 44
        self._total = 0

    def file(self, location: Location, size: int) -> SharedFile | None:
        """A file without bytes, which is made when it is exported."""
        return SharedFile(location, size, self.owned, real=False)

    def store(self, name: str) -> Store:  # noqa: ARG002
        """A store without bytes."""
        return NoStore()

    def reserve(self, size: int, alignment: int, hint: int) -> int:
        """The next addresses, or those at ``hint``; 0 where 128 TiB are reserved."""
        if max(self._total + size, alignment) > ADDRESS_LIMIT:
            return 0
        base = hint if self._lowest <= hint <= self._next else -(-self._next // alignment) * alignment
        self._next = max(self._next, base + size)
        self._total += size
        return base

    def unreserve(self, base: int, size: int) -> None:  # noqa: ARG002
        """Count them no more."""
        self._total -= size

    def protect(self, base: int, size: int, permission: int) -> bool:  # noqa: ARG002
        """Always possible."""
        return True

    def unmap(self, base: int, size: int) -> bool:  # noqa: ARG002
        """Always possible."""
        return True

    def move(self, target: int, source: int, size: int) -> None:
        """Nothing to do."""

    def snapshot(self, address: int, size: int) -> ctypes.Array[ctypes.c_char] | None:  # noqa: ARG002
        """There are no bytes."""
        return None

    def fill(self, address: int, size: int, pattern: bytes) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Close the descriptors of files."""
        while self.owned:
            os.close(self.owned.pop())
