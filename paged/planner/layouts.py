"""Layouts: what block size, chunk size, order and KV dtype waste, and how many driver calls they take. Exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from vmm import format_size

from ..layout import ORDERS, KVLayout
from ..serving.driver_costs import SETS
from ..spec import ELEMENT_BYTES
from .kv_cache import BlockUse
from .lengths import Lengths
from .memory import Setting, StageMemory

BLOCK_SIZES = (8, 16, 32, 64, 128)
CHUNKS = (2 << 20, 8 << 20, 32 << 20)
_NARROW = "e4m3"
_COSTS = SETS["vattention"]


@dataclasses.dataclass(frozen=True)
class LayoutCost:
    """One way to lay the pool out, with ``running`` sequences of the trace in it; sizes are bytes on one GPU.

    ``live`` are tokens that exist, ``tail_waste`` the free slots of last blocks, ``row_waste`` what the committed rows
    have beyond the blocks if these lie densely (the least; what frees leave behind comes on top, and is for ``replay``
    to find), ``unusable`` what of the budget makes up no row. ``tokens_a_step`` are the tokens that one step of growth
    brings, ``calls`` the driver calls by name that fill the budget when it grows block by block, ``seconds`` what they
    take by a published cost set.
    """

    changed: str
    block_size: int
    chunk: int
    order: str
    kv_dtype: str
    held: int
    running: int
    live: int
    tail_waste: int
    row_waste: int
    unusable: int
    tokens_a_step: float
    calls: dict[str, int]
    seconds: float

    @property
    def waste_share(self) -> float:
        """Waste of tails and rows over what is committed."""
        wasted = self.tail_waste + self.row_waste
        return wasted / (self.live + wasted) if self.live + wasted else 0.0


def layout_costs(setting: Setting, memory: StageMemory, lengths: Lengths) -> tuple[LayoutCost, ...]:
    """The chosen layout, then others that differ in one thing each."""
    return tuple(_cost(setting, memory, lengths, *one) for one in _variations(setting, memory))


Variation = tuple[str, int, int, str, str]
"""What is changed; block size, chunk, order and KV dtype."""


def _variations(setting: Setting, memory: StageMemory) -> Iterator[Variation]:
    options = setting.options
    size, chunk, order = options.block_size, options.chunk_bytes(), options.order
    dtype = memory.pool.uses[0].group.dtype
    yield "chosen", size, chunk, order, dtype
    for other in (found for found in BLOCK_SIZES if found != size):
        yield f"block size {other}", other, chunk, order, dtype
    for other in (found for found in CHUNKS if found != chunk):
        yield f"chunk {format_size(other)}", size, other, order, dtype
    for kind in (found for found in ORDERS if found != order):
        yield f"order {kind}", size, chunk, kind, dtype
    if ELEMENT_BYTES[dtype] > 1:
        yield "KV dtype fp8", size, chunk, order, _NARROW


def _cost(
    setting: Setting, memory: StageMemory, lengths: Lengths, changed: str, size: int, chunk: int, order: str, dtype: str
) -> LayoutCost:
    groups = [dataclasses.replace(use.group, dtype=dtype) for use in memory.pool.uses]
    pools = [_GroupPool(KVLayout(group, size, order, chunk=chunk), lengths) for group in groups]
    budgets = _shares(max(0, memory.pool.budget), pools)
    held = min(pool.holds(budget) for pool, budget in zip(pools, budgets, strict=True))
    running = min(held, setting.max_num_seqs)
    live, tail, row = (sum(of) for of in zip(*(pool.with_running(running) for pool in pools), strict=True))
    calls = _added([pool.calls(budget) for pool, budget in zip(pools, budgets, strict=True)])
    unusable = sum(budget % pool.layout.row_bytes for pool, budget in zip(pools, budgets, strict=True))
    step = sum(pool.tokens_a_step for pool in pools) / len(pools)
    return LayoutCost(
        changed, size, chunk, order, dtype, held, running, live, tail, row, unusable, step, calls, _COSTS.seconds(calls)
    )


class _GroupPool:
    """The pool of one group of layers in one layout, and what the trace's sequences take of it while they decode."""

    def __init__(self, layout: KVLayout, lengths: Lengths) -> None:
        self.layout = layout
        use, first = BlockUse(layout.spec, layout.block_size), lengths.prompt + 1
        self.steps = lengths.steps
        self.block_steps = use.block_steps(first, lengths.total)
        self.live_steps = use.live_steps(first, lengths.total)

    @property
    def sequence_bytes(self) -> float:
        """Mean bytes of the blocks of a sequence."""
        return self.block_steps * self.layout.block_bytes / self.steps

    @property
    def tokens_a_step(self) -> float:
        """Tokens of a row, or of a block where that is larger: it then commits several rows in one step."""
        return max(self.layout.chunk / self.layout.block_stride, 1.0) * self.layout.block_size

    def holds(self, budget: int) -> int:
        """Sequences whose blocks have a place in the rows of so many bytes."""
        return self.layout.blocks_in(budget) * self.steps // self.block_steps

    def with_running(self, running: int) -> tuple[int, int, int]:
        """(live, tail waste, row waste) in bytes of so many sequences."""
        blocks = -(-running * self.block_steps // self.steps)
        live = running * self.live_steps * self.layout.spec.token_bytes // self.steps
        used = blocks * self.layout.block_bytes
        committed = self.layout.rows(blocks).count * self.layout.row_bytes if blocks else 0
        return live, used - live, committed - used

    def calls(self, budget: int) -> dict[str, int]:
        """Driver calls that fill the budget: create and map once a chunk, access once a plane and step of growth."""
        rows, planes = budget // self.layout.row_bytes, self.layout.planes
        steps = min(rows, self.layout.blocks_in(budget))
        return {"cuMemCreate": rows * planes, "cuMemMap": rows * planes, "cuMemSetAccess": steps * planes}


def _shares(budget: int, pools: Sequence[_GroupPool]) -> list[int]:
    """The budget cut in proportion to what a sequence takes in each pool."""
    total = sum(pool.sequence_bytes for pool in pools)
    return [int(budget * (pool.sequence_bytes / total)) if len(pools) > 1 else budget for pool in pools]


def _added(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {call: sum(count[call] for count in counts) for call in counts[0]}
