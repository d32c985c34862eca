"""HostCopy: pinned host memory for the bytes of many chunks, and the copies to it and back."""

from __future__ import annotations

import contextlib

from .device import Device
from .errors import OutOfMemoryError
from .finishing import Finishing
from .pinned import PinnedMemory
from .shortage.pinned_memory import pinned_shortage
from .sizes import format_size

_PIECE = 256 << 20
"""Bytes of one pinned allocation at most: each is a call and a search for pages; one of all bytes may not be had."""


class HostCopy:
    """Room for ``count`` chunks of ``chunk`` bytes in pinned host memory, in several allocations.

    Raises OutOfMemoryError, naming how much was wanted, when the host has not so much; nothing is held then.
    """

    def __init__(self, device: Device, chunk: int, count: int) -> None:
        self._device, self._chunk = device, chunk
        self._each = max(1, _PIECE // chunk)  # chunks of one piece
        self._pieces: list[PinnedMemory] = []
        self.size = chunk * count
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            try:
                for first in range(0, count, self._each):
                    self._pieces.append(PinnedMemory(device, min(self._each, count - first) * chunk))
            except OutOfMemoryError as error:
                error.add(f"{format_size(self.size)} of pinned host memory are needed for a backup")
                mine = sum(piece.size for piece in self._pieces)
                error.report = pinned_shortage(device, self.size, mine)
                raise
            undo.pop_all()

    def save(self, addresses: list[int]) -> None:
        """Queue the copies of whole chunks at ``addresses`` to the host, in order. The caller waits."""
        with self._device.current():
            for index, address in enumerate(addresses):
                self._device.driver.copy_out_async(self._address(index), address, self._chunk)

    def load(self, indices: list[int], addresses: list[int]) -> None:
        """Queue the copies back: chunk ``indices[i]`` of the copy to ``addresses[i]``. The caller waits."""
        with self._device.current():
            for index, address in zip(indices, addresses, strict=True):
                self._device.driver.copy_in_async(address, self._address(index), self._chunk)

    def close(self) -> None:
        """Free the host memory. Closing twice does nothing."""
        with Finishing() as rest:
            while self._pieces:
                rest.run(self._pieces.pop().close)

    def _address(self, index: int) -> int:
        return self._pieces[index // self._each].address + index % self._each * self._chunk
