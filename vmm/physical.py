"""PhysicalMemory: the owner of one handle of the driver. It has a size and no address."""

from __future__ import annotations

from .device import Device
from .errors import AlignmentError, ClosedError
from .sizes import Size, format_size, parse_size

_CLOSED = 0  # the driver never gives handle 0


class PhysicalMemory:
    """``size`` bytes of a device's physical memory, a multiple of its granularity: one cuMemCreate.

    Light enough to have by the ten thousand: no finalizer of its own (its supply or range has one). Memory that is
    still mapped when it is closed lives until the unmap. Raises AlignmentError for a size that is no multiple of the
    granularity and OutOfMemoryError when the device is full.
    """

    __slots__ = ("_handle", "device", "last_owner", "size")

    def __init__(self, device: Device, size: Size) -> None:
        self._handle = _CLOSED
        self.device = device
        self.size = parse_size(size)
        if self.size % device.granularity:
            unit = format_size(device.granularity)
            raise AlignmentError(f"size {self.size} is no multiple of the granularity {unit} ({device.granularity})")
        self.last_owner = 0
        self._handle = device.driver.create(device.ordinal, self.size)

    def __repr__(self) -> str:
        return f"PhysicalMemory({format_size(self.size)}, {f'handle {self._handle:#x}' if self._handle else 'closed'})"

    def __enter__(self) -> PhysicalMemory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the handle was released."""
        return self._handle == _CLOSED

    @property
    def handle(self) -> int:
        """The driver's handle. Raises ClosedError after ``close``."""
        if self._handle == _CLOSED:
            raise ClosedError("physical memory is closed; create new memory to map")
        return self._handle

    def close(self) -> None:
        """Release the handle. Closing twice does nothing."""
        handle, self._handle = self._handle, _CLOSED
        if handle != _CLOSED:
            self.device.driver.release(handle)
