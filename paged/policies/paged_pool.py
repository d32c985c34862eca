"""What both paged policies share: sequences hold blocks of a KVPool, and ask for one more when the last is full."""

from __future__ import annotations

from vmm import Device, Share, Shortage

from ..layout import KVLayout
from ..pool import KVPool
from ..serving.prompt_tokens import PromptTokens
from ..shortage.requests import by_request
from .policy import Policy, Usage
from .tables import BareTables, SequenceTables, Tables


class PagedPool(Policy):
    """Blocks of ``layout`` in a KVPool of ``budget`` bytes; where its rows come from is for the kind of policy.

    With ``prompts`` the pool has a prefix cache, and sequences share the blocks of prompts that begin alike.
    """

    def __init__(
        self,
        device: Device,
        budget: int,
        layout: KVLayout,
        *,
        prealloc: bool,
        prompts: PromptTokens | None = None,
        moves: bool = False,
        share: Share | None = None,
    ) -> None:
        self.budget = budget
        self.copied = 0
        self.share = share
        self.prompts = prompts
        self.pool = KVPool(
            device, layout, budget=budget, prealloc=prealloc, prefix_cache=prompts is not None, supply=share
        )
        plain = prompts is None and not moves
        self.tables: Tables = BareTables(self.pool) if plain else SequenceTables(self.pool, prompts)

    def alone(self) -> bool:
        """Whether no other model holds memory of the budget."""
        share = self.share
        if share is None:
            return True
        assert share.budget is not None and share.available is not None, "models share a budget"
        return share.budget - share.available - share.in_use < share.chunk_size

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.pool.layout.block_size)

    def _rows_in_use(self) -> int:
        """Committed rows of which some block is held."""
        return self.pool.block_pool.committed.count - self.pool.empty_rows

    def fits(self, tokens: int) -> bool:
        """Whether the budget has so many blocks."""
        return self._blocks(tokens) <= self.pool.blocks_total

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        """Whether so many blocks are to be had."""
        if not self.tables and not self.share:
            return self.fits(tokens)
        return self.pool.can_allocate(self._with_spare(tokens, spare))

    def shortage(self, tokens: int, spare: int = 0) -> Shortage | None:
        """What the pool says, and who has its blocks."""
        if self.can_admit(tokens, spare):
            return None
        found = self.pool.shortage(self._with_spare(tokens, spare))
        return None if found is None else by_request(found, self.tables.held(), self.pool)

    def _with_spare(self, tokens: int, spare: int) -> int:
        return self._blocks(tokens) + -(-spare // self.pool.layout.block_bytes)

    def prompt_in_use(self, request: int) -> int:
        """Tokens of whole blocks."""
        if self.prompts is None or self.pool.prefix is None:
            return 0
        return self.pool.prefix.cache.in_use(self.prompts(request), salt=0) * self.pool.layout.block_size

    def recall(self, request: int) -> int:
        """Share the blocks of the prompt's known prefix."""
        known = self.tables.recall(request)
        self.count_shared()
        return known

    def admit(self, request: int, tokens: int, prompt: int) -> int:
        """Take blocks for ``tokens`` tokens; the others come as they are filled."""
        if len(self.tables) < 2 and not self.pool.can_allocate(self._blocks(prompt)):
            self.pool.trim()  # nothing else runs: rows kept at odd places go back
        return self.grow(request, tokens)

    def can_grow(self, request: int, tokens: int) -> bool:
        """Whether the blocks that are missing are to be had."""
        return self.pool.can_allocate(self._blocks(tokens) - self.tables.blocks(request))

    def grow(self, request: int, tokens: int) -> int:
        """Take the blocks that are missing."""
        blocks = self.tables.extend(request, tokens)
        self.count_shared()
        return blocks * self.pool.layout.block_size

    def finish(self, request: int) -> None:
        """Give the sequence's blocks back."""
        self.tables.free(request)
        self.count_shared()

    def count_shared(self) -> None:
        """Count the holds of sequences beyond the first; the cache's own, on what others hold too, is none."""
        if self.pool.prefix:
            cache = self.pool.prefix.cache
            self.shared = (self.pool.block_pool.shared - len(cache) + cache.idle_count) * self.pool.layout.block_size

    def settle(self) -> bool:
        """Rows that no work uses any more are unmapped."""
        return bool(self.pool.retiring) and self.pool.collect(wait=True) > 0

    def usage(self) -> Usage:
        """Blocks are held, or only the prefix cache's; what both leave of their rows is "row", other rows "unused"."""
        pool, layout = self.pool, self.pool.layout
        taken, prefix = pool.block_pool.used * layout.block_bytes, pool.blocks_idle * layout.block_bytes
        row = self._rows_in_use() * layout.row_bytes - taken
        unused = pool.empty_rows * layout.row_bytes
        held = taken - prefix
        return Usage(pool.reserved, pool.committed, held, row, prefix=prefix, unused=unused, retiring=pool.retiring)

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()
