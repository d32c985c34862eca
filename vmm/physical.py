"""PhysicalMemory: the owner of one handle of the driver. It has a size and no address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from .device import Device
from .errors import AlignmentError, ClosedError, OutOfMemoryError, StateError, VmmError
from .finishing import Finishing
from .shortage.device_memory import device_shortage
from .sizes import Size, format_size, parse_size
from .uninterrupted import handed_over, uninterrupted, whole

_CLOSED = 0  # the driver never gives handle 0


class PhysicalMemory:
    """``size`` bytes of a device's physical memory, a multiple of its granularity: one cuMemCreate.

    Light enough to have by the ten thousand: no finalizer of its own (its supply or range has one). Memory that is
    still mapped when it is closed lives until the unmap. ``exportable`` memory can be shared with other processes;
    ``exported`` memory may be mapped in one for as long as that one likes, so it is never given to another owner.
    Raises AlignmentError for a size that is no multiple of the granularity and OutOfMemoryError when the device is
    full.
    """

    __slots__ = ("_handle", "device", "exportable", "exported", "last_owner", "size")

    @whole
    def __init__(self, device: Device, size: Size, *, exportable: bool = False) -> None:
        try:
            self._create(device, parse_size(size), exportable)
        except OutOfMemoryError as error:
            error.report = device_shortage(device, self.size)
            raise

    def _create(self, device: Device, size: int, exportable: bool) -> None:
        self._handle = _CLOSED
        self.device, self.size, self.last_owner = device, size, 0
        if size % device.granularity:
            unit = format_size(device.granularity)
            raise AlignmentError(f"size {size} is no multiple of the granularity {unit} ({device.granularity})")
        self.exportable, self.exported = exportable, False
        self._handle = device.driver.create(device.ordinal, size, exportable=exportable)

    @classmethod
    @handed_over(lambda _cls, made: made.close())
    def _unexplained(cls, device: Device, size: int, *, exportable: bool) -> PhysicalMemory:
        """As the constructor, for who asks again or explains it better: the error reports no more than the call."""
        made = cls.__new__(cls)
        made._create(device, size, exportable)
        return made

    @classmethod
    @handed_over(lambda _cls, made: made.close())
    def imported(cls, device: Device, size: int, descriptor: int) -> PhysicalMemory:
        """The memory that another process exported as a file descriptor, which stays the caller's to close.

        A descriptor does not carry its size: ``size`` must be the exporter's. Raises DriverError for a descriptor of
        something else.
        """
        made = cls._shared(device, size)
        made._handle = device.driver.import_descriptor(descriptor)
        return made

    @classmethod
    @handed_over(lambda _cls, made: made.close())
    def retained(cls, device: Device, size: int, address: int) -> PhysicalMemory:
        """One more owner of the exportable memory that is mapped at ``address``: it lives until both are closed.

        Raises DriverError where nothing is mapped.
        """
        made = cls._shared(device, size)
        made._handle = device.driver.retain(address)
        return made

    @classmethod
    def _shared(cls, device: Device, size: int) -> PhysicalMemory:
        """Memory that others own too, without its handle yet."""
        made = cls.__new__(cls)
        made._handle = _CLOSED
        made.device, made.size, made.last_owner = device, size, 0
        made.exportable = made.exported = True
        return made

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

    def export(self) -> int:
        """A file descriptor of this memory, for another process; the caller closes it. It keeps the memory alive.

        Raises StateError for memory that was not created exportable.
        """
        if not self.exportable:
            raise StateError(f"{self!r} cannot leave this process; create it with exportable=True")
        self.exported = True
        return self.device.driver.export_descriptor(self.handle)

    @uninterrupted
    def close(self) -> None:
        """Release the handle. Closing twice does nothing."""
        handle, self._handle = self._handle, _CLOSED
        if handle != _CLOSED:
            self.device.driver.release(handle)


def create_each(device: Device, size: int, count: int, *, exportable: bool = False) -> list[PhysicalMemory]:
    """``count`` pieces of ``size`` bytes, or none: the error says at which piece, and its report is the caller's."""
    created: list[PhysicalMemory] = []
    with contextlib.ExitStack() as undo:
        undo.callback(close_each, created)
        try:
            for _ in range(count):
                created.append(PhysicalMemory._unexplained(device, size, exportable=exportable))
        except OutOfMemoryError as error:
            with contextlib.suppress(VmmError):  # a device that does not answer hides no lack of memory
                free = format_size(device.memory_info().free)
                error.add(f"chunk {len(created) + 1} of {count} new ones; {free} free on device {device.ordinal}")
            raise
        undo.pop_all()
    return created


def close_each(pieces: Iterable[PhysicalMemory]) -> None:
    """Release every piece, also those after one whose release is refused; then raise the first refusal."""
    with Finishing() as rest:
        for piece in pieces:
            rest.run(piece.close)
