"""Event: one recorded driver call, and how it is made from what was kept of it.

While calls are recorded nothing is decoded: a record is the start, the duration, the name, the status and, of a call
that has a shape here, three arguments and perhaps the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .sizes import format_size

Record = tuple[Any, ...]


class Event(NamedTuple):
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
class Shape:
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
        """Where to find the three in the arguments; what is missing there is what is kept anyway."""
        wanted = (self.address, self.size, self.handle)
        first = next((where for where in wanted if isinstance(where, int)), 0)
        address, size, handle = (where if isinstance(where, int) else first for where in wanted)
        return address, size, handle


SHAPES = {
    "cuMemAddressReserve": Shape("out", 0),
    "cuMemAddressFree": Shape(0, 1),
    "cuMemCreate": Shape(None, 0, "out"),
    "cuMemRelease": Shape(handle=0),
    "cuMemMap": Shape(0, 1, 3),
    "cuMemUnmap": Shape(0, 1),
    "cuMemSetAccess": Shape(0, 1),
    "cuMemGetAccess": Shape(1),
    "cuMemRetainAllocationHandle": Shape(0, handle="out"),
    "cuMemAlloc": Shape("out", 0),
    "cuMemFree": Shape(0),
    "cuMemHostAlloc": Shape("out", 0),
    "cuMemAllocHost": Shape("out", 0),
    "cuMemFreeHost": Shape(0),
    "cuMemGetAddressRange": Shape(0),
    "cuPointerGetAttribute": Shape(1),
    "cuPointerGetAttributes": Shape(2),
    "cuMemcpy": Shape(0, 2),
    "cuMemcpyAsync": Shape(0, 2),
    "cuMemcpyHtoD": Shape(0, 2),
    "cuMemcpyHtoDAsync": Shape(0, 2),
    "cuMemcpyDtoH": Shape(1, 2),
    "cuMemcpyDtoHAsync": Shape(1, 2),
    "cuMemcpyDtoD": Shape(0, 2),
    "cuMemcpyDtoDAsync": Shape(0, 2),
    "cuMemsetD8": Shape(0, 2),
    "cuMemsetD8Async": Shape(0, 2),
    "cuMemsetD16": Shape(0, 2, unit=2),
    "cuMemsetD16Async": Shape(0, 2, unit=2),
    "cuMemsetD32": Shape(0, 2, unit=4),
    "cuMemsetD32Async": Shape(0, 2, unit=4),
}
NO_SHAPE = Shape()


class KeptCalls(Sequence[Event]):
    """Calls as they were kept, in order. Most are never looked at: they become events all at once, the first time."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records: list[Record] | None = list(records)
        self._events: tuple[Event, ...] = ()

    def __len__(self) -> int:
        return len(self._events if self._records is None else self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._decoded())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._decoded() == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # it equals tuples and lists

    def _decoded(self) -> tuple[Event, ...]:
        if self._records is not None:
            self._events, self._records = tuple(_event(*record) for record in self._records), None
        return self._events


def _event(start: int, took: int, call: str, status: Any, *found: Any) -> Event:
    """A record as an Event: three arguments and an output, of which what the call does not have is dropped."""
    places, unit = _PLACES.get(call, _NO_PLACES)
    if not found:
        return Event(start, call, 0, 0, 0, int(status), took)
    address, size, handle = (int(found[place] or 0) if place is not None else 0 for place in places)
    return Event(start, call, address, size * unit, handle, int(status), took)


def _places(shape: Shape) -> tuple[tuple[int | None, ...], int]:
    """Where in a record's last part address, size and handle are: the output is its end."""
    found = enumerate((shape.address, shape.size, shape.handle))
    return tuple(-1 if where == "out" else None if where is None else at for at, where in found), shape.unit


_PLACES = {call: _places(shape) for call, shape in SHAPES.items()}
_NO_PLACES = _places(NO_SHAPE)
