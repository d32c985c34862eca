"""IdleBlocks: the cached blocks that nobody else holds, in the order in which they were last used. Integers only.

A table's blocks come to rest together and are one entry of a queue. A block that is used again leaves by its turn being
struck off; its place in the entry is skipped when the queue gets there. So coming and going are steps of NumPy over a
whole table, and nothing is searched for.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ..blocks.block_ids import Ids


class IdleBlocks:
    """Some of ``blocks`` block ids, the least recently used first; ``turns`` int64 [blocks] is 0 for all others."""

    def __init__(self, blocks: int) -> None:
        self.turns = np.zeros(blocks, np.int64)
        self.count = 0
        self._queue: deque[tuple[int, Ids]] = deque()  # the turn in which blocks came, and the blocks
        self._queued = 0  # blocks in all entries, those to be skipped too
        self._last = 0

    def __len__(self) -> int:
        return self.count

    def listed(self) -> Ids:
        """All of them, int64 [n], the least recently used first."""
        entries = [blocks[self.turns[blocks] == turn] for turn, blocks in self._queue]
        return np.concatenate(entries) if entries else np.zeros(0, np.int64)

    def add(self, blocks: Ids) -> None:
        """Blocks come to rest, the first of them to go first."""
        if not len(blocks):
            return
        self._last += 1
        self.turns[blocks] = self._last
        self._queue.append((self._last, blocks))
        self._queued += len(blocks)
        self.count += len(blocks)
        if self._queued > 2 * self.count + 1024:
            self._drop_skipped()

    def discard(self, blocks: Ids) -> int:
        """Blocks, each named once, are idle no longer, if they were; how many were."""
        were = int(np.count_nonzero(self.turns[blocks]))
        if were:
            self.turns[blocks] = 0
            self.count -= were
        return were

    def take(self, count: int) -> Ids:
        """The ``count`` least recently used; they are idle no longer."""
        found: list[Ids] = []
        missing = count
        while missing:
            turn, blocks = self._queue.popleft()
            self._queued -= len(blocks)
            blocks = blocks[self.turns[blocks] == turn]
            if len(blocks) > missing:
                self._queue.appendleft((turn, blocks[missing:]))
                self._queued += len(blocks) - missing
                blocks = blocks[:missing]
            self.turns[blocks] = 0
            missing -= len(blocks)
            found.append(blocks)
        self.count -= count
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def rename(self, sources: Ids, targets: Ids) -> None:
        """Blocks have moved: ``targets`` stand where ``sources`` did."""
        self._drop_skipped()  # a target may stand where it was once idle
        self.turns[targets], self.turns[sources] = self.turns[sources], 0
        names = np.arange(len(self.turns))
        names[sources] = targets
        self._queue = deque((turn, names[blocks]) for turn, blocks in self._queue)

    def clear(self) -> None:
        """None is idle."""
        self.turns[:] = 0
        self._queue.clear()
        self.count = self._queued = 0

    def _drop_skipped(self) -> None:
        entries = ((turn, blocks[self.turns[blocks] == turn]) for turn, blocks in self._queue)
        self._queue = deque(entry for entry in entries if len(entry[1]))
        self._queued = self.count
