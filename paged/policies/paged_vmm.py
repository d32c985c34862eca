"""paged-vmm: blocks on a growable range. Rows are committed when blocks need them, and empty rows go back."""

from __future__ import annotations

from vmm import Device, Share

from ..layout import KVLayout
from ..serving.prompt_tokens import PromptTokens
from .paged_pool import PagedPool


class PagedVmm(PagedPool):
    """A pool that keeps ``reserve`` times the rows in use mapped beyond them, counted whenever a sequence ends.

    With ``compact`` live blocks move together: whenever a sequence has ended and the rows in use have more than
    ``compact`` times the bytes of the blocks held in them, the emptiest rows are emptied into the fullest, at most
    ``compact_blocks`` blocks before one step, and go back.
    """

    def __init__(
        self,
        device: Device,
        budget: int,
        layout: KVLayout,
        *,
        reserve: float = 0.0,
        compact: float | None = None,
        compact_blocks: int = 8,
        prompts: PromptTokens | None = None,
        share: Share | None = None,
    ) -> None:
        moves = compact is not None
        super().__init__(device, budget, layout, prealloc=False, prompts=prompts, moves=moves, share=share)
        self.reserve, self.compact, self.compact_blocks = reserve, compact, compact_blocks

    def finish(self, request: int) -> None:
        """Give the sequence's blocks back, and the rows that came empty beyond the reserve."""
        self.pool.reserve_rows = int(self.reserve * self._rows_in_use())
        super().finish(request)

    def tidy(self) -> None:
        """Compact, if rows are sparse."""
        if self.compact is None:
            return
        layout = self.pool.layout
        if self._rows_in_use() * layout.row_bytes > self.compact * self.pool.block_pool.used * layout.block_bytes:
            done = self.pool.compact(most=self.compact_blocks)
            self.copied += done.copied
            self.moved += done.moved
