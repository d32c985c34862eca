"""Recorder: every driver call with its time, arguments, result and duration, and an exact count of each call.

It wraps any object with the driver's functions, so it sees the real driver and the host driver alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .sizes import format_size


@dataclass(frozen=True, slots=True)
class Event:
    """One driver call: ``time_ns`` is perf_counter_ns at its start, ``result`` the CUresult.

    A field that the call does not have is 0.
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
    """Where a call has its address, size and handle: the position of an argument, "out" for an output, or None.

    ``buffers`` says that other arguments may hold memory which a record must not keep alive.
    """

    address: int | str | None = None
    size: int | str | None = None
    handle: int | str | None = None
    unit: int = 1
    buffers: bool = False

    def kept(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with 0 for each that is none of the three."""
        wanted = (self.address, self.size, self.handle)
        return tuple(value if index in wanted else 0 for index, value in enumerate(args))

    def value(self, where: int | str | None, args: tuple[Any, ...], result: tuple[Any, ...]) -> int:
        """One of the three as an int; 0 for what was passed by name or not given back."""
        if isinstance(where, int):
            return int(args[where] or 0) if where < len(args) else 0
        return int(result[1] or 0) if where == "out" and len(result) > 1 else 0


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
    "cuMemcpyHtoD": _Shape(0, 2, buffers=True),
    "cuMemcpyHtoDAsync": _Shape(0, 2, buffers=True),
    "cuMemcpyDtoH": _Shape(1, 2, buffers=True),
    "cuMemcpyDtoHAsync": _Shape(1, 2, buffers=True),
    "cuMemcpyDtoD": _Shape(0, 2),
    "cuMemcpyDtoDAsync": _Shape(0, 2),
    "cuMemsetD8": _Shape(0, 2),
    "cuMemsetD8Async": _Shape(0, 2),
    "cuMemsetD16": _Shape(0, 2, unit=2),
    "cuMemsetD16Async": _Shape(0, 2, unit=2),
    "cuMemsetD32": _Shape(0, 2, unit=4),
    "cuMemsetD32Async": _Shape(0, 2, unit=4),
}
_NO_SHAPE = _Shape(buffers=True)


class Recorder:
    """Keeps the last ``capacity`` calls of the drivers that it wraps, in order, and counts all of them.

    One recorder may wrap several drivers and be used by several threads. Recording keeps no argument alive but
    addresses, sizes and handles.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 event, not {capacity}")
        self.capacity = capacity
        self._ring: list[Any] = [None] * capacity
        self._total = [0]
        self._counts: dict[str, int] = {}

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
            self._counts[call] = 0

    def _recorded(self, api: Any, call: str) -> Callable[..., Any]:
        """A function that makes ``call`` on ``api`` and keeps a record of it."""
        ring, total, counts, capacity = self._ring, self._total, self._counts, self.capacity
        counts.setdefault(call, 0)
        clock = time.perf_counter_ns
        shape = _SHAPES.get(call, _NO_SHAPE)
        kept = shape.kept if shape.buffers else None

        def recorded(*args: Any, **names: Any) -> Any:
            function = getattr(api, call)  # looked up each time: a driver may shut its calls
            start = clock()
            result = function(*args, **names)
            end = clock()
            if kept:
                args = kept(args)
            # No call stands between a read and its write, so that no other thread comes in between.
            index = total[0]
            total[0] = index + 1
            counts[call] += 1
            ring[index % capacity] = (start, call, args, result, end)
            return result

        return recorded


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


def _event(start: int, call: str, args: tuple[Any, ...], result: tuple[Any, ...], end: int) -> Event:
    """A record as an Event."""
    shape = _SHAPES.get(call, _NO_SHAPE)
    address, size, handle = (shape.value(where, args, result) for where in (shape.address, shape.size, shape.handle))
    return Event(start, call, address, size * shape.unit, handle, int(result[0]), end - start)
