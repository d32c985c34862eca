"""KVPool: block ids on a growable range. Physical memory is committed a row at a time, and empty rows go back."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence as Ids
from typing import Any

from kernels_cu import PagedKV
from vmm import (
    After,
    AlignmentError,
    ClosedError,
    Device,
    GrowableRange,
    OutOfMemoryError,
    RangeError,
    Shortage,
    Size,
    StateError,
    Stream,
    Supply,
    format_size,
    handles_of,
)
from vmm.finishing import Finishing
from vmm.one_thread import Turn, one_thread
from vmm.uninterrupted import handed_over, uninterrupted, whole

from .block_copies import copy_blocks, in_order, needs_spare
from .blocks.block_ids import Ids as Blocks
from .blocks.block_ids import id_array
from .blocks.block_pool import BlockPool, Choice, block_ids
from .compaction import Compacted, compact
from .explain import Explanation, explain
from .invariants import check_pool
from .layout import K, KVLayout
from .prefix.cache_events import Listener, Telling
from .prefix.cached_blocks import CachedBlocks
from .prefix.chain_hash import Tokens
from .prefix.eviction import Order
from .prefix.known_tokens import KnownTokens, as_ids
from .row_memory import RowMemory, capacity
from .sequence import Sequence
from .shortage.cause import explained, shortage_of
from .spare import give_up_chunks, spare_chunks
from .tables.batched_table import BatchedTable
from .tables.tail_ids import TailIds
from .whole_number import whole_number


class KVPool:
    """A pool of KV blocks on ``device``, laid out by ``layout``.

    ``budget`` bounds the committed bytes. ``blocks`` is how many blocks have addresses; by default twice what the
    budget holds, for addresses are free and let the pool choose blocks that keep few rows alive. Without a budget every
    one of ``blocks`` may have memory. ``reserve_rows`` empty rows stay mapped before rows are given back; with
    ``prealloc`` everything is committed at the start and stays. ``supply`` may be shared with other pools and
    ranges, or be a ``Share`` of one: what a pool lacks then, others give up if it lies empty or is only cached. With
    ``prefix_cache`` the whole blocks of sequences whose token ids are known stay when they end, for prompts that begin
    alike, until their memory is needed; "lru", "row" or "blend" says in which order they go then (True is "lru": those
    that were used longest ago; "row": those whose row comes free soonest; "blend" weighs both). ``cache_events`` is
    called with what is stored, hit and evicted, in the form that routers read (``paged.prefix.cache_events``); what it
    raises stops nothing: see ``cache_events_error``.

    Raises ValueError for a budget that holds no block, AlignmentError for a layout whose chunk is no multiple of the
    device's granularity, OutOfMemoryError when addresses (or, with ``prealloc``, memory) are not to be had.

        >>> import numpy as np, paged, vmm
        >>> device = vmm.Device(driver=vmm.HostDriver(memory="1 GiB"))
        >>> layout = paged.KVLayout(paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16"), block_size=16)
        >>> prompt = np.arange(40)
        >>> with paged.KVPool(device, layout, budget="16 MiB", prefix_cache=True) as pool:
        ...     first = pool.sequence(prompt)
        ...     slots = first.append(prompt)  # where K and V of these tokens are to be written
        ...     print(first.table, slots[[0, 16, 39]])
        ...     first.publish()  # once writes of them are queued
        ...     second = pool.sequence(prompt)  # begins with the whole blocks that are known
        ...     print(second.table, second.length, pool.count(0))
        [0, 1, 2] [ 0 16 39]
        [0, 1] 32 2
        >>> device.close()
    """

    @whole
    def __init__(
        self,
        device: Device,
        layout: KVLayout,
        *,
        blocks: int | None = None,
        budget: Size | None = None,
        reserve_rows: int = 0,
        prealloc: bool = False,
        prefix_cache: bool | Order = False,
        cache_events: Listener | None = None,
        supply: Supply | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(layout, KVLayout):
            raise ValueError(f"layout must be a KVLayout, such as KVLayout(spec, 16), not {type(layout).__name__}")
        if layout.chunk % device.granularity:
            unit = format_size(device.granularity)
            raise AlignmentError(f"the layout's chunk of {layout.chunk} bytes is no multiple of the granularity {unit}")
        total, max_rows = capacity(layout, blocks, budget, supply, prealloc=prealloc)
        reserve_rows = whole_number("reserve_rows", reserve_rows)
        if reserve_rows < 0:
            raise ValueError(f"reserve_rows must be 0 or more, not {reserve_rows}")
        if supply is not None and supply.chunk_size != layout.chunk:
            raise ValueError(f"the layout's chunk of {layout.chunk} bytes is not the supply's of {supply.chunk_size}")
        self.device, self.layout = device, layout
        self.reserve_rows, self.prealloc = reserve_rows, prealloc
        self.block_pool = BlockPool(layout.rows(total), max_rows)
        if cache_events is not None and not (prefix_cache and callable(cache_events)):
            what = "cache_events needs prefix_cache=True" if not prefix_cache else "cache_events must be a function"
            raise ValueError(f"{what}, not {prefix_cache if not prefix_cache else cache_events!r}")
        self._telling = None if cache_events is None else Telling(cache_events)
        self.prefix = _cache(self.block_pool, layout.block_size, prefix_cache, self._telling)
        self.tail_ids = TailIds(layout.block_size) if prefix_cache else None
        self._prefix_losses = 0
        self.table = BatchedTable(layout.block_size)
        self.tokens = 0  # that exist; the sequences count them
        self._shared_supply = supply
        self._sequences: dict[int, Sequence] = {}
        self.busy = Turn()
        chunk = layout.chunk if supply is None else None
        self.range = GrowableRange(device, layout.reserve_bytes(total), chunk=chunk, supply=supply, name=name or "kv")
        self.memory = RowMemory(self.range, layout, self.block_pool.rows)
        with contextlib.ExitStack() as undo:
            undo.callback(self.range.close)
            if prealloc:
                self.memory.commit(range(self.block_pool.max_rows), self.block_pool.max_rows)
                self.block_pool.commit(range(self.block_pool.max_rows))
            if supply is not None:
                supply.register(self)
            undo.pop_all()

    def __repr__(self) -> str:
        held, idle = self.block_pool.used - self.blocks_idle, self.blocks_idle
        blocks = f"{held} of {self.blocks_total} blocks of {self.layout.block_size} tokens used"
        memory = f"{format_size(self.committed)} committed of {format_size(self.reserved)} reserved"
        return f"KVPool({blocks}{f', {idle} cached' if idle else ''}, {memory})"

    def __enter__(self) -> KVPool:
        return self

    def __exit__(self, *exc: Any) -> None:
        with Finishing() as rest:
            rest.run(self.range.__exit__, *exc)
            self._end_sequences()

    # -- questions ----------------------------------------------------------------------------------------------

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
    def blocks_free(self) -> int:
        """Blocks that ``allocate`` would grant now, with idle ones of the prefix cache and what other pools spare."""
        if not self._usable:
            return 0
        return self.block_pool.largest_grantable(self._new_rows(asking=True)) + self.blocks_idle

    @property
    def blocks_idle(self) -> int:
        """Blocks that only the prefix cache holds; they go when their memory is needed."""
        return self.prefix.cache.idle_count if self.prefix else 0

    @property
    def cache_events_error(self) -> Exception | None:
        """What the listener of ``cache_events`` raised last, if it ever did; a RuntimeWarning told of the first."""
        return self._telling.error if self._telling else None

    @property
    def empty_rows(self) -> int:
        """Committed rows in which no block is held."""
        return len(self.block_pool.empty)

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences that have not been freed."""
        return list(self._sequences.values())

    def count(self, block: int) -> int:
        """How many hold ``block``, the prefix cache not counted."""
        return self.prefix.holders(block) if self.prefix else self.block_pool.count(block)

    def can_allocate(self, blocks: int) -> bool:
        """Whether ``blocks`` more blocks can be had; "not now" is a normal answer, also while the range sleeps."""
        blocks = whole_number("blocks", blocks)
        if not self._usable:
            return False
        if 0 <= blocks <= self.block_pool.available or self.block_pool.can_allocate(blocks, self._new_rows()):
            return True
        return (bool(self.blocks_idle) or self._shared_supply is not None) and blocks <= self.blocks_free

    def spare(self, *, cached: bool) -> int:
        """Chunks of empty rows, with ``cached`` also of rows that only idle blocks hold: what others may ask for."""
        return spare_chunks(self, cached=cached)

    def shortage(self, blocks: int) -> Shortage | None:
        """Why ``blocks`` more blocks are not to be had now, and what would help; None if they are.

        Raises ClosedError after ``close``, StateError while the range sleeps.
        """
        self.check_usable()
        return shortage_of(self, whole_number("blocks", blocks))

    @property
    def shared_supply(self) -> Supply | None:
        """The supply that it was made with, where it was; else it has one of its own."""
        return self._shared_supply

    # -- changes ------------------------------------------------------------------------------------------------

    @uninterrupted
    def sequence(self, prompt: Ids[int] | Tokens | None = None, *, salt: int = 0) -> Sequence:
        """A new sequence: without tokens, or with the prefix of ``prompt`` (token ids) that the prefix cache knows.

        At least one token of a prompt is always left to append. Prompts of different ``salt`` never share.
        Raises ClosedError after ``close``, StateError while the range sleeps, ValueError for ids that are none and for
        a prompt where the pool was made without ``prefix_cache``.
        """
        self.check_usable()
        found = None if prompt is None else self._known_prefix(prompt, salt)
        made = Sequence(self)
        if found:
            blocks, known = found
            made.begin(blocks, known, len(blocks) * self.layout.block_size)
        self._sequences[made.row] = made
        return made

    @one_thread
    def _known_prefix(self, prompt: Ids[int] | Tokens, salt: int) -> tuple[Blocks, KnownTokens]:
        """Hold the blocks of a prompt's known prefix."""
        ids, salt = as_ids(prompt), whole_number("salt", salt)
        if ids is None or self.prefix is None:
            what = "has no prefix cache; make it with prefix_cache=True"
            if ids is None:
                what = f"takes token ids, a list or an int32 array, not {prompt!r}"
            raise ValueError(f"a prompt was given and {self.range.name!r} {what}")
        self.forget_lost()
        blocks, known, idle = self.prefix.hit_array(ids, salt)
        self.tokens += idle * self.layout.block_size
        return blocks, known

    def forget(self, sequence: Sequence) -> None:
        """Strike a freed sequence off the list; ``Sequence.free`` does it."""
        del self._sequences[sequence.row]

    @handed_over(lambda self, blocks: self.free(blocks))
    @one_thread
    def allocate(self, blocks: int) -> list[int]:
        """Take ``blocks`` blocks and return their ids, committing the rows that they need in one step.

        Raises OutOfMemoryError when there are not so many, or the device has no memory for their rows; nothing has
        changed then, and the error's ``report`` is the ``Shortage``.
        """
        self.check_usable()
        blocks = whole_number("blocks", blocks)
        if 0 <= blocks <= self.block_pool.available:
            return self.block_pool.allocate(blocks)
        with explained(self, blocks):
            return self.block_pool.take(self._prepare(blocks))

    @handed_over(lambda self, blocks: self.free(blocks))
    @one_thread
    def allocate_array(self, blocks: int) -> Blocks:
        """As ``allocate``, for many blocks in less time: int64 [blocks]."""
        self.check_usable()
        blocks = whole_number("blocks", blocks)
        if 0 <= blocks <= self.block_pool.available:
            return self.block_pool.allocate_array(blocks)
        with explained(self, blocks):
            return self.block_pool.take_array(self._prepare(blocks))

    @one_thread
    def claim(self, blocks: Ids[int]) -> None:
        """Hold these very blocks, committing the rows that they need: what rebuilds a given block table.

        Raises StateError for a block that is held already, OutOfMemoryError beyond the budget or the device's memory;
        nothing has changed then.
        """
        self.check_usable()
        blocks = block_ids(blocks)
        if len(set(blocks)) != len(blocks):
            raise StateError(f"{list(blocks)} names a block twice; claim each once and fork it to share it")
        held = next((block for block in blocks if self.block_pool.count(block)), None)
        if held is not None:
            raise StateError(f"block {held} is held already, by somebody or the prefix cache; fork it to share it")
        rows = {row for block in blocks for row in self.block_pool.rows.of(block)}
        new = sorted(row for row in rows if row not in self.block_pool.committed)
        self.block_pool.check_limit(len(new), self._new_rows(asking=True))
        self.memory.commit(new, self.block_pool.max_rows)
        self.block_pool.commit(new)
        self.block_pool.hold(blocks)

    @one_thread
    def fork(self, blocks: Ids[int]) -> None:
        """Count one more holder of each block, as ``Sequence.fork`` does; ``live`` follows sequences only."""
        self._check_not_closed()
        blocks = block_ids(blocks)
        self.block_pool.fork(blocks)
        if self.prefix:
            self.prefix.cache.use(blocks)

    @one_thread
    def free(self, blocks: Ids[int], *, after: After = None) -> None:
        """Give up one hold on each block; rows that come empty beyond ``reserve_rows`` are decommitted in one step.

        Their memory goes when the work ``after`` (by default all of the device's; see ``GrowableRange.decommit``) is
        done; nothing waits for it. A block that is taken again before is there at once: order new work after the old.
        Raises StateError for a block freed twice, or for memory that an array views or a pin holds; nothing has
        changed then.
        """
        blocks = block_ids(blocks)
        handles_of(after)  # raises for what is neither a stream nor an event
        if self.prefix:
            self.prefix.check_held(blocks)
            if self.block_pool.over:  # a lowered limit is to be reached
                self.prefix.let_go(blocks)
        emptied = self.block_pool.free(blocks)
        self.memory.note(blocks, after)
        surplus = max(len(self.block_pool.empty) - self.reserve_rows, min(self.block_pool.over, len(emptied)))
        with Finishing() as rest, contextlib.ExitStack() as undo:
            if emptied and surplus > 0 and not self.prealloc:
                undo.callback(self.block_pool.hold, blocks)
                rest.run(self.decommit, self._surplus(surplus), after)
            undo.pop_all()
            if self.prefix:
                self.prefix.rest(blocks)

    def _surplus(self, rows: int) -> list[int]:
        """The highest empty rows, those first that nothing outside relies on."""
        used = self.memory.used()
        return heapq.nlargest(rows, self.block_pool.empty, key=lambda row: (row not in used, row))

    @one_thread
    def trim(self, *, cache: bool = False, after: After = None) -> int:
        """Decommit every empty row, the reserve too, and return their bytes (0 with ``prealloc``); as ``free``.

        With ``cache`` the idle blocks of the prefix cache go first.
        """
        if cache and self.prefix:
            self.prefix.evict(self.blocks_idle)
        rows = [] if self.prealloc else list(self.block_pool.empty)
        if rows:
            self.decommit(rows, after)
        return len(rows) * self.layout.row_bytes

    def give_up(self, chunks: int, *, cached: bool) -> int:
        """Give ``chunks`` chunks of ``spare`` back for another taker of the supply, in whole rows; how many went."""
        return give_up_chunks(self, chunks, cached=cached)

    @one_thread
    def set_budget(self, budget: Size, *, after: After = None) -> bool:
        """Bound the committed bytes anew; whether what is committed is within the bound now.

        There are never more blocks than have addresses: a pool that is to grow far is made with ``blocks=``.
        Rows without a block go first, then idle blocks of the prefix cache. Where that is not enough the bound is
        pending: nothing more is allocated, rows go back as soon as they come empty, and so it completes by itself.
        Raises ValueError for a budget that holds no block, and for a pool made with ``prealloc``.
        """
        self._check_not_closed()
        if self.prealloc:
            raise ValueError(f"{self.range.name!r} has all of its memory from the start; make a new pool")
        if budget is None:
            raise ValueError("a new budget must be a number of bytes or text such as '2 MiB', not None")
        _total, rows = capacity(self.layout, None, budget, None, prealloc=False)
        with Finishing() as rest, contextlib.ExitStack() as undo:
            undo.callback(self.block_pool.limit, self.block_pool.max_rows)
            self.block_pool.limit(self.block_pool.rows.count if rows is None else rows)
            if self.block_pool.over > len(self.block_pool.empty) and self.prefix:
                self.prefix.evict(self.blocks_idle)
            going = heapq.nlargest(self.block_pool.over, self.block_pool.empty)
            if going:
                rest.run(self.decommit, going, after)
            undo.pop_all()
        return not self.block_pool.over

    def collect(self, *, wait: bool = False) -> int:
        """Unmap the retiring rows that no work uses any more; with ``wait``, wait for all. The bytes given back."""
        return self.range.collect(wait=wait)

    def copy_block(self, source: int, target: int, *, stream: Stream = 0) -> None:
        """Copy all bytes of one block to another, in the order of ``stream``: one copy a plane.

        Raises RangeError for a block that is not there, StateError for one without memory or for one onto itself.
        """
        self.check_usable()
        pair = self._with_memory([source, target])
        if pair[0] == pair[1]:
            raise StateError(f"block {pair[0]} cannot be copied onto itself; give another target")
        copy_blocks(self, pair[:1], pair[1:], stream)

    @uninterrupted
    def copy_blocks(self, pairs: Ids[tuple[int, int]], *, stream: Stream = 0) -> None:
        """Copy blocks, (source, target) each, as if all at once: a block may be the source of some and a target too.

        In the order of ``stream``, in as few steps as that allows. Pairs that go round in a circle need a block more
        for a moment: OutOfMemoryError where there is none. Raises RangeError for a block that is not there, StateError
        for one without memory, or that is the target twice; nothing has changed then.
        """
        self.check_usable()
        flat = self._with_memory([block for pair in pairs for block in pair])
        wanted = list(zip(flat[::2], flat[1::2], strict=True))
        if len({target for _source, target in wanted}) < len(wanted):
            raise StateError(f"a block is the target of two copies in {wanted[:8]}; give each one source")
        spare = self.allocate(1) if needs_spare(wanted) else []
        with Finishing() as rest:
            try:
                for batch in in_order(wanted, *(spare or [-1])):
                    sources, targets = zip(*batch, strict=True)
                    copy_blocks(self, sources, targets, stream)
            finally:
                rest.run(self.free, spare, after=stream)

    def _with_memory(self, blocks: Ids[int]) -> list[int]:
        """Block ids, all of which have memory: a kernel that reads what is not mapped ends all work of the device."""
        ids: list[int] = id_array(blocks, self.block_pool.rows.blocks).tolist()
        bare = next((block for block in ids if not self.block_pool.committed.holds(block)), None)
        if bare is not None:
            raise StateError(f"block {bare} has no memory and cannot be copied; allocate it first")
        return ids

    @one_thread
    def compact(self, *, most: int | None = None, stream: Stream = 0, after: After = None) -> Compacted:
        """Move live blocks out of sparse rows, at most ``most`` of them, and give the rows that come empty back.

        A row is emptied whole or not at all: with ``most`` below the live blocks of the emptiest row nothing moves.

        The copies are queued on ``stream``, and every table that names a moved block is rewritten: launches after this
        on that stream find the blocks at their new places. Work in flight keeps the old ones, for the rows retire
        ``after`` it and the copies. Blocks that an array views or a pin holds, and blocks that somebody holds besides
        the pool's sequences, stay. All or nothing. Raises RangeError for a negative ``most``.
        """
        self.check_usable()
        bound = self.block_pool.used if most is None else whole_number("most", most)
        if bound < 0:
            raise RangeError(f"cannot move {bound} blocks; give 0 or more, or None for all")
        if self.prealloc:
            return Compacted(0, 0, 0, 0)
        return compact(self, bound, stream, after)

    @uninterrupted
    def close(self) -> None:
        """Unmap everything and free the addresses; every sequence ends. Closing twice does nothing."""
        with Finishing() as rest:
            rest.run(self.range.close)
            self._end_sequences()

    def check(self) -> None:
        """Prove the invariants; an AssertionError here is a bug of ours."""
        check_pool(self)

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
        self._check_not_closed()
        return explain(self, address)

    def forget_lost(self) -> None:
        """After a sleep without a backup nothing is known any more."""
        if self.prefix and self._prefix_losses != self.range.losses:
            self.prefix.clear()
            self._prefix_losses = self.range.losses

    # -- steps --------------------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise ClosedError after ``close``, and StateError, naming the tag, while the pool's range sleeps."""
        self._check_not_closed()
        self.range.check_awake()

    @property
    def _usable(self) -> bool:
        """Whether ``check_usable`` would raise nothing."""
        return not self.range.closed and not self.range.asleep

    def _check_not_closed(self) -> None:
        if self.range.closed:
            raise ClosedError(f"{self.range.name} is closed; make a new pool")

    def _end_sequences(self) -> None:
        """A closed pool has no tokens; one that an array keeps open still has."""
        if self.range.closed:
            for sequence in self.sequences:
                sequence.end()
            self._sequences.clear()
            self.tokens = 0

    def _new_rows(self, *, asking: bool = False) -> int | None:
        """Rows that a shared supply could still give, with ``asking`` also from others; None where it sets no bound."""
        supply = self._shared_supply
        left = None if supply is None else supply.obtainable(self) if asking else supply.available
        return None if left is None else left // self.layout.row_bytes

    def _prepare(self, blocks: int) -> Choice:
        """Commit the rows that ``blocks`` blocks need, so that they can be taken."""
        choice, lacking = self._grant(blocks)
        rows = choice.rows
        try:
            self.memory.commit(rows, self.block_pool.max_rows)
        except OutOfMemoryError:  # the device is full for others' sake: idle blocks go instead of new rows
            rows, lacking = (), blocks - self.block_pool.available
            if lacking > self.blocks_idle:
                raise
        if lacking and self.prefix:
            self.prefix.evict(lacking)
        return Choice(blocks, rows)

    def _grant(self, blocks: int) -> tuple[Choice, int]:
        """How ``blocks`` can be had: with which rows, and how many idle blocks must go besides.

        Own idle blocks go before others are asked: it takes no call of the driver.
        """
        for asking in (False, True)[: 1 + (self._shared_supply is not None)]:
            new_rows = self._new_rows(asking=asking)
            found = self.block_pool.find(blocks, new_rows)
            if found is not None:
                return found, 0
            lacking = blocks - self.block_pool.largest_grantable(new_rows)
            if lacking <= self.blocks_idle:
                return self.block_pool.choose(blocks - lacking, new_rows), lacking
        return self.block_pool.choose(blocks, new_rows), 0  # refuses

    def decommit(self, rows: list[int], after: After) -> None:
        """Give the memory of empty rows back; what ``free``, ``trim`` and ``compact`` do."""
        with Finishing() as rest:
            rest.run(self.memory.decommit, rows, after)
            self.block_pool.decommit(rows)


def _cache(pool: BlockPool, size: int, kind: bool | Order, events: Listener | None) -> CachedBlocks | None:
    """The prefix cache that was asked for, if any. Raises ValueError for an order that there is not."""
    if not kind:
        return None
    return CachedBlocks(pool, size, order="lru" if kind is True else kind, events=events)
