"""AddressRange: the owner of one reservation and of the mappings in it. A Mapping remembers its extent."""

from __future__ import annotations

import contextlib
import operator
import warnings
import weakref
from collections.abc import Iterator, Sequence

from .device import Device
from .driver import Access
from .errors import AlignmentError, ClosedError, OutOfMemoryError, RangeError, StateError
from .physical import PhysicalMemory
from .shortage.addresses import reservation_shortage
from .sizes import Size, format_size, parse_size, round_up
from .uninterrupted import uninterrupted, whole


class Mapping:
    """One whole allocation at one place of a range: what ``AddressRange.unmap`` takes. Made by ``AddressRange.map``."""

    __slots__ = ("access", "memory", "most", "offset", "owner", "size")

    def __init__(self, owner: AddressRange, offset: int, memory: PhysicalMemory, most: Access) -> None:
        self.owner = owner
        self.offset = offset
        self.size = memory.size
        self.memory = memory
        self.access = Access.NONE
        self.most = most  # that any device may ever have

    def __repr__(self) -> str:
        return f"Mapping({self.owner._base + self.offset:#x}, {format_size(self.size)}, {self.access.name})"

    @property
    def address(self) -> int:
        """The first address that the mapping covers."""
        return self.owner.base + self.offset

    @property
    def stop(self) -> int:
        """The offset in the range that follows the mapping."""
        return self.offset + self.size

    @property
    def handle(self) -> int:
        """The driver's handle of the memory behind it."""
        return self.memory.handle


