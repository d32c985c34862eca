"""LiveTokens: how many tokens a replay's pool has in memory after each event, one that sequences share counted once.

The scheduler knows how many tokens each sequence has, which decodes without asking; the pool knows which of them are
shared. Both change while the pool works, but not in the same instruction: a prompt's known prefix is in its table
before the scheduler hears of it, and a sequence's table ends before the scheduler has forgotten it. So what is coming
and what is leaving is followed here.
"""

from __future__ import annotations

from typing import Any

from ..policies.paged_pool import PagedPool
from ..policies.tables import BareTables
from ..serving.scheduler import Scheduler
from .pool_taps import PoolTaps
from .taps import Method


class LiveTokens:
    """Called, it says how many tokens are in the memory of ``policy`` now, whose sequences ``scheduler`` runs."""

    def __init__(self, scheduler: Scheduler, policy: PagedPool) -> None:
        self._scheduler, self._policy = scheduler, policy
        self._recalling = False
        self._coming = 0  # tokens of a known prefix that has its table, and of which the scheduler does not know

    def __call__(self) -> int:
        scheduler, policy = self._scheduler, self._policy
        tokens = scheduler.held_tokens + self._coming
        if scheduler.leaving and self._tables() == len(scheduler.running):
            tokens -= scheduler.leaving
            policy.count_shared()
        return tokens - policy.shared

    def watch(self, taps: PoolTaps) -> None:
        """Follow what comes, until ``taps`` are closed."""
        if self._policy.prompts is None:
            return  # nothing is known of a prompt
        taps.tap(self._policy.tables, "recall", self._recall)
        taps.tap(self._policy.pool.table, "put", self._put)

    def _tables(self) -> int:
        """How many sequences have a block table: the one that leaves has none any more when its end is told."""
        tables = self._policy.tables
        return len(tables) if isinstance(tables, BareTables) else len(self._policy.pool.open_sequences)

    def _recall(self, inner: Method) -> Method:
        def recall(request: int) -> Any:
            self._recalling = True
            try:
                return inner(request)
            finally:
                self._recalling, self._coming = False, 0

        return recall

    def _put(self, inner: Method) -> Method:
        size = self._policy.pool.layout.block_size

        def put(row: int, column: int, blocks: Any) -> None:
            if self._recalling:
                self._coming = len(blocks) * size
                self._policy.count_shared()
            inner(row, column, blocks)

        return put
