"""What a kernel's requests to the cache cost, counted on a CPU: sectors of 32 bytes and pages of 2 MiB."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .errors import LaunchError

SECTOR_BYTES = 32
"""What the memory delivers at least."""
PAGE_BYTES = 2 << 20
"""What one entry of the GPU's address translation covers."""
_MOST_SITES = 256


@dataclass(frozen=True)
class MeterSite:
    """The requests of all warps by one load or store of the kernel, summed up.

    ``line``: "file:line" of the source. ``lanes``: threads that took part. ``bytes``: wanted, those that several lanes
    want counted once. ``sectors`` and ``pages``: distinct ones of each request, summed over the requests.
    """

    line: str
    write: bool
    requests: int
    lanes: int
    bytes: int
    sectors: int
    pages: int

    @property
    def sectors_per_request(self) -> float:
        """How many sectors one request takes."""
        return self.sectors / self.requests

    @property
    def efficiency(self) -> float:
        """Bytes used over bytes fetched."""
        return self.bytes / (self.sectors * SECTOR_BYTES)

    @property
    def pages_per_request(self) -> float:
        """How many addresses of pages one request has translated."""
        return self.pages / self.requests


class _Site(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("at", "write", "requests", "lanes", "bytes", "sectors", "pages")]


class MeterRecord(ctypes.Structure):
    """MeterRecord of host/meter.h."""

    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("sites", ctypes.POINTER(_Site)),
        ("most_sites", ctypes.c_uint64),
        ("site_count", ctypes.c_uint64),
        ("touched", ctypes.POINTER(ctypes.c_uint8)),
    ]


class MemoryMeter:
    """Watches the ``size`` bytes from ``address`` on. Give it to a HostRun; ``sites`` grows with every launch."""

    def __init__(self, address: int, size: int) -> None:
        if size < 1:
            raise LaunchError(f"size must be at least 1 byte, not {size}")
        self.address, self.size = address, size
        self.sites: list[MeterSite] = []
        pages = (address + size - 1) // PAGE_BYTES - address // PAGE_BYTES + 1
        self._touched = (ctypes.c_uint8 * pages)()

    @property
    def pages_touched(self) -> int:
        """Pages of which any kernel touched a byte."""
        return sum(self._touched)

    def record(self) -> MeterRecord:
        """What one launch fills."""
        touched = ctypes.cast(self._touched, ctypes.POINTER(ctypes.c_uint8))
        return MeterRecord(self.address, self.size, (_Site * _MOST_SITES)(), _MOST_SITES, 0, touched)

    def add(self, lines: list[str], record: MeterRecord) -> None:
        """Take what a launch filled; ``lines`` has the source line of each site."""
        for line, site in zip(lines, record.sites[: record.site_count], strict=True):
            sums = (site.requests, site.lanes, site.bytes, site.sectors, site.pages)
            if site.requests:
                self.sites.append(MeterSite(line, bool(site.write), *sums))
