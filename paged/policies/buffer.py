"""A buffer: one physical allocation at an address range of its own, as an ordinary allocator would give it."""

from __future__ import annotations

import contextlib

from vmm import Access, AddressRange, Device, PhysicalMemory


class Buffer:
    """``size`` bytes, a multiple of the granularity: reserved, created, mapped and accessible, or nothing at all.

    Raises OutOfMemoryError when the device or the address space is exhausted.
    """

    __slots__ = ("addresses", "memory", "size")

    def __init__(self, device: Device, size: int) -> None:
        self.size = size
        with contextlib.ExitStack() as undo:
            self.addresses = undo.enter_context(AddressRange(device, size))
            self.memory = undo.enter_context(PhysicalMemory(device, size))
            self.addresses.set_access([self.addresses.map(0, self.memory)], Access.READWRITE)
            undo.pop_all()

    def close(self) -> None:
        """Unmap and release. Closing twice does nothing."""
        self.addresses.close()
        self.memory.close()
