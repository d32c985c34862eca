"""The state that all calls of the host driver share, and how its objects are counted."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from .. import sizes
from ..errors import SizeError
from .address_space import AddressSpace, PlainMemory, Reservation
from .backing import Backing, NoBacking
from .execution import Context, Event, Stream, ThreadStack
from .history import History
from .peers import peer_pairs
from .physical import Allocation, Bank
from .properties import DEVICE, HOST, Property

_HANDLES = itertools.count(1)  # for the life of the process, so that no handle is ever used twice
_IDENTITIES = itertools.count(0x100)  # contexts, streams, events, buffers; 0 to 2 name default streams
_MOST_DEVICES = 64
HOST_PAGE = os.sysconf("SC_PAGE_SIZE")
"""What sizes of reservations are multiples of, and what plain memory is counted in."""


@dataclass(frozen=True)
class Live:
    """How many objects of each kind exist. ``allocations`` are handles, or mapped memory whose handle was released.

    ``pending`` are the streams whose work has not run yet.
    """

    reservations: int = 0
    mappings: int = 0
    allocations: int = 0
    plain: int = 0
    pinned: int = 0
    contexts: int = 0
    streams: int = 0
    events: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        """How many objects exist; 0 when everything was given back."""
        return sum(getattr(self, field.name) for field in fields(self))


class HostState:
    """Options, address space, physical memory, contexts. The calls are in the classes that derive from it."""

    driver_name = "host"

    def __init__(
        self,
        *,
        memory: sizes.Size,
        granularity: sizes.Size,
        backing: str,
        devices: int,
        peers: str | Iterable[tuple[int, int]],
        streams: str,
        poison: int | None,
    ) -> None:
        self.granularity = _granularity(granularity)
        self.poison = _poison(poison)
        if devices not in range(1, _MOST_DEVICES + 1):
            raise ValueError(f"devices must be a number from 1 to {_MOST_DEVICES}, not {devices!r}")
        self._peers = peer_pairs(peers, devices)
        self._uneven = devices > 1  # whether locations can have different rights on one mapping
        if streams not in ("eager", "deferred"):
            raise ValueError(f"streams must be 'eager' or 'deferred', not {streams!r}")
        self._eager = streams == "eager"
        total = sizes.round_down(sizes.parse_size(memory, name="memory"), self.granularity)
        if not total:
            least = sizes.format_size(self.granularity)
            raise SizeError(f"memory must be at least the granularity of {least}, not {memory!r}")
        self._backing = _backing(backing)
        self.backing = self._backing.name
        self._has_pages = self.backing != "none"  # page permissions, which follow the access tables
        self._lock = threading.RLock()  # the garbage collector may run in a call, and end owners that call the driver
        self._running = threading.RLock()  # held while a kernel runs
        self._space = AddressSpace(self.granularity)
        self._host = Bank((HOST, 0), None, self._backing.store("vmm-host"))
        self._devices = [
            Bank((DEVICE, ordinal), total, self._backing.store(f"vmm-device-{ordinal}")) for ordinal in range(devices)
        ]
        self._allocations: dict[int, Allocation] = {}
        self._free_mapped = False
        self._read_only = 0  # allocations from descriptors that allow no writing
        self._contexts = [Context(next(_IDENTITIES), bank) for bank in self._devices]
        self._thread = ThreadStack()
        self._history = History()
        self._note = self._history.note
        self._identities = _IDENTITIES
        self._handles = _HANDLES
        self._places: dict[bytes, tuple[Property, Any]] = {}
        self._tables: dict[bytes, Any] = {}
        self._streams: dict[int, Stream] = {}
        self._events: dict[int, Event] = {}
        self._close = weakref.finalize(self, self._backing.close)
        self._close.atexit = False  # views may outlive the driver at the end of the process

    def forked(self) -> None:
        """In a child of a fork: locks that a thread of the parent held are nobody's."""
        self._lock, self._running = threading.RLock(), threading.RLock()

    def live(self) -> Live:
        """Count the objects that exist."""
        regions = self._space.regions()
        plain = [region for region in regions if isinstance(region, PlainMemory)]
        pinned = sum(region.bank is self._host for region in plain)
        return Live(
            reservations=sum(isinstance(region, Reservation) for region in regions),
            mappings=self._space.mappings,
            allocations=len(self._allocations),
            plain=len(plain) - pinned,
            pinned=pinned,
            contexts=sum(context.count for context in self._contexts),
            streams=len(self._streams),
            events=len(self._events),
            pending=sum(1 for context in self._contexts for _ in context.pending()),
        )

    def committed_bytes(self, device: int = 0) -> int | None:
        """Bytes that the operating system counts for a device's memory; None with backing "none"."""
        bank = self._devices[device]
        bytes_of_store = bank.store.committed()
        return None if bytes_of_store is None else bytes_of_store + sum(file.committed() for file in bank.files)

    def __repr__(self) -> str:
        memory = sizes.format_size(self._devices[0].total or 0)
        return f"HostDriver(memory={memory!r}, backing={self.backing!r})"


def _granularity(value: sizes.Size) -> int:
    found = sizes.parse_size(value, name="granularity")
    if found < HOST_PAGE or found & (found - 1):
        raise SizeError(f"granularity must be a power of two of at least a page, not {value!r}")
    return found


def _poison(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= 255:
        raise ValueError(f"poison must be a byte from 0 to 255 or None, not {value!r}")
    return value


def _backing(name: str) -> Backing:
    if name == "none":
        return NoBacking()
    if name == "memory":
        from .memory_backing import MemoryBacking

        return MemoryBacking()
    raise ValueError(f"backing must be 'memory' or 'none', not {name!r}")
