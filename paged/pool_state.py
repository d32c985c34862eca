"""PoolState: what a KVPool is made of, and the questions that it answers. Nothing changes here."""

from __future__ import annotations

from typing import Any

from kernels_cu import PagedKV
from vmm import ClosedError, Device, GrowableRange, Supply, format_size
from vmm.finishing import Finishing
from vmm.one_thread import Turn
from vmm.uninterrupted import uninterrupted

from .blocks.block_pool import BlockPool
from .explain import Explanation, explain
from .invariants import check_pool
from .layout import K, KVLayout
from .pool_options import Room
from .prefix.cache_events import Listener, Telling
from .prefix.cached_blocks import CachedBlocks
from .prefix.eviction import Order
from .row_memory import RowMemory
from .sequence import Sequence
from .tables.batched_table import BatchedTable
from .tables.tail_ids import TailIds


class PoolState:
    """The parts of a pool, as ``KVPool`` describes them, and what can be asked of it."""

    def __init__(
        self,
        device: Device,
        layout: KVLayout,
        room: Room,
        *,
        prealloc: bool,
        prefix_cache: bool | Order,
        cache_events: Listener | None,
        supply: Supply | None,
        name: str | None,
    ) -> None:
        self.device, self.layout = device, layout
        self.reserve_rows, self.prealloc = room.reserve_rows, prealloc
        self.block_pool = BlockPool(layout.rows(room.blocks), room.rows)
        self._telling = None if cache_events is None else Telling(cache_events)
        self.prefix = _cache(self.block_pool, layout.block_size, prefix_cache, self._telling)
        self.tail_ids = TailIds(layout.block_size) if prefix_cache else None
        self.prefix_losses = 0  # that the prefix cache has heard of
        self.table = BatchedTable(layout.block_size)
        self.tokens = 0  # that exist; the sequences count them
        self._shared_supply = supply
        self.open_sequences: dict[int, Sequence] = {}  # by their rows
        self.busy = Turn()
        chunk = layout.chunk if supply is None else None
        bytes_ = layout.reserve_bytes(room.blocks)
        self.range = GrowableRange(device, bytes_, chunk=chunk, supply=supply, name=name or "kv")
        self.memory = RowMemory(self.range, layout, self.block_pool.rows)

    def __repr__(self) -> str:
        held, idle = self.block_pool.used - self.blocks_idle, self.blocks_idle
        blocks = f"{held} of {self.blocks_total} blocks of {self.layout.block_size} tokens used"
        memory = f"{format_size(self.committed)} committed of {format_size(self.reserved)} reserved"
        return f"{type(self).__name__}({blocks}{f', {idle} cached' if idle else ''}, {memory})"

    @property
    def reserved(self) -> int:
        """Bytes of addresses."""
        return self.range.reserved

    @property
    def committed(self) -> int:
        """Bytes of physical memory, ``retiring`` included."""
        return self.range.committed

    @property
    def retiring(self) -> int:
        """Bytes of rows that were given back, and stay mapped until the work that may use them is done."""
        return self.range.retiring

    @property
    def live(self) -> int:
        """Bytes of the tokens that exist; a token in a shared block counts once."""
        return self.tokens * self.layout.spec.token_bytes

    @property
    def blocks_total(self) -> int:
        """Blocks that can have memory at a time, by the budget of the pool and of the supply that it was given."""
        rows, supply = self.block_pool.max_rows, self._shared_supply
        if supply is not None and supply.budget is not None:
            rows = min(rows, supply.budget // self.layout.row_bytes)
        return self.block_pool.rows.ending_by(rows)

    @property
    def blocks_idle(self) -> int:
        """Blocks that only the prefix cache holds; they go when their memory is needed."""
        return self.prefix.cache.idle_count if self.prefix else 0

    @property
    def cache_events_error(self) -> BaseException | None:
        """What the listener of ``cache_events`` raised last, if it ever did; a RuntimeWarning told of the first."""
        return self._telling.error if self._telling else None

    @property
    def empty_rows(self) -> int:
        """Committed rows in which no block is held."""
        return len(self.block_pool.empty)

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences that have not been freed."""
        return list(self.open_sequences.values())

    def count(self, block: int) -> int:
        """How many hold ``block``, the prefix cache not counted."""
        return self.prefix.holders(block) if self.prefix else self.block_pool.count(block)

    @property
    def shared_supply(self) -> Supply | None:
        """The supply that it was made with, where it was; else it has one of its own."""
        return self._shared_supply

    def check(self) -> None:
        """Prove the invariants; an AssertionError here is a bug of ours."""
        check_pool(self)

    def check_usable(self) -> None:
        """Raise ClosedError after ``close``, and StateError, naming the tag, while the pool's range sleeps."""
        if self.range.closed or self.range.asleep:
            self.check_not_closed()
            self.range.check_awake()

    def check_not_closed(self) -> None:
        """Raise ClosedError after ``close``."""
        if self.range.closed:
            raise ClosedError(f"{self.range.name} is closed; make a new pool")

    # -- places -------------------------------------------------------------------------------------------------

    def address(
        self, *, block: int, layer: int = 0, component: int = K, head: int = 0, slot: int = 0, d: int = 0
    ) -> int:
        """The address of one number of K or V."""
        return self.layout.address(
            self.range.base,
            self.block_pool.rows.blocks,
            block=block,
            layer=layer,
            component=component,
            head=head,
            slot=slot,
            d=d,
        )

    def kv(self, layer: int) -> PagedKV:
        """Where the kernels find K and V of one layer."""
        return self.layout.kv(self.range.base, self.block_pool.rows.blocks, layer)

    def view(self, block: int, layer: int, component: int = K) -> Any:
        """One layer's K or V of a block, in the layout's own shape: NumPy on the host driver, CuPy on a GPU."""
        offset = self.address(block=block, layer=layer, component=component) - self.range.base
        return self.range.array(self.layout.spec.array_dtype, self.layout.component_shape(component), offset)

    def explain(self, address: int) -> Explanation:
        """What lies at an address of the pool: chunk, row, block, and the sequences and tokens that have it.

        Raises RangeError for an address outside its range, ClosedError after ``close``.
        """
        self.check_not_closed()
        return explain(self, address)

    # -- its end -----------------------------------------------------------------------------------------------

    def __exit__(self, *exc: Any) -> None:
        with Finishing() as rest:
            rest.run(self.range.__exit__, *exc)
            self._end_sequences()

    @uninterrupted
    def close(self) -> None:
        """Unmap everything and free the addresses; every sequence ends. Closing twice does nothing."""
        with Finishing() as rest:
            rest.run(self.range.close)
            self._end_sequences()

    # -- steps --------------------------------------------------------------------------------------------------

    @property
    def _usable(self) -> bool:
        """Whether ``check_usable`` would raise nothing."""
        return not self.range.closed and not self.range.asleep

    def _end_sequences(self) -> None:
        """A closed pool has no tokens; one that an array keeps open still has."""
        if self.range.closed:
            for sequence in self.sequences:
                sequence.end()
            self.open_sequences.clear()
            self.tokens = 0


def _cache(pool: BlockPool, size: int, kind: bool | Order, events: Listener | None) -> CachedBlocks | None:
    """The prefix cache that was asked for, if any. Raises ValueError for an order that there is not."""
    if not kind:
        return None
    return CachedBlocks(pool, size, order="lru" if kind is True else kind, events=events)
