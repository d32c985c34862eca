"""paged-vmm: blocks on a growable range. Rows are committed when blocks need them, and empty rows go back."""

from __future__ import annotations

from vmm import Device

from ..layout import KVLayout
from .paged_pool import PagedPool


class PagedVmm(PagedPool):
    """A pool that keeps ``reserve`` times the rows in use mapped beyond them, counted whenever a sequence ends."""

    def __init__(self, device: Device, budget: int, layout: KVLayout, *, reserve: float = 0.0) -> None:
        super().__init__(device, budget, layout, prealloc=False)
        self.reserve = reserve

    def finish(self, request: int) -> None:
        """Give the sequence's blocks back, and the rows that came empty beyond the reserve."""
        self.pool.reserve_rows = int(self.reserve * self._rows_in_use())
        super().finish(request)
