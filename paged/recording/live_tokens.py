"""LiveTokens: how many tokens a replay's pool has in memory after each event, one that sequences share counted once.

The scheduler knows how many tokens each sequence has, which decodes without asking. Bare lists of blocks share none,
and have ended by the time that anything is told of it, so that is all. What sequences of the pool share the pool knows,
and both change while it works, but not in the same instruction: a prompt's known prefix is in its table before the
scheduler hears of it, and a table ends after the scheduler gave the sequence up. So these two are followed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..policies.paged_pool import PagedPool
from ..policies.tables import BareTables
from ..serving.scheduler import Scheduler
from .pool_taps import PoolTaps
from .taps import Method


class LiveTokens:
    """The tokens in the memory of ``policy``, whose sequences ``scheduler`` runs."""

    def __init__(self, scheduler: Scheduler, policy: PagedPool) -> None:
        self._scheduler, self._policy = scheduler, policy
        self._recalling = False
        self._coming = 0  # tokens of a known prefix that has its table, and of which the scheduler does not know

    def counter(self) -> Callable[[], int]:
        """What says how many there are now: it is asked at every event."""
        scheduler = self._scheduler
        if isinstance(self._policy.tables, BareTables):
            return lambda: scheduler.held_tokens
        return self._of_sequences

    def watch(self, taps: PoolTaps) -> None:
        """Follow what comes, until ``taps`` are closed."""
        if self._policy.prompts is None:
            return  # nothing is known of a prompt
        taps.tap(self._policy.tables, "recall", self._recall)
        taps.tap(self._policy.pool.table, "put", self._put)

    def _of_sequences(self) -> int:
        scheduler, policy = self._scheduler, self._policy
        tokens = scheduler.held_tokens + self._coming
        if scheduler.leaving:
            if len(policy.pool.open_sequences) == len(scheduler.running):
                policy.count_shared()  # its table has ended, and what it shared is shared by one less
            else:
                tokens += scheduler.leaving
        return tokens - policy.shared

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
