"""SwapSpace: pinned host memory for sequences that must make room, and come back later with the same bytes.

A preempted sequence is either computed again or copied out and back. Copies are queued on a stream and nobody waits for
them: the blocks are freed behind the copy out, the host memory is free again behind the copy in.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref

from vmm import ClosedError, Device, Fence, RangeError, Shortage, Size, StateError, Stream, format_size, parse_size
from vmm.finishing import Finishing
from vmm.uninterrupted import uninterrupted, whole

from .host_room import HostRoom, HostSpan
from .pool import KVPool
from .prefix.known_tokens import KnownTokens
from .sequence import Sequence
from .shortage.host_memory import room_shortage
from .swap_copies import copy_in, copy_out


class Swapped:
    """A sequence whose bytes are on the host: ``length`` tokens of ``pool``, the first ``dropped`` of them given up.

    Made by ``SwapSpace.put``, for ``restore`` or ``discard``.
    """

    __slots__ = ("dropped", "fence", "known", "length", "pool", "spans", "stream")

    def __init__(self, sequence: Sequence, known: KnownTokens | None, stream: Stream) -> None:
        self.pool, self.length, self.dropped = sequence.pool, sequence.length, sequence.dropped
        self.known, self.stream = known, stream
        self.spans: list[HostSpan] = []
        self.fence: Fence | None = None  # of the copy out

    def __repr__(self) -> str:
        where = f"{format_size(self.host_bytes)} on the host" if self.spans else "restored or discarded"
        return f"Swapped({self.length} tokens of {self.pool.range.name!r}, {where})"

    @property
    def blocks(self) -> int:
        """Blocks that it needs to come back."""
        return sum(span.blocks for span in self.spans)

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that it takes."""
        return sum(span.size for span in self.spans)


