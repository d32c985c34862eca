"""The driver's layer as data: what is mapped where in a range, and whose memory any address is."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Protocol

from .address_range import AddressRange, Mapping
from .device import Device
from .driver import Access
from .sizes import format_size


@dataclass(frozen=True, slots=True)
class PageTableRun:
    """``size`` bytes at ``address`` that lie in one allocation, from its byte ``offset`` on, with one access."""

    address: int
    size: int
    handle: int
    offset: int
    access: Access

    @property
    def stop(self) -> int:
        """The address that follows."""
        return self.address + self.size

    def __str__(self) -> str:
        where = f"{self.address:#x} to {self.stop:#x}: handle {self.handle:#x} from byte {self.offset:#x}"
        return f"{where}, {self.access.name.lower()}"


@dataclass(frozen=True, slots=True)
class PageTable:
    """One range at one moment: ``reserved`` bytes from ``base``, and the runs that are mapped, in order.

    Made by ``snapshot``; it does not change when the range does.

        >>> import vmm
        >>> device = vmm.Device(driver=vmm.HostDriver(memory="1 GiB"))
        >>> with vmm.ChunkedRange(device, "1 GiB") as memory:
        ...     memory.commit([0, 5])
        ...     table = vmm.snapshot(memory)
        ...     [(run.address - table.base) // memory.chunk_size for run in table.runs]
        [0, 5]
        >>> table.translate(table.base + 5) == (table.runs[0].handle, 5)
        True
        >>> table.translate(table.base + (2 << 20)) is None  # only addresses
        True
        >>> device.close()
    """

    name: str
    base: int
    reserved: int
    runs: tuple[PageTableRun, ...]

    @property
    def committed(self) -> int:
        """Bytes that are mapped."""
        return sum(run.size for run in self.runs)

    def find(self, address: int) -> PageTableRun | None:
        """The run that contains ``address``; None where only addresses are reserved, or not even those."""
        at = bisect.bisect_right(self.runs, address, key=lambda run: run.address) - 1
        return self.runs[at] if at >= 0 and address < self.runs[at].stop else None

    def translate(self, address: int) -> tuple[int, int] | None:
        """(handle, byte in that allocation) behind ``address``: what the hardware's page table answers."""
        run = self.find(address)
        return None if run is None else (run.handle, run.offset + address - run.address)


class _Growable(Protocol):
    name: str
    base: int
    reserved: int

    def mappings(self) -> list[Mapping]: ...


def snapshot(range_: _Growable | AddressRange) -> PageTable:
    """The page table of a range, now: all that is mapped, what retires included. Raises ClosedError after its close."""
    if isinstance(range_, AddressRange):
        name, base, reserved = "address range", range_.base, range_.size
    else:
        name, base, reserved = range_.name, range_.base, range_.reserved
    mappings = range_.mappings()
    runs = [PageTableRun(m.address, m.size, m.handle, 0, m.access) for m in mappings]  # mapped whole: from byte 0
    return PageTable(name, base, reserved, tuple(runs))


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose memory an address is, as the driver's pointer attributes tell it.

    ``kind`` is "vmm" (reserved by cuMemAddressReserve, mapped or not), "device" (cuMemAlloc and its kin), "host"
    (pinned host memory) or "foreign" (no memory of the driver). ``base`` and ``size`` are those of the reservation or
    the allocation, ``mapping_base`` and ``mapping_size`` those of the one mapping. ``access`` is what the device that
    asked may do. ``device`` is -1 where there is none.
    """

    address: int
    kind: str
    base: int = 0
    size: int = 0
    mapped: bool = False
    device: int = -1
    access: Access = Access.NONE
    mapping_base: int = 0
    mapping_size: int = 0

    def __str__(self) -> str:
        if self.kind == "foreign":
            return f"{self.address:#x} is no memory of the driver"
        names = {"vmm": "reserved range", "device": "device allocation", "host": "pinned host allocation"}
        inside = f"byte {self.address - self.base:#x} of the {names[self.kind]}"
        text = f"{self.address:#x} is {inside} of {format_size(self.size)} at {self.base:#x}"
        if not self.mapped:
            return f"{text}; nothing is mapped there"
        return f"{text}; on device {self.device}, {self.access.name.lower()}"


_NAMES = (
    "MEMORY_TYPE",
    "CONTEXT",
    "RANGE_START_ADDR",
    "RANGE_SIZE",
    "MAPPED",
    "DEVICE_ORDINAL",
    "ACCESS_FLAGS",
    "MAPPING_BASE_ADDR",
    "MAPPING_SIZE",
    "MEMPOOL_HANDLE",
)
_HOST_MEMORY = 1


def describe(device: Device, address: int) -> Owner:
    """Whose memory ``address`` is, asked of the driver in the context of ``device``."""
    with device.current():
        values = [int(value or 0) for value in device.driver.pointer_attributes(address, _NAMES)]
    memory, context, base, size, mapped, ordinal, access, mapping_base, mapping_size, pool = values
    if not size:
        return Owner(address, "foreign")
    if memory == _HOST_MEMORY:
        return Owner(address, "host", base, size, True, ordinal, Access(access), base, size)
    if mapped and (context or pool):  # only memory that came with its address belongs to a context or a pool
        return Owner(address, "device", base, size, True, ordinal, Access(access), base, size)
    if not mapped:
        return Owner(address, "vmm", base, size)
    return Owner(address, "vmm", base, size, True, ordinal, Access(access), mapping_base, mapping_size)
