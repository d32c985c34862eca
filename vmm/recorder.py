"""Recorder: every driver call with its time, arguments, result and duration, and an exact count of each call.

It wraps any object with the driver's functions, so it sees the real driver and the host driver alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .call_events import NO_SHAPE, SHAPES, Event, KeptCalls, Record


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
        self._ring: deque[Record] = deque(maxlen=capacity)
        self._tallies: dict[str, list[int]] = {}  # call -> how often, and nanoseconds

    def wrap(self, api: Any) -> Any:
        """An object with everything that ``api`` has, whose driver calls are recorded here."""
        return _Recorded(api, self)

    @property
    def dropped(self) -> int:
        """How many of the oldest events had to go."""
        return max(0, sum(tally[0] for tally in self._tallies.values()) - len(self._ring))

    def counts(self) -> dict[str, int]:
        """How often each call was made, dropped events included."""
        return {call: n for call, (n, _ns) in self._tallies.items() if n}

    def durations(self) -> dict[str, int]:
        """Nanoseconds spent in each call, dropped events included."""
        return {call: ns for call, (_n, ns) in self._tallies.items() if ns}

    def events(self) -> list[Event]:
        """The calls that are kept, the oldest first."""
        return list(self.kept())

    def kept(self, since: int = 0) -> KeptCalls:
        """As ``events``, from ``since`` (perf_counter_ns) on; made into events when somebody looks at them."""
        return KeptCalls(record for record in self._ring.copy() if record[0] >= since)

    def clear(self) -> None:
        """Forget everything."""
        self._ring.clear()
        for tally in self._tallies.values():
            tally[:] = 0, 0

    def _recorded(self, api: Any, call: str) -> Callable[..., Any]:
        """A function that makes ``call`` on ``api`` and keeps a record of it.

        It runs at every call, so it decodes nothing. No call stands between a read and its write, so that no other
        thread comes in between. A record holds only numbers and text where it can, which the garbage collector does not
        have to look at again.
        """
        keep, tally, clock = self._ring.append, self._tallies.setdefault(call, [0, 0]), time.perf_counter_ns
        shape = SHAPES.get(call, NO_SHAPE)
        address, size, handle = shape.positions()
        kept = shape is not NO_SHAPE
        has_output = shape.has_output

        def recorded(*args: Any, **names: Any) -> Any:
            function = getattr(api, call)  # looked up each time: a driver may shut its calls
            start = clock()
            result = function(*args, **names)
            took = clock() - start
            tally[0] += 1
            tally[1] += took
            status = result[0] or 0
            try:
                if not kept:
                    keep((start, took, call, status))
                elif has_output:
                    keep((start, took, call, status, args[address], args[size], args[handle], result[1]))
                else:
                    keep((start, took, call, status, args[address], args[size], args[handle]))
            except IndexError:  # passed by name
                keep((start, took, call, status))
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
