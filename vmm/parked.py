"""Parked: blocks that were freed after other work than that of their own stream, until that work is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .block import Block
from .device import Device
from .fence import After, Fence
from .finishing import Finishing


class Parked:
    """They belong to nobody, and hold their memory for the work."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._waiting: list[tuple[Fence, Block]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def blocks(self) -> list[Block]:
        """Those whose work is not known to be done."""
        return [block for _fence, block in self._waiting]

    def add(self, block: Block, after: After) -> bool:
        """Keep ``block`` until the work ``after`` is done; False where it is, and there is nothing to wait for.

        Raises as ``Fence``.
        """
        with contextlib.ExitStack() as undo:
            fence = self._device.fence(after)
            undo.callback(fence.close)
            if fence.done:
                return False
            undo.pop_all()
        self._waiting.append((fence, block))
        return True

    def collect(self, free: Callable[[Block], None], *, wait: bool = False) -> None:
        """``free`` those whose work is done; with ``wait``, all, when it is. Raises DriverError for a fault in it."""
        if not self._waiting:
            return
        if wait:
            for fence, _block in self._waiting:
                fence.wait()
        with Finishing() as rest:
            for one in list(self._waiting):
                fence, block = one
                if wait or fence.done:
                    rest.run(free, block)  # where it is refused, it waits on
                    self._waiting.remove(one)
                    rest.run(fence.close)

    def wait(self) -> bool:
        """Wait for the work of the first; whether there is one."""
        if self._waiting:
            self._waiting[0][0].wait()
        return bool(self._waiting)

    def forget(self) -> None:
        """Drop all: the memory is gone, and all work is done."""
        waiting, self._waiting = self._waiting, []
        with Finishing() as rest:
            for fence, _block in waiting:
                rest.run(fence.close)
