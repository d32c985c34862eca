"""MemoryRange: a reserved span of addresses, and the chunks that are mapped there.

It opens, answers and closes; ``ReliedRange`` has the arrays and pins that need the memory, and ``ChunkedRange`` changes
what is mapped.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .address_range import AddressRange, Mapping
from .chunk_map import ChunkMap, Run
from .chunk_supply import ChunkSupply
from .device import Device
from .driver import Access
from .errors import ClosedError, StateError
from .finishing import Finishing
from .pins import Pins
from .relied_range import ReliedRange
from .sizes import Size, format_size, parse_size, round_up
from .supply import Supply
from .suspended import Suspended
from .uninterrupted import Uninterrupted, whole
from .views import Views

if TYPE_CHECKING:
    from typing_extensions import Self

_numbers = itertools.count(1)


class MemoryRange(ReliedRange):
    """What every range is: addresses, the chunks mapped there, and who relies on them. Made as ``ChunkedRange``."""

    @whole
    def __init__(
        self,
        device: Device,
        reserve: Size,
        *,
        chunk: Size | None = None,
        supply: Supply | None = None,
        access: str | Access = "rw",
        name: str | None = None,
    ) -> None:
        if supply is not None and chunk is not None:
            raise ValueError(f"chunk={chunk!r} is the supply's to choose; give one of chunk and supply")
        device.check_open()
        if supply is not None and not supply.device.is_same(device):
            raise ValueError(f"the supply is of {supply.device}, not of {device}; make one there")
        self.device = device
        self.name = name or f"range {next(_numbers)}"
        self._own_supply = supply is None
        self.supply: Supply = supply or ChunkSupply(device, chunk)
        self.chunk_size = self.supply.chunk_size
        first_access = Access.of(access)
        addresses = AddressRange(device, round_up(parse_size(reserve, name="reserve"), self.chunk_size))
        self.base, self.reserved = addresses.base, addresses.size
        self._chunks = ChunkMap(addresses, self.supply, first_access, self.name)
        self._mappings = self._chunks.mappings
        self._pins, self._views, self.relied_on = Pins(), Views(), False
        self._busy = threading.Lock()
        self.losses = 0  # how often the bytes of all chunks became undefined
        self._finalizer = weakref.finalize(self, _drop, self._chunks)
        device.driver.ranges.add(self)  # errors about an address name the range and the chunk

    def __repr__(self) -> str:
        state = f"{format_size(self.committed)} committed" if self._finalizer.alive else "closed"
        return f"{type(self).__name__}({self.name!r}, {self.base:#x}, {format_size(self.reserved)} reserved, {state})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None and len(self._views):
            return  # an error is on its way and its frames hold arrays: the finalizer closes when they are gone
        self.close()

    @property
    def asleep(self) -> Suspended | None:
        """What comes back when the range wakes; None while it is awake."""
        return self._chunks.asleep

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether ``close`` has given everything back."""
        return not self._finalizer.alive

    @property
    def committed(self) -> int:
        """Bytes of physical memory that are mapped here, ``retiring`` and the chunk of each zero window included."""
        held = len(self._mappings) + len(self._chunks.leaving) + len(self._chunks.windows)
        return held * self.chunk_size

    @property
    def retiring(self) -> int:
        """Bytes that were decommitted, and stay mapped until the work that may use them is done."""
        return len(self._chunks.leaving) * self.chunk_size

    @property
    def chunk_count(self) -> int:
        """How many chunks the reservation has room for."""
        return self.reserved // self.chunk_size

    def is_committed(self, chunk: int) -> bool:
        """Whether chunk ``chunk`` has physical memory."""
        return chunk in self._mappings

    def is_held(self, chunk: int) -> bool:
        """Whether chunk ``chunk`` has physical memory, or will have when the range wakes."""
        return chunk in self._mappings or (self.asleep is not None and chunk in self.asleep)

    def held_chunks(self) -> list[int]:
        """The indices of the chunks that are committed, or will be when the range wakes."""
        return self.asleep.chunks if self.asleep else sorted(self._mappings)

    def is_retiring(self, chunk: int) -> bool:
        """Whether chunk ``chunk`` was decommitted and is still mapped."""
        return chunk in self._chunks.leaving

    def committed_chunks(self) -> list[int]:
        """The indices of the committed chunks, ascending."""
        return sorted(self._mappings)

    def mapping(self, chunk: int) -> Mapping:
        """The mapping of a committed chunk. Raises StateError where nothing is committed."""
        found = self._mappings.get(chunk)
        if found is None:
            raise StateError(f"chunk {chunk} of {self.name} is not committed")
        return found

    def mappings(self) -> list[Mapping]:
        """All that the driver has mapped here, in order: committed and retiring chunks, and zeros of windows."""
        self._check_open()
        return self._chunks.addresses.mappings()

    def runs(self) -> list[Run]:
        """The committed spans in order, cut where the access changes."""
        return self._chunks.runs()

    def close(self) -> None:
        """Unmap everything, return the chunks and free the addresses. Closing twice does nothing.

        Raises StateError while an array still views the range or a pin holds it, DriverError when an unmap is refused;
        nothing has changed then.
        """
        if not self._finalizer.alive:
            self._chunks.addresses.close()  # of any use only where the driver did not take them back at first
            return
        with self._alone(asleep=True):
            everything = [(0, self.reserved)]
            self._pins.refuse(everything, f"close {self.name}, which has")
            self._views.refuse_end(self.name, self.reserved)
            self.device.synchronize()
            with Finishing() as rest:
                rest.run(self._chunks.close)
                self._finalizer.detach()
                if self._own_supply:
                    rest.run(self.supply.close)

    # -- steps --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self, *, asleep: bool = False) -> Iterator[None]:
        """One change at a time, on an open range that is awake, or also on one that is ``asleep``."""
        with Uninterrupted():  # from before the lock is had, which would stay locked
            if not self._busy.acquire(blocking=False):
                text = f"{self.name} is being changed by another thread; a range belongs to one thread at a time"
                raise StateError(text)
            try:
                self._check_open() if asleep else self.check_awake()
                yield
            finally:
                self._busy.release()

    def check_awake(self) -> None:
        """Raise ClosedError after ``close``, and StateError, naming the tag, while the range sleeps."""
        self._check_open()
        if self.asleep:
            raise StateError(f"{self.name} is asleep with {self.asleep.tag!r}; wake that first")

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError(f"{self.name} is closed; make a new range")


def _drop(chunks: ChunkMap) -> None:
    """Give everything back when a range was dropped without close. The garbage collector may run this anywhere."""
    chunks.retirement.drop(functools.partial(_end, chunks))


def _end(chunks: ChunkMap) -> None:
    """Wait, give everything back, and say so."""
    try:
        chunks.device.synchronize()
    finally:
        chunks.close()
    warnings.warn(f"{chunks.name} was never closed", ResourceWarning, stacklevel=2)
