"""StagingRing: pinned buffers from which queued work reads what the host has written, each guarded by an event.

The host may write to a buffer again only when the copies from it are done. With a few buffers in turn it hardly ever
waits: by the time that it comes round, the step that read the first is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vmm import Device
from vmm.finishing import Finishing
from vmm.pinned import PinnedMemory

_NO_EVENT = 0  # the driver gives no event this handle


class StagingRing:
    """``count`` buffers of ``size`` bytes each in pinned host memory. ``waits`` counts how often one was not free."""

    def __init__(self, device: Device, size: int, count: int = 4) -> None:
        self.device = device
        self.waits = 0
        self._size, self._count, self._next = size, count, 0
        self._events = [_NO_EVENT] * count
        self.memory = PinnedMemory(device, size * count)

    @contextlib.contextmanager
    def buffer(self, stream: int) -> Iterator[tuple[int, int]]:
        """The number of a free buffer and its first byte in ``memory``, for copies that are queued on ``stream``.

        The buffer is free again when all that was queued on the stream by the end of the ``with`` is done.
        """
        number, driver = self._next, self.device.driver
        self._next = (number + 1) % self._count
        event = self._events[number]
        with self.device.current():
            if event and not self.device.finished(event):
                self.waits += 1
                with self.device.fault_told(once=True):
                    driver.event_synchronize(event)
            self._events[number] = _NO_EVENT
            try:
                yield number, number * self._size
            finally:
                with contextlib.ExitStack() as undo:
                    undo.callback(driver.stream_synchronize, stream)  # without an event nobody could tell
                    self._events[number] = self._record(event, stream)
                    undo.pop_all()

    def _record(self, event: int, stream: int) -> int:
        """The event of a buffer, which tells when the stream's work is done."""
        driver = self.device.driver
        return driver.event_record_again(event, stream) if event else driver.event_record(stream)

    def close(self) -> None:
        """Wait for the copies and free the buffers. Closing twice does nothing."""
        if not self.device.idle:
            with self.device.current():
                for event in filter(None, self._events):
                    with self.device.fault_told(once=True):
                        self.device.driver.event_synchronize(event)
                with Finishing() as rest:
                    for number, event in enumerate(self._events):
                        self._events[number] = _NO_EVENT
                        if event:
                            rest.run(self.device.driver.event_destroy, event)
                    rest.run(self.memory.close)
