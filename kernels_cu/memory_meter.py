"""What a kernel's requests cost, counted on a CPU: sectors and pages of the cache, turns of shared memory's banks."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .errors import KernelError, LaunchError

SECTOR_BYTES = 32
"""What the memory delivers at least."""
PAGE_BYTES = 2 << 20
"""What one entry of the GPU's address translation covers."""
_MOST_SITES = 2048


@dataclass(frozen=True)
class MeterSite:
    """The requests of all warps by one load or store of the kernel, summed up.

    ``line``: "file:line" of the source. ``shared``: to shared memory, else to the cache. ``lanes``: threads that took
    part. ``bytes``: wanted, those of the cache that several lanes want counted once. ``sectors`` and ``pages`` of the
    cache: distinct ones of each request, summed over the requests. ``turns`` of the banks of shared memory, and
    ``fewest_turns`` that so many bytes could take.
    """

    line: str
    write: bool
    shared: bool
    requests: int
    lanes: int
    bytes: int
    sectors: int
    pages: int
    turns: int
    fewest_turns: int

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

    @property
    def conflicts(self) -> float:
        """Turns of the banks over the fewest possible: 1 is free of conflicts."""
        return self.turns / self.fewest_turns


SUMS = ("requests", "lanes", "bytes", "sectors", "pages", "turns", "fewest_turns")
"""What a site sums up."""


class _Site(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("at", "write", "shared", *SUMS)]


class MeterRecord(ctypes.Structure):
    """MeterRecord of host/meter.h."""

    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("sites", ctypes.POINTER(_Site)),
        ("most_sites", ctypes.c_uint64),
        ("site_count", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("touched", ctypes.POINTER(ctypes.c_uint8)),
    ]


class MemoryMeter:
    """Watches the ``size`` bytes from ``address`` on, and shared memory. Give it to a HostRun.

    ``sites`` grows with every launch. Raises LaunchError for a size below 1 byte.
    """

    def __init__(self, address: int, size: int) -> None:
        if size < 1:
            raise LaunchError(f"size must be at least 1 byte, not {size}")
        self.address, self.size = address, size
        self.sites: list[MeterSite] = []
        pages = (address + size - 1) // PAGE_BYTES - address // PAGE_BYTES + 1
        self._touched = (ctypes.c_uint8 * pages)()

    def __repr__(self) -> str:
        requests = sum(site.requests for site in self.sites)
        return (
            f"<MemoryMeter of {self.size} bytes at {self.address:#x}: {requests} requests at {len(self.sites)} sites, "
            f"{self.pages_touched} pages touched>"
        )

    @property
    def pages_touched(self) -> int:
        """Pages of which any kernel touched a byte."""
        return sum(self._touched)

    @property
    def cache_sites(self) -> list[MeterSite]:
        """Those of the watched memory."""
        return [site for site in self.sites if not site.shared]

    @property
    def shared_sites(self) -> list[MeterSite]:
        """Those of shared memory."""
        return [site for site in self.sites if site.shared]

    def record(self) -> MeterRecord:
        """What one launch fills."""
        touched = ctypes.cast(self._touched, ctypes.POINTER(ctypes.c_uint8))
        return MeterRecord(self.address, self.size, (_Site * _MOST_SITES)(), _MOST_SITES, 0, 0, touched)

    def add(self, lines: list[str], record: MeterRecord) -> None:
        """Take what a launch filled; ``lines`` has the source line of each site.

        Raises KernelError if the meter was too small for the kernel.
        """
        if record.lost:
            raise KernelError(f"the meter lost {record.lost} accesses: the kernel makes them in too many places")
        for line, site in zip(lines, record.sites[: record.site_count], strict=True):
            if site.requests:
                sums = (getattr(site, name) for name in SUMS)
                self.sites.append(MeterSite(line, bool(site.write), bool(site.shared), *sums))
