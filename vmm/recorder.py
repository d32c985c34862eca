"""Recorder: every driver call with its time, arguments, result and duration, and an exact count of each call.

It wraps any object with the driver's functions, so it sees the real driver and the host driver alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from .sizes import format_size


@dataclass(frozen=True, slots=True)
class Event:
    """One driver call: ``time_ns`` is perf_counter_ns at its start, ``result`` the CUresult.

    ``address``, ``size`` in bytes and ``handle`` are what the call was given or gave; a field that it does not have is
    0. ``duration_ns`` is how long it took.
    """

    time_ns: int
    call: str
    address: int
    size: int
    handle: int
    result: int
    duration_ns: int

    def __str__(self) -> str:
        parts = [self.call]
        if self.address:
            parts.append(f"address {self.address:#x}")
        if self.size:
            parts.append(f"size {format_size(self.size)}")
        if self.handle:
            parts.append(f"handle {self.handle:#x}")
        return f"{' '.join(parts)} -> {self.result} in {self.duration_ns / 1e3:.1f} us"


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where a call has its address, size and handle: the position of an argument, "out" for an output, or None."""

    address: int | str | None = None
    size: int | str | None = None
    handle: int | str | None = None
    unit: int = 1

    @property
    def has_output(self) -> bool:
        """Whether one of the three is an output."""
        return "out" in (self.address, self.size, self.handle)

    def positions(self) -> tuple[int, int, int]:
        """Where to find the three in the arguments followed by the result; what is missing is what is kept anyway."""
        wanted = [-1 if where == "out" else where for where in (self.address, self.size, self.handle)]
        first = next((where for where in wanted if isinstance(where, int)), 0)
        address, size, handle = (where if isinstance(where, int) else first for where in wanted)
        return address, size, handle


_SHAPES = {
    "cuMemAddressReserve": _Shape("out", 0),
    "cuMemAddressFree": _Shape(0, 1),
    "cuMemCreate": _Shape(None, 0, "out"),
    "cuMemRelease": _Shape(handle=0),
    "cuMemMap": _Shape(0, 1, 3),
    "cuMemUnmap": _Shape(0, 1),
    "cuMemSetAccess": _Shape(0, 1),
    "cuMemGetAccess": _Shape(1),
    "cuMemRetainAllocationHandle": _Shape(0, handle="out"),
    "cuMemAlloc": _Shape("out", 0),
    "cuMemFree": _Shape(0),
    "cuMemHostAlloc": _Shape("out", 0),
    "cuMemAllocHost": _Shape("out", 0),
    "cuMemFreeHost": _Shape(0),
    "cuMemGetAddressRange": _Shape(0),
    "cuPointerGetAttribute": _Shape(1),
    "cuPointerGetAttributes": _Shape(2),
    "cuMemcpy": _Shape(0, 2),
    "cuMemcpyAsync": _Shape(0, 2),
    "cuMemcpyHtoD": _Shape(0, 2),
    "cuMemcpyHtoDAsync": _Shape(0, 2),
    "cuMemcpyDtoH": _Shape(1, 2),
    "cuMemcpyDtoHAsync": _Shape(1, 2),
    "cuMemcpyDtoD": _Shape(0, 2),
    "cuMemcpyDtoDAsync": _Shape(0, 2),
    "cuMemsetD8": _Shape(0, 2),
    "cuMemsetD8Async": _Shape(0, 2),
    "cuMemsetD16": _Shape(0, 2, unit=2),
    "cuMemsetD16Async": _Shape(0, 2, unit=2),
    "cuMemsetD32": _Shape(0, 2, unit=4),
    "cuMemsetD32Async": _Shape(0, 2, unit=4),
}
_NO_SHAPE = _Shape()