class SwapSpace:
    """``size`` bytes of pinned host memory of ``device`` for sequences of any pools there. One thread at a time.

    Every block of a sequence is copied, those too that another sequence or the prefix cache holds: a sequence comes
    back with blocks of its own, and shares none. Raises OutOfMemoryError when the host has not so much memory.
    """

    @whole
    def __init__(self, device: Device, size: Size) -> None:
        self.device = device
        self._room = HostRoom(device, parse_size(size, name="size"))
        self._held: dict[Swapped, None] = {}
        self._finalizer = weakref.finalize(self, _drop, self._room)

    def __repr__(self) -> str:
        return f"SwapSpace({len(self._held)} sequences, {format_size(self.used)} of {format_size(self.size)} used)"

    def __enter__(self) -> SwapSpace:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of pinned host memory."""
        return self._room.size

    @property
    def used(self) -> int:
        """Bytes that swapped sequences take."""
        return sum(swapped.host_bytes for swapped in self._held)

    @property
    def leaving(self) -> int:
        """Bytes that nobody holds and that copies in flight still read or write."""
        return self._room.leaving

    @property
    def free(self) -> int:
        """Bytes that can be had without a wait, in one or several spans."""
        return self._room.free

    @property
    def swapped(self) -> list[Swapped]:
        """What is here, in the order in which it came."""
        return list(self._held)

    def can_put(self, sequence: Sequence) -> bool:
        """Whether there is host memory for ``sequence``; "not now" is a normal answer."""
        self._check_open()
        sequence.check_in(sequence.pool)
        return self._room.holds(len(sequence.held), sequence.pool.layout.block_bytes)

    def shortage(self, sequence: Sequence) -> Shortage | None:
        """Why there is no host memory for ``sequence``; None where there is. See ``vmm.Shortage``."""
        if self.can_put(sequence):
            return None
        return room_shortage(self._room, len(sequence.held), sequence.pool.layout.block_bytes, self._held)

    def can_restore(self, swapped: Swapped) -> bool:
        """Whether its pool has the blocks now."""
        self._check_held(swapped)
        return swapped.pool.can_allocate(swapped.blocks)

    # -- changes ------------------------------------------------------------------------------------------------

    @uninterrupted
    def put(self, sequence: Sequence, *, stream: Stream = 0) -> Swapped:
        """Copy a sequence to the host and free it; what brings it back.

        The copies are queued on ``stream``, after what was queued there before, and the blocks are freed behind them:
        order other work that writes it before, and later work on its blocks after. With a prefix cache its whole
        blocks stay known there until they go. Raises OutOfMemoryError when there is not enough host memory, StateError
        for a sequence whose bytes were lost; nothing has changed then.
        """
        self._check_open()
        pool = sequence.pool
        sequence.check_in(pool)
        self._check_device(pool)
        made = Swapped(sequence, _known_of(sequence), stream)
        blocks = sequence.held
        with contextlib.ExitStack() as undo:
            made.spans = self._room.take(len(blocks), pool.layout.block_bytes, self._held)
            undo.callback(self._take_back, made)
            at = 0
            for span in made.spans:
                copy_out(pool, blocks[at : at + span.blocks], self._room.address(span), stream)
                at += span.blocks
            made.fence = self.device.fence(stream)
            with Finishing() as rest:
                rest.run(sequence.free, after=stream)
                self._held[made] = None
                undo.pop_all()
        return made

    @uninterrupted
    def restore(self, swapped: Swapped, *, stream: Stream = 0) -> Sequence:
        """Bring a sequence back into its pool: a new one with the same tokens, bytes and known token ids.

        The copies are queued on ``stream``; order launches that read it after them. Raises OutOfMemoryError when the
        pool has not enough blocks, StateError for what is not here any more; nothing has changed then.
        """
        self._check_held(swapped)
        pool = swapped.pool
        pool.check_usable()
        with contextlib.ExitStack() as undo:
            blocks = pool.allocate(swapped.blocks)
            undo.callback(pool.free, blocks, after=stream)
            if swapped.fence is not None and stream != swapped.stream:
                swapped.fence.wait()  # streams have no order among them
            at = 0
            for span in swapped.spans:
                copy_in(pool, blocks[at : at + span.blocks], self._room.address(span), stream)
                at += span.blocks
            fence = self.device.fence(stream)
            undo.pop_all()
        with Finishing() as rest:
            made = pool.sequence()
            skipped = swapped.dropped // pool.layout.block_size
            pool.tokens += swapped.length - swapped.dropped
            made.begin([*[0] * skipped, *blocks], swapped.known, swapped.length)
            pool.table.dropped[made.row] = skipped
            self._end(swapped, fence, rest)
        return made

    @uninterrupted
    def discard(self, swapped: Swapped) -> None:
        """Forget a sequence: its host memory is free when the copy out is done. Raises StateError the second time."""
        self._check_held(swapped)
        with Finishing() as rest:
            fence, swapped.fence = swapped.fence, None
            self._end(swapped, fence, rest)

    @uninterrupted
    def collect(self) -> int:
        """Take back host memory that no copy uses any more; the bytes that are still used by some."""
        self._room.collect()
        return self._room.leaving

    @uninterrupted
    def close(self) -> None:
        """Wait for the copies and free the host memory; what was swapped out is gone. Closing twice does nothing."""
        if not self._finalizer.alive:
            return
        self.device.synchronize()
        with Finishing() as rest:
            rest.run(self._room.close)
            for swapped in self.swapped:
                self._forget(swapped, rest)
            self._finalizer.detach()

    # -- steps --------------------------------------------------------------------------------------------------

    def _take_back(self, made: Swapped) -> None:
        """Undo a ``put``: the sequence is as it was, and copies may be on their way."""
        fence, made.fence = made.fence, None
        if fence is None:
            self.device.synchronize()
        spans, made.spans = made.spans, []
        self._room.give(spans, fence)

    def _end(self, swapped: Swapped, fence: Fence | None, rest: Finishing) -> None:
        """Its host memory is free behind ``fence``."""
        self._room.give(swapped.spans, fence)
        self._forget(swapped, rest)

    def _forget(self, swapped: Swapped, rest: Finishing) -> None:
        del self._held[swapped]
        swapped.spans = []
        out, swapped.fence = swapped.fence, None
        if out is not None:
            rest.run(out.close)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("the swap space is closed; make a new one")

    def _check_held(self, swapped: Swapped) -> None:
        self._check_open()
        if swapped not in self._held:
            raise StateError(f"{swapped} is not in this swap space: put a sequence in, and restore it once")

    def _check_device(self, pool: KVPool) -> None:
        if not pool.device.is_same(self.device):
            raise RangeError(f"{pool.range.name!r} is on {pool.device}, the swap space is of {self.device}")


def _known_of(sequence: Sequence) -> KnownTokens | None:
    """The token ids of a sequence, for blocks that nobody knows yet. A chain with a gap is found by nobody."""
    sequence._learn()
    known = sequence._known
    if known is None or sequence.dropped:
        return None
    copy = known.copy()
    copy.stored = 0
    return copy


def _drop(room: HostRoom) -> None:
    """Free the memory of a space that was dropped without a close, and say so."""
    try:
        room.device.synchronize()
    finally:
        room.close()
    warnings.warn("a swap space was never closed", ResourceWarning, stacklevel=2)
