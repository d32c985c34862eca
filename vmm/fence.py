"""Fence: work that must be done before memory may be taken away, as a question and a wait.

cuMemUnmap does not wait for the GPU. A fence holds events that complete with the work queued so far, so that nobody
has to wait: memory goes when a later look finds the events complete.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .errors import DriverMissingError
from .finishing import Finishing
from .streams import event_handle, stream_handle
from .uninterrupted import uninterrupted, whole

if TYPE_CHECKING:
    from .device import Device

After = Any
"""A stream or an event, or a list or tuple of them: an int is the handle of a stream; CUstream and CUevent of
cuda.bindings; streams and events of cuda.core, CuPy and PyTorch. None is all work of the device."""


class Fence:
    """The work of ``device`` that was queued when the fence was made: all of it, or what ``after`` names.

    Raises TypeError for what is neither a stream nor an event, DriverError where the driver knows no such stream. An
    event object is kept alive; an event that its owner records again makes the fence wait for that too.
    A driver before CUDA 12.5 has no event of all streams: then the fence of a whole device opens with the next
    ``Device.synchronize``.
    """

    __slots__ = ("_closed", "_device", "_foreign", "_guard", "_own", "_turn", "_users")

    @whole
    def __init__(self, device: Device, after: After = None) -> None:
        self._device = device
        self._guard = threading.RLock()  # never held while anybody waits
        self._own: list[int] = []
        self._foreign: list[Any] = []
        self._turn: int | None = None
        self._users = 0  # who ask or wait now: an event is not destroyed under them
        self._closed = False
        if device.idle:
            return
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            with device.current(), device.fault_told(once=True):
                self._gather(after)
            undo.pop_all()

    def _gather(self, after: After) -> None:
        if after is None:
            try:
                self._own.append(self._device.record_all())
            except DriverMissingError:
                self._turn = self._device.next_turn()
        for one in _each(after):
            event, handle = _handle_of(one)
            if event:
                self._foreign.append((handle, one))
            else:
                self._own.append(self._device.driver.event_record(handle))

    @property
    def done(self) -> bool:
        """Whether the work is done. Does not wait. In a context that was lost to a fault nothing runs any more."""
        if self._device.idle:
            return True
        with self._using() as events:
            return self._turned and all(self._device.finished(event) for event in events)

    def wait(self) -> None:
        """Wait for the work. Raises DriverError for a fault in it that was raised to nobody yet."""
        if self._device.idle:
            return
        with self._using() as events:
            if not self._turned:
                self._device.synchronize()
            for event in events:
                with self._device.fault_told(once=True):
                    self._device.driver.event_synchronize(event)

    @uninterrupted
    def close(self) -> None:
        """Destroy the events that the fence made; who waits for them meanwhile does it. Closing twice does nothing."""
        if self._device.idle:
            self._own = []  # the context has gone, and its events with it; after a fork they are the parent's
        with self._guard:
            self._closed = True
            leaving = self._leaving()
        self._destroy(leaving)

    @property
    def _turned(self) -> bool:
        """Whether the device was waited for since, where no event tells."""
        turn = self._turn
        return turn is None or self._closed or turn < self._device.waited

    @contextlib.contextmanager
    def _using(self) -> Iterator[list[int]]:
        """The events, which stay until the end of the ``with``."""
        with self._guard:
            self._users += 1
            events = [] if self._closed else [*self._own, *(handle for handle, _owner in self._foreign)]
        try:
            yield events
        finally:
            with self._guard:
                self._users -= 1
                leaving = self._leaving()
            self._destroy(leaving)

    def _leaving(self) -> list[int]:
        """The events to destroy, once nobody uses them. The guard is held."""
        if self._users or not self._closed:
            return []
        leaving, self._own, self._foreign = self._own, [], []
        return leaving

    def _destroy(self, events: list[int]) -> None:
        with Finishing() as rest:
            for event in events:
                rest.run(self._device.driver.event_destroy, event)


def handles_of(after: After) -> list[tuple[bool, int]]:
    """What ``after`` names: whether it is an event (else it is a stream), and its handle."""
    return [_handle_of(one) for one in _each(after)]


def _each(after: After) -> list[Any]:
    if after is None:
        return []
    return list(after) if isinstance(after, list | tuple) else [after]


def _handle_of(one: Any) -> tuple[bool, int]:
    """Whether something is an event (else it is a stream), and its handle."""
    event = event_handle(one)
    if event is not None:
        return True, event
    try:
        return False, stream_handle(one)
    except TypeError as error:
        raise TypeError(f"after={one!r} is neither a stream nor an event: {error}") from None
