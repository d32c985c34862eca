"""Settling: when the memory that arenas have free is used by no work any more. Nothing is asked before memory lacks."""

from __future__ import annotations

from collections.abc import Iterable

from .arena import Arena
from .device import Device
from .fence import After, Fence
from .finishing import Finishing

_MOST_FENCES = 4


class Settling:
    """Fences over the clocks of arenas: behind an open one, what was freed up to a clock is settled."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._watched: list[tuple[dict[Arena, int], Fence]] = []

    def settle(self, arenas: Iterable[Arena], arena: Arena, after: After) -> bool:
        """See whose freed memory is used by no work any more, and watch the work on what was freed since.

        Whether anything is known now that was not. A stream's handle serves only in a call that names it, for ``arena``
        and its like: later the stream may be destroyed. The memory of others is watched with all work of the device.
        """
        if len(self._watched) < _MOST_FENCES:
            mine: dict[Arena, int] = {}
            others: dict[Arena, int] = {}
            for one in arenas:
                known = max((clocks.get(one, 0) for clocks, _ in self._watched), default=0)
                if one.clock > max(known, one.settled) and one.largest >= one.chunk_size:
                    (mine if one.key == arena.key else others)[one] = one.clock
            if arena.stream is None:
                mine, others = {**mine, **others}, {}
            self._watch(mine, after)
            self._watch(others, None)
        return self._look()

    def forget(self) -> None:
        """Drop everything: all work is done."""
        watched, self._watched = self._watched, []
        with Finishing() as rest:
            for _clocks, fence in watched:
                rest.run(fence.close)

    def _watch(self, clocks: dict[Arena, int], after: After) -> None:
        if clocks:
            self._watched.append((clocks, self._device.fence(after)))

    def _look(self) -> bool:
        """Settle what lies behind open fences; whether there was any."""
        found = False
        with Finishing() as rest:
            for one in list(self._watched):
                clocks, fence = one
                if fence.done:
                    for arena, clock in clocks.items():
                        arena.settled = max(arena.settled, clock)
                    self._watched.remove(one)
                    rest.run(fence.close)
                    found = True
        return found
