"""What an allocation is made of and who may use it: CUmemAllocationProp and CUmemAccessDesc as plain values."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cuda

from .arguments import StructBytes

PINNED = 1
MANAGED = 2
DEVICE = 1
HOST = 2
HOST_NUMA = 3
DEVICE_LOCALITY_DOMAIN = 6
POSIX_FILE_DESCRIPTOR = 1
FABRIC = 8

NONE, READ, READWRITE = 0, 1, 3
FLAGS = frozenset((NONE, READ, READWRITE))

Location = tuple[int, int]
"""(type, id) of a memory location, with the id of a host location set to 0."""

_PROPERTY = struct.Struct("=iiii16x")  # type, requestedHandleTypes, location.type, location.id, the rest
_GRANT = struct.Struct("=iii")  # location.type, location.id, flags
_LOCATION = struct.Struct("=ii")


@dataclass(frozen=True, slots=True)
class Property:
    """The part of a CUmemAllocationProp that the driver looks at."""

    kind: int
    location: Location
    handle_types: int

    def struct(self) -> Any:
        """The property as granted, which may be less than was asked: compression is never granted."""
        made = cuda.CUmemAllocationProp()
        made.type = cuda.CUmemAllocationType(self.kind)
        made.location.type = cuda.CUmemLocationType(self.location[0])
        made.location.id = self.location[1]
        made.requestedHandleTypes = cuda.CUmemAllocationHandleType(self.handle_types)
        return made


@dataclass(frozen=True, slots=True)
class Grant:
    """One CUmemAccessDesc: what a location may do."""

    location: Location
    access: int


def _location(kind: int, number: int) -> Location:
    """A location as the rules compare it: a locality domain of a device is the device, and HOST has no id."""
    if kind == DEVICE_LOCALITY_DOMAIN:
        return DEVICE, number & 0xFF  # the id is a byte of device and a byte of domain
    return kind, 0 if kind == HOST else number


property_bytes = StructBytes(_PROPERTY.size)
grant_bytes = StructBytes(_GRANT.size)
_location_bytes = StructBytes(_LOCATION.size)


def read_property(raw: bytes) -> Property:
    """The property that the bytes of a CUmemAllocationProp say."""
    kind, handle_types, place, number = _PROPERTY.unpack(raw)
    return Property(kind, _location(place, number), handle_types)


def read_grants(raw: bytes) -> list[Grant]:
    """The grants that the bytes of one or more CUmemAccessDesc say."""
    return [Grant(_location(place, number), access) for place, number, access in _GRANT.iter_unpack(raw)]


def location_of(struct: Any) -> Location:
    """The location that a CUmemLocation names."""
    return _location(*_LOCATION.unpack(_location_bytes(struct)))
