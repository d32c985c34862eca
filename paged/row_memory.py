"""RowMemory: the physical memory of a pool's rows. A row is one chunk in every plane, and comes and goes whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vmm import After, GrowableRange, Size, Supply, format_size, parse_size
from vmm.finishing import Finishing
from vmm.last_work import LastWork

from .blocks.rows import Rows
from .layout import KVLayout
from .whole_number import whole_number

MOST_BLOCKS = (1 << 31) - 1
"""Blocks of a pool: their ids stand in tables of int32."""


class RowMemory:
    """Commits and decommits ``rows``, laid out by ``layout``, on ``range_``."""

    def __init__(self, range_: GrowableRange, layout: KVLayout, rows: Rows) -> None:
        self.range, self.layout, self.rows = range_, layout, rows
        self._work = LastWork()  # of blocks that left a row before its last one did

    def chunks(self, rows: Iterable[int]) -> list[int]:
        """The chunks of the range behind some rows: one in every plane for each."""
        return [plane * self.rows.count + row for row in rows for plane in range(self.layout.planes)]

    def used(self) -> set[int]:
        """The rows that an array views or a pin holds."""
        return {chunk % self.rows.count for chunk in self.range.used_chunks()}

    def commit(self, rows: Collection[int], most: int) -> None:
        """Commit rows. Where they and all that retire would be more than ``most``, what retires is waited for."""
        if self.range.retiring:
            fresh = sum(not self.range.is_retiring(row) for row in rows)  # row i has chunk i of the first plane
            if self.range.committed + fresh * self.layout.row_bytes > most * self.layout.row_bytes:
                self.range.collect(wait=True)
        self.range.commit(self.chunks(rows))

    def decommit(self, rows: Collection[int], after: After) -> None:
        """Give rows back, when the work ``after`` and that of every block that left them before is done."""
        with Finishing() as rest:
            rest.run(self.range.decommit, self.chunks(rows), after=self._work.before(rows, after))
            self._work.forget(rows)

    def note(self, blocks: Iterable[int], after: After) -> None:
        """Blocks were given back, to go when the work ``after`` is done."""
        self._work.note((row for block in blocks for row in self.rows.of(block)), after)


def capacity(
    layout: KVLayout, blocks: int | None, budget: Size | None, supply: Supply | None, *, prealloc: bool
) -> tuple[int, int | None]:
    """How many blocks get addresses, and how many rows may be committed (None: all, as far as the supply has any).

    Without blocks and budget, that of ``supply`` says how many addresses. Raises ValueError where there is no bound, or
    it holds no block.
    """
    blocks = None if blocks is None else whole_number("blocks", blocks)
    if blocks is not None and blocks < 1:
        raise ValueError(f"blocks must be at least 1, not {blocks}")
    if blocks is not None and blocks > MOST_BLOCKS:
        raise ValueError(f"blocks must be at most {MOST_BLOCKS}, the most that tables of int32 name, not {blocks}")
    if budget is None:
        if blocks is not None:
            return blocks, None
        if supply is None or supply.budget is None:
            raise ValueError("a pool needs blocks=, budget= or both, or a supply= with a budget")
        return capacity(layout, None, supply.budget, None, prealloc=prealloc)[0], None
    limit = parse_size(budget, name="budget")
    held = layout.blocks_in(limit)
    if not held:
        least = format_size(layout.rows(1).count * layout.row_bytes)
        raise ValueError(f"budget {format_size(limit)} holds no block of {layout.block_bytes} bytes; give {least}")
    return blocks or (held if prealloc else 2 * held), limit // layout.row_bytes
