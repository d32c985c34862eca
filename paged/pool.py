"""KVPool: block ids on a growable range. Physical memory is committed a row at a time, and empty rows go back."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence as Ids

from vmm import After, Device, RangeError, Shortage, Size, Stream, Supply
from vmm.one_thread import one_thread
from vmm.uninterrupted import handed_over, uninterrupted, whole

from . import release
from .allocation import can_take, claim, grantable, take, take_array
from .block_copies import copy_all, copy_one
from .blocks.block_ids import Ids as Blocks
from .blocks.block_ids import block_ids
from .compaction import Compacted, compact
from .growth import share
from .known_prefix import can_hold, hold_prefix
from .layout import KVLayout
from .pool_options import check_events, room_for
from .pool_state import PoolState
from .prefix.cache_events import Listener
from .prefix.eviction import Order
from .prefix.known_tokens import TokenIds
from .sequence import Sequence
from .shortage.cause import shortage_of
from .spare import give_up_chunks, spare_chunks
from .whole_number import whole_number


class KVPool(PoolState):
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
        room = room_for(
            device, layout, blocks=blocks, budget=budget, reserve_rows=reserve_rows, prealloc=prealloc, supply=supply
        )
        check_events(prefix_cache, cache_events)
        super().__init__(
            device,
            layout,
            room,
            prealloc=prealloc,
            prefix_cache=prefix_cache,
            cache_events=cache_events,
            supply=supply,
            name=name,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(self.range.close)
            if prealloc:
                rows = range(self.block_pool.max_rows)
                self.memory.commit(rows, len(rows))
                self.block_pool.commit(rows)
            if supply is not None:
                supply.register(self)
            undo.pop_all()

    def __enter__(self) -> KVPool:
        return self

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def blocks_free(self) -> int:
        """Blocks that ``allocate`` would grant now, with idle ones of the prefix cache and what other pools spare."""
        return grantable(self) if self._usable else 0

    def can_allocate(self, blocks: int) -> bool:
        """Whether ``blocks`` more blocks can be had; "not now" is a normal answer, also while the range sleeps."""
        blocks = whole_number("blocks", blocks)
        return self._usable and can_take(self, blocks)

    def can_begin(self, prompt: TokenIds, *, salt: int = 0, spare: int = 0) -> bool:
        """Whether all of a prompt would have room now, the blocks of its known prefix shared, beside ``spare`` blocks.

        ``prompt`` is token ids. If so, ``sequence(prompt)`` and an append of the rest succeed, and leave ``spare``
        blocks to be had. Raises ValueError as ``sequence`` does, RangeError for a ``spare`` below 0.
        """
        return self._usable and can_hold(self, prompt, salt, whole_number("spare", spare))

    def spare(self, *, cached: bool) -> int:
        """Chunks of empty rows, with ``cached`` also of rows that only idle blocks hold: what others may ask for."""
        return spare_chunks(self, cached=cached)

    def shortage(self, blocks: int) -> Shortage | None:
        """Why ``blocks`` more blocks are not to be had now, and what would help; None if they are.

        Raises ClosedError after ``close``, StateError while the range sleeps.
        """
        self.check_usable()
        return shortage_of(self, whole_number("blocks", blocks))

    # -- sequences ----------------------------------------------------------------------------------------------

    @one_thread
    def sequence(self, prompt: TokenIds | None = None, *, salt: int = 0) -> Sequence:
        """A new sequence: without tokens, or with the prefix of ``prompt`` (token ids) that the prefix cache knows.

        At least one token of a prompt is always left to append. Prompts of different ``salt`` never share.
        Raises ClosedError after ``close``, StateError while the range sleeps, ValueError for ids that are none and for
        a prompt where the pool was made without ``prefix_cache``.
        """
        self.check_usable()
        if prompt is None:
            return Sequence(self)
        blocks, known = hold_prefix(self, prompt, salt)
        return Sequence(self, blocks, known)

    # -- blocks -------------------------------------------------------------------------------------------------

    @handed_over(lambda self, blocks: self.free(blocks))
    @one_thread
    def allocate(self, blocks: int) -> list[int]:
        """Take ``blocks`` blocks and return their ids, committing the rows that they need in one step.

        Raises OutOfMemoryError when there are not so many, or the device has no memory for their rows; nothing has
        changed then, and the error's ``report`` is the ``Shortage``.
        """
        self.check_usable()
        return take(self, whole_number("blocks", blocks))

    @handed_over(lambda self, blocks: self.free(blocks))
    @one_thread
    def allocate_array(self, blocks: int) -> Blocks:
        """As ``allocate``, for many blocks in less time: int64 [blocks]."""
        self.check_usable()
        return take_array(self, whole_number("blocks", blocks))

    @one_thread
    def claim(self, blocks: Ids[int]) -> None:
        """Hold these very blocks, committing the rows that they need: what rebuilds a given block table.

        Raises StateError for a block that is held already, OutOfMemoryError beyond the budget or the device's memory;
        nothing has changed then.
        """
        claim(self, blocks)

    @one_thread
    def fork(self, blocks: Ids[int]) -> None:
        """Count one more holder of each block, as ``Sequence.fork`` does; ``live`` follows sequences only."""
        share(self, block_ids(blocks))

    @one_thread
    def free(self, blocks: Ids[int], *, after: After = None) -> None:
        """Give up one hold on each block; rows that come empty beyond ``reserve_rows`` are decommitted in one step.

        Their memory goes when the work ``after`` (by default all of the device's; see ``GrowableRange.decommit``) is
        done; nothing waits for it. A block that is taken again before is there at once: order new work after the old.
        Raises StateError for a block freed twice, or for memory that an array views or a pin holds; nothing has
        changed then.
        """
        release.free(self, blocks, after)

    @one_thread
    def trim(self, *, cache: bool = False, after: After = None) -> int:
        """Decommit every empty row, the reserve too, and return their bytes (0 with ``prealloc``); as ``free``.

        With ``cache`` the idle blocks of the prefix cache go first.
        """
        return release.trim(self, cache=cache, after=after)

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
        self.check_not_closed()
        return release.set_budget(self, budget, after)

    def collect(self, *, wait: bool = False) -> int:
        """Unmap the retiring rows that no work uses any more; with ``wait``, wait for all. The bytes given back."""
        return self.range.collect(wait=wait)

    def copy_block(self, source: int, target: int, *, stream: Stream = 0) -> None:
        """Copy all bytes of one block to another, in the order of ``stream``: one copy a plane.

        Raises RangeError for a block that is not there, StateError for one without memory or for one onto itself.
        """
        self.check_usable()
        copy_one(self, source, target, stream)

    @uninterrupted
    def copy_blocks(self, pairs: Ids[tuple[int, int]], *, stream: Stream = 0) -> None:
        """Copy blocks, (source, target) each, as if all at once: a block may be the source of some and a target too.

        In the order of ``stream``, in as few steps as that allows. Pairs that go round in a circle need a block more
        for a moment: OutOfMemoryError where there is none. Raises RangeError for a block that is not there, StateError
        for one without memory, or that is the target twice, ValueError for what is no pair; nothing has changed then.
        """
        self.check_usable()
        copy_all(self, pairs, stream)

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
