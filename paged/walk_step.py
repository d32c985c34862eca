"""One decode step of one sequence as five steps with real values: what happens in which layer, and who does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import vmm
from vmm import format_size

from .pool import KVPool
from .sequence import Sequence
from .walk import Walk, walk
from .walk_text import address_sum, describe_layout, stop_json, translation_lines

_MOST_RUNS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Step:
    """A title, lines to read, and the values in them."""

    title: str
    lines: tuple[str, ...]
    values: dict[str, Any]

    def text(self, number: int) -> list[str]:
        """The step as lines, the title first."""
        return [f"{number}. {self.title}", *(f"   {line}" for line in self.lines)]


def decode_step(pool: KVPool, token: int, *, layer: int = 0, head: int = 0) -> Iterator[Step]:
    """Put ``token`` tokens into an empty pool, then append one more (number ``token``) and follow it down.

    Raises vmm.RangeError for a layer or head that is not there, or a token that the pool has no room for.
    """
    if not pool.can_allocate(token // pool.layout.block_size + 1):
        raise vmm.RangeError(f"token {token} needs more than the pool's {pool.blocks_total} blocks; raise the budget")
    yield _pool_from_budget(pool)
    sequence = pool.sequence()
    sequence.append(token)
    blocks, committed = len(sequence.table), pool.committed
    sequence.append(1)
    found = walk(pool, sequence.table, token, layer=layer, head=head)
    yield _mappings(pool, pool.committed - committed)
    yield _blocks(sequence, found, len(sequence.table) > blocks)
    yield _addresses(found)
    yield _translation(found)
    sequence.free()


def _pool_from_budget(pool: KVPool) -> Step:
    layout, budget = pool.layout, pool.block_pool.max_rows * pool.layout.row_bytes
    row = f"a row is {format_size(layout.row_bytes)}, {layout.planes} x {format_size(layout.chunk)}"
    values = {
        "budget": budget,
        "row_bytes": layout.row_bytes,
        "block_bytes": layout.block_bytes,
        "blocks_total": pool.blocks_total,
        "blocks_with_addresses": pool.block_pool.rows.blocks,
        "reserved": pool.reserved,
    }
    lines = (
        describe_layout(layout),
        f"{format_size(budget)} may be committed; {row}",
        f"{pool.blocks_total} blocks can live at a time; {values['blocks_with_addresses']} have addresses, "
        f"{format_size(pool.reserved)} reserved",
    )
    return Step("Pool: a budget becomes blocks", lines, values)


def _mappings(pool: KVPool, new: int) -> Step:
    runs = vmm.snapshot(pool.range).runs
    left = len(runs) - _MOST_RUNS_SHOWN
    values = {
        "base": pool.range.base,
        "committed": pool.committed,
        "newly_committed": new,
        "mappings": [
            {"address": run.address, "size": run.size, "handle": run.handle, "access": run.access.name.lower()}
            for run in runs
        ],
    }
    lines = (
        f"{format_size(pool.committed)} of {format_size(pool.reserved)} committed, base {pool.range.base:#x}",
        *(str(run) for run in runs[:_MOST_RUNS_SHOWN]),
        *([f"and {left} more"] if left > 0 else []),
        f"the new token needed {format_size(new)} more" if new else "the new token needed no more memory",
    )
    return Step("Driver: physical memory is mapped under the pool's addresses", lines, values)


def _blocks(sequence: Sequence, found: Walk, new: bool) -> Step:
    size = sequence.pool.layout.block_size
    values = {
        "table": list(sequence.table),
        "length": sequence.length,
        "logical_block": found.logical_block,
        "block": found.block,
        "slot": found.slot,
        "slot_index": found.slot_index,
        "block_is_new": new,
    }
    lines = (
        f"block table {sequence.table}: {sequence.length} tokens, room for {len(sequence.table) * size}",
        f"token {found.token}: logical block {found.logical_block}, slot {found.slot}; "
        f"block {found.block} {'is new' if new else 'had room'}",
        f"slot index {found.slot_index} = {found.block} x {size} + {found.slot}: what the append kernel is given",
    )
    return Step("Blocks: the sequence's block table says where each token lies", lines, values)


def _addresses(found: Walk) -> Step:
    values = {stop.component: stop.translation.address for stop in found.stops}
    lines = (
        "base + plane x plane_stride + block x block_stride + inside the block",
        *(f"{s.component}: {s.translation.address:#x} = {address_sum(s, found.block)}" for s in found.stops),
        f"to attend, it does the same for each of tokens 0 to {found.token}",
    )
    return Step("Addresses: the kernel computes them from the block table and the strides", lines, values)


def _translation(found: Walk) -> Step:
    values = {stop.component: stop_json(stop) for stop in found.stops}
    lines = [line for s in found.stops for line in (f"{s.component}:", *translation_lines(s.translation, s.row))]
    return Step("Translation: the hardware's page table knows addresses, and nothing of tokens", tuple(lines), values)
