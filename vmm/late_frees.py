"""LateFrees: blocks of a heap that were freed, and cannot come back yet.

Some wait for work of other streams than their own. Some were dropped by a finalizer, which may run in any thread, or in
the middle of the heap's own steps.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from .block import Block
from .errors import StateError, VmmError
from .fence import After, Fence
from .finishing import Finishing
from .growable import GrowableRange
from .uninterrupted import uninterrupted

Give = Callable[[Block, bool], None]


class LateFrees:
    """Of a heap on ``range`` whose allocated ``blocks`` are by offset; its ``give(block, settled)`` frees one at last.

    A block that waits for work is allocated no more; one that was dropped still is.
    """

    def __init__(self, range_: GrowableRange, blocks: dict[int, Block]) -> None:
        self._range, self._blocks = range_, blocks
        self._waiting: list[tuple[Fence, Block]] = []
        self.dropped: deque[Block] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting or self.dropped)

    @property
    def waiting(self) -> list[Block]:
        """Those whose work is not known to be done."""
        return [block for _fence, block in self._waiting]

    @uninterrupted
    def add(self, block: Block, after: After, give: Give) -> None:
        """Free ``block`` when the work ``after`` is done, or now if it is. Raises as ``Fence``."""
        with contextlib.ExitStack() as undo:
            fence = self._range.device.fence(after)
            undo.callback(fence.close)
            if fence.done:
                give(block, _is_settled(block))
                return
            undo.pop_all()
        self._waiting.append((fence, block))
        del self._blocks[block.offset]

    @uninterrupted
    def collect(self, give: Give, *, wait: bool = False) -> None:
        """Free what was dropped, and what waits for work that is done; with ``wait``, wait until it is.

        Raises DriverError for a fault in the work. What cannot be freed stays here.
        """
        self.collect_dropped(give)
        if wait:
            for fence, _block in self._waiting:
                fence.wait()
        with Finishing() as rest:
            for one in list(self._waiting):
                fence, block = one
                if wait or fence.done:
                    rest.run(self._come_back, block, give)
                    self._waiting.remove(one)
                    rest.run(fence.close)

    @uninterrupted
    def collect_dropped(self, give: Give) -> None:
        """Free what was dropped, but for what an array still views."""
        for _ in range(len(self.dropped)):
            block = self.dropped.popleft()
            try:
                if self._blocks.get(block.offset) is block:
                    self._range.check_unused(block.offset, block.offset + block.size, "free")
                    give(block, False)
            except StateError:
                self.dropped.append(block)
            except VmmError:
                self.dropped.append(block)
                raise

    def wait(self) -> bool:
        """Wait for the work of the first; whether there is one."""
        if self._waiting:
            self._waiting[0][0].wait()
        return bool(self._waiting)

    def forget(self) -> None:
        """Drop all: the memory is gone, and all work is done."""
        waiting, self._waiting = self._waiting, []
        self.dropped.clear()
        with Finishing() as rest:
            for fence, _block in waiting:
                rest.run(fence.close)

    def _come_back(self, block: Block, give: Give) -> None:
        self._blocks[block.offset] = block
        try:
            give(block, _is_settled(block))
        except VmmError:
            self._blocks.pop(block.offset, None)
            raise


def _is_settled(block: Block) -> bool:
    """Whether nobody uses a block whose other work is done: where it has a stream of its own, that still may."""
    return block.stream is None
