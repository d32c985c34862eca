"""PinnedMemory: host memory that the device copies from and to while the host goes on."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np

from .device import Device
from .errors import ClosedError, OutOfMemoryError, StateError
from .shortage.pinned_memory import pinned_shortage
from .sizes import Size, format_size, parse_size
from .uninterrupted import uninterrupted, whole

_CLOSED = 0  # the driver never gives address 0


class PinnedMemory:
    """``size`` bytes of page-locked host memory; one cuMemHostAlloc.

    ``close`` must come after the last use of its arrays, and after the work that reads or writes it. Raises
    OutOfMemoryError, naming how much was wanted, when the host has not so much.
    """

    __slots__ = ("_address", "device", "size")

    @whole
    def __init__(self, device: Device, size: Size) -> None:
        self._address = _CLOSED
        self.device, self.size = device, parse_size(size)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            with device.current():
                try:
                    self._address = device.driver.host_alloc(self.size)
                except OutOfMemoryError as error:
                    error.add(f"{format_size(self.size)} of pinned host memory were asked")
                    error.report = pinned_shortage(device, self.size)
                    raise
                device.pinned += self.size
            undo.pop_all()

    def __repr__(self) -> str:
        return f"PinnedMemory({format_size(self.size)}, {f'{self._address:#x}' if self._address else 'closed'})"

    def __enter__(self) -> PinnedMemory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def address(self) -> int:
        """Where it lies, for the host and for the device. Raises ClosedError after ``close``."""
        if not self._address:
            raise ClosedError("this pinned memory was freed; make a new one")
        return self._address

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> np.ndarray[Any, Any]:
        """A NumPy array on it from byte ``offset`` on. Raises StateError where the host driver keeps no bytes."""
        if self.device.backing == "none":
            raise StateError("backing 'none' keeps no bytes to view; use HostDriver(backing='memory')")
        span = (ctypes.c_byte * self.size).from_address(self.address)
        return np.ndarray(shape, dtype, memoryview(span), offset)

    @uninterrupted
    def close(self) -> None:
        """Free it. Closing twice does nothing."""
        if self._address and not self.device.idle:
            with self.device.current():
                address, self._address = self._address, _CLOSED
                self.device.pinned -= self.size
                self.device.driver.host_free(address)
        self._address = _CLOSED  # where the context has gone, its pinned memory went with it
