"""What both paged policies share: sequences hold blocks of a KVPool, and ask for one more when the last is full."""

from __future__ import annotations

from vmm import Device

from ..layout import KVLayout
from ..pool import KVPool
from .policy import Usage


class PagedPool:
    """Blocks of ``layout`` in a KVPool of ``budget`` bytes; where its rows come from is for the kind of policy."""

    def __init__(self, device: Device, budget: int, layout: KVLayout, *, prealloc: bool) -> None:
        self.budget = budget
        self.copied = 0
        self.pool = KVPool(device, layout, budget=budget, prealloc=prealloc)
        self.tables: dict[int, list[int]] = {}

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.pool.layout.block_size)

    def _rows_in_use(self) -> int:
        """Committed rows of which some block is held."""
        return self.pool.block_pool.committed.count - self.pool.empty_rows

    def fits(self, tokens: int) -> bool:
        """Whether the budget has so many blocks."""
        return self._blocks(tokens) <= self.pool.blocks_total

    def can_admit(self, tokens: int) -> bool:
        """Whether so many blocks are to be had; with nothing running, rows kept at odd places may go back first."""
        if not self.tables:
            self.pool.trim()
        return self.pool.can_allocate(self._blocks(tokens))

    def admit(self, request: int, tokens: int, prompt: int) -> int:  # noqa: ARG002 - blocks come as they are filled
        """Take blocks for ``tokens`` tokens."""
        self.tables[request] = self.pool.allocate(self._blocks(tokens))
        return len(self.tables[request]) * self.pool.layout.block_size

    def can_grow(self, request: int, tokens: int) -> bool:
        """Whether the blocks that are missing are to be had."""
        return self.pool.can_allocate(self._blocks(tokens) - len(self.tables[request]))

    def grow(self, request: int, tokens: int) -> int:
        """Take the blocks that are missing."""
        table = self.tables[request]
        table += self.pool.allocate(self._blocks(tokens) - len(table))
        return len(table) * self.pool.layout.block_size

    def finish(self, request: int) -> None:
        """Give the sequence's blocks back."""
        self.pool.free(self.tables.pop(request))

    def settle(self) -> bool:
        """Rows that no work uses any more are unmapped."""
        return bool(self.pool.retiring) and self.pool.collect(wait=True) > 0

    def usage(self) -> Usage:
        """Blocks are held; what they leave of their rows is "row", rows without a block are "unused"."""
        pool, layout = self.pool, self.pool.layout
        held = pool.block_pool.used * layout.block_bytes
        row = self._rows_in_use() * layout.row_bytes - held
        unused = pool.empty_rows * layout.row_bytes
        return Usage(pool.reserved, pool.committed, held, row, unused=unused, retiring=pool.retiring)

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()