class AddressRange:
    """``size`` bytes of virtual addresses (rounded up to the granularity): one cuMemAddressReserve, no physical memory.

    ``base`` and ``size`` never change; ``base`` is a multiple of ``alignment`` bytes, a power of two, or of what the
    driver likes where it is 0. Offsets are bytes from ``base``. The range owns its mappings, not the memory behind
    them. Raises OutOfMemoryError when no such span of addresses is free.
    """

    @whole
    def __init__(self, device: Device, size: Size, alignment: int = 0) -> None:
        self.device = device
        self.size = round_up(parse_size(size), device.granularity)
        self._mappings: dict[int, Mapping] = {}
        self.peers: dict[int, Access] = {}  # what other devices may do with everything that is mapped here
        self._base = 0
        try:
            self._base = device.driver.reserve(self.size, alignment)
        except OutOfMemoryError as error:
            error.report = reservation_shortage(device, self.size)
            raise
        self._reserved = True
        self._finalizer = weakref.finalize(self, _free, device, self._base, self.size, self._mappings)

    def __repr__(self) -> str:
        state = f"{self._base:#x}, {len(self._mappings)} mappings" if self._finalizer.alive else "closed"
        return f"AddressRange({format_size(self.size)}, {state})"

    def __enter__(self) -> AddressRange:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def base(self) -> int:
        """The first address. Raises ClosedError after ``close``."""
        if not self._finalizer.alive:
            raise ClosedError(f"address range of {format_size(self.size)} is closed")
        return self._base

    def mappings(self) -> list[Mapping]:
        """The mappings in the order of their addresses."""
        return [mapping for _offset, mapping in sorted(self._mappings.copy().items())]

    @uninterrupted
    def map(self, offset: Size, memory: PhysicalMemory, *, most: Access = Access.READWRITE) -> Mapping:
        """Map all of ``memory`` at ``base + offset``; no device may touch it until ``set_access``.

        No device ever gets more than ``most``. Raises AlignmentError, RangeError or, where something is mapped
        already, DriverError.
        """
        offset = parse_size(offset, name="offset") if isinstance(offset, str) else operator.index(offset)
        if offset % self.device.granularity:
            raise AlignmentError(f"offset {offset:#x} is no multiple of the granularity {self.device.granularity:#x}")
        if not 0 <= offset <= self.size - memory.size:
            raise RangeError(f"offset {offset:#x} + {memory.size:#x} is beyond the range of {self.size:#x} bytes")
        self.device.driver.map(self.base + offset, memory.size, memory.handle)
        mapping = self._mappings[offset] = Mapping(self, offset, memory, most)
        return mapping

    @uninterrupted
    def restore(self, mapping: Mapping) -> None:
        """Map the memory of a mapping that was unmapped, bytes and all, where it was, with the access that it had.

        All or nothing.
        """
        self.device.driver.map(mapping.address, mapping.size, mapping.handle)
        self._mappings[mapping.offset] = mapping
        with contextlib.ExitStack() as undo:
            undo.callback(self.unmap, [mapping])
            self.set_access([mapping], mapping.access)
            undo.pop_all()

    @uninterrupted
    def unmap_all(self) -> None:
        """Unmap every mapping, each contiguous run in one call. All or nothing, but for memory that was closed."""
        with contextlib.ExitStack() as undo:
            gone: list[Mapping] = []
            undo.callback(self._restore_open, gone)
            for run in adjacent(self.mappings()):
                self.unmap(run)
                gone.extend(run)
            undo.pop_all()

    def _restore_open(self, gone: Sequence[Mapping]) -> None:
        for mapping in gone:
            if not mapping.memory.closed:  # else the unmap was the end of it
                self.restore(mapping)

    @uninterrupted
    def unmap(self, mappings: Sequence[Mapping]) -> None:
        """Unmap adjacent mappings, given in the order of their addresses, in one call. Does not wait for work.

        Raises StateError for a mapping that is not in this range, or does not follow the one before it.
        """
        self._check_run(mappings)
        if mappings:
            start = mappings[0].offset
            self.device.driver.unmap(self.base + start, mappings[-1].stop - start)
            for mapping in mappings:
                del self._mappings[mapping.offset]

    @uninterrupted
    def set_access(self, mappings: Sequence[Mapping], access: str | Access, *, peers: bool = True) -> None:
        """Set what this device may do with adjacent mappings, given in the order of their addresses, in one call.

        The same call gives other devices what ``grant`` said, unless ``peers`` is False.
        Raises StateError for a mapping that is not in this range, or does not follow the one before it.
        """
        self._check_run(mappings)
        access = Access.of(access)
        if mappings:
            start = mappings[0].offset
            size = mappings[-1].stop - start
            granted = self.peers.items() if peers else ()
            grants = ((self.device.ordinal, access), *granted)
            if mappings[0].most < Access.READWRITE:
                grants = tuple((device, min(wanted, mappings[0].most)) for device, wanted in grants)
            self.device.driver.set_access(self.base + start, size, grants)
            for mapping in mappings:
                mapping.access = access

    @uninterrupted
    def grant(self, device: int, access: Access) -> None:
        """Set what another device, by its ordinal, may do with all that is mapped and all that will be.

        One call a contiguous run. All or nothing.
        """
        before = self.peers.get(device, Access.NONE)
        with contextlib.ExitStack() as undo:
            done: list[Sequence[Mapping]] = []
            undo.callback(self._grant_runs, done, device, before)
            for run in adjacent(self.mappings()):
                self._grant_runs([run], device, access)
                done.append(run)
            undo.pop_all()
        self.peers.pop(device, None)
        if access:
            self.peers[device] = access

    def _grant_runs(self, runs: Sequence[Sequence[Mapping]], device: int, access: Access) -> None:
        for run in runs:
            start = run[0].offset
            wanted = min(access, run[0].most)
            self.device.driver.set_access(self.base + start, run[-1].stop - start, ((device, wanted),))

    def _check_run(self, mappings: Sequence[Mapping]) -> None:
        """Refuse what the driver, which sees only an address and a size, would take for other mappings."""
        for index, mapping in enumerate(mappings):
            if self._mappings.get(mapping.offset) is not mapping:
                raise StateError(f"{mapping!r} is not mapped in this range")
            if index and mapping.offset != mappings[index - 1].stop:
                raise StateError(f"{mapping!r} does not follow {mappings[index - 1]!r}; take one run at a time")

    @uninterrupted
    def close(self) -> None:
        """Unmap what is mapped and free the reservation. Closing twice does nothing."""
        if self._finalizer.alive:
            self.unmap_all()
            self._finalizer.detach()
        if self._reserved:  # else an earlier close gave it back
            self.device.driver.free(self._base, self.size)
            self._reserved = False


def adjacent(mappings: Sequence[Mapping]) -> Iterator[Sequence[Mapping]]:
    """Cut mappings, sorted by address, into runs that one driver call can take."""
    start = 0
    for index in range(1, len(mappings) + 1):
        last = mappings[index - 1]
        if index == len(mappings) or mappings[index].offset != last.stop or mappings[index].most != last.most:
            yield mappings[start:index]
            start = index


def _unmap_all(device: Device, base: int, mappings: dict[int, Mapping]) -> None:
    ordered = [mappings[offset] for offset in sorted(mappings)]
    for run in adjacent(ordered):
        device.driver.unmap(base + run[0].offset, run[-1].stop - run[0].offset)
        for mapping in run:
            del mappings[mapping.offset]


def _free(device: Device, base: int, size: int, mappings: dict[int, Mapping]) -> None:
    """Give the addresses back when the owner was dropped, and say so."""
    _unmap_all(device, base, mappings)
    device.driver.free(base, size)
    warnings.warn(f"address range {base:#x} of {format_size(size)} was never closed", ResourceWarning, stacklevel=2)