class Recorder:
    """Keeps the last ``capacity`` calls of the drivers that it wraps, in order, and counts all of them.

    One recorder may wrap several drivers and be used by several threads. Recording keeps no argument alive but
    addresses, sizes and handles. Raises ValueError for a capacity below 1.

        >>> import vmm
        >>> recorder = vmm.Recorder()
        >>> device = vmm.Device(driver=vmm.HostDriver(), recorder=recorder)
        >>> with vmm.GrowableRange(device, reserve="1 GiB") as memory:
        ...     memory.grow("6 MiB")  # a create and a map a chunk, one set of access for the run
        ...     counts = recorder.counts()
        >>> counts["cuMemAddressReserve"], counts["cuMemCreate"], counts["cuMemMap"], counts["cuMemSetAccess"]
        (1, 3, 3, 1)
        >>> device.close()
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 event, not {capacity}")
        self.capacity = capacity
        self._ring: list[Any] = [None] * capacity
        self._total = [0]
        self._counts: dict[str, int] = {}
        self._durations: dict[str, int] = {}

    def wrap(self, api: Any) -> Any:
        """An object with everything that ``api`` has, whose driver calls are recorded here."""
        return _Recorded(api, self)

    @property
    def dropped(self) -> int:
        """How many of the oldest events had to go."""
        return max(0, self._total[0] - self.capacity)

    def counts(self) -> dict[str, int]:
        """How often each call was made, dropped events included."""
        return {call: n for call, n in self._counts.items() if n}

    def durations(self) -> dict[str, int]:
        """Nanoseconds spent in each call, dropped events included."""
        return {call: ns for call, ns in self._durations.items() if ns}

    def events(self) -> list[Event]:
        """The calls that are kept, the oldest first."""
        total = self._total[0]
        first = max(0, total - self.capacity)
        return [_event(*self._ring[index % self.capacity]) for index in range(first, total)]

    def clear(self) -> None:
        """Forget everything."""
        self._ring[:] = [None] * self.capacity
        self._total[0] = 0
        for call in self._counts:
            self._counts[call] = self._durations[call] = 0

    def _recorded(self, api: Any, call: str) -> Callable[..., Any]:
        """A function that makes ``call`` on ``api`` and keeps a record of it."""
        ring, total, counts, capacity = self._ring, self._total, self._counts, self.capacity
        durations = self._durations
        counts.setdefault(call, 0)
        durations.setdefault(call, 0)
        clock = time.perf_counter_ns
        shape = _SHAPES.get(call, _NO_SHAPE)
        pick = itemgetter(*shape.positions()) if shape is not _NO_SHAPE else _nothing
        has_output = shape.has_output

        def recorded(*args: Any, **names: Any) -> Any:
            function = getattr(api, call)  # looked up each time: a driver may shut its calls
            start = clock()
            result = function(*args, **names)
            end = clock()
            try:
                address, size, handle = pick(args + result if has_output else args)
            except IndexError:  # passed by name
                address = size = handle = 0
            # No call stands between a read and its write, so that no other thread comes in between. A record holds
            # only numbers and text where it can, which the garbage collector does not have to look at again.
            status = result[0]
            index = total[0]
            total[0] = index + 1
            counts[call] += 1
            durations[call] += end - start
            ring[index % capacity] = (start, end, call, status if status else 0, address, size, handle)
            return result

        return recorded


def _nothing(_args: tuple[Any, ...]) -> tuple[int, int, int]:
    """What is kept of the arguments of a call without a shape."""
    return 0, 0, 0


class _Recorded:
    """``api`` with its calls recorded; every other attribute is its own."""

    def __init__(self, api: Any, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        if name.startswith("cu") and callable(found):
            found = self._recorder._recorded(self._api, name)
            setattr(self, name, found)
        return found


def _event(start: int, end: int, call: str, status: Any, *found: Any) -> Event:
    """A record as an Event; what was picked for a field that the call does not have is dropped."""
    shape = _SHAPES.get(call, _NO_SHAPE)
    wanted = (shape.address, shape.size, shape.handle)
    address, size, handle = (0 if where is None else int(v or 0) for where, v in zip(wanted, found, strict=True))
    return Event(start, call, address, size * shape.unit, handle, int(status), end - start)
