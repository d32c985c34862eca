"""DeviceTables: the block tables of a batch where kernels read them, at addresses that stay.

A kernel that was captured in a graph knows the tables by their address, and a step that is queued must see the tables
of its own time. So they are changed only by work in the order of a stream: what has changed is written to a buffer of
pinned memory, copied, and put in place by the kernel patch_table. The host never writes where a kernel reads.
"""

from __future__ import annotations

import contextlib

import numpy as np

from kernels_cu import launch
from vmm import ClosedError, GrowableRange, RangeError, StateError, Stream, round_up, stream_handle
from vmm.finishing import Finishing
from vmm.uninterrupted import uninterrupted, whole

from ..whole_number import whole_number
from .batch import Batch
from .batched_table import Numbers
from .staging_ring import StagingRing

_BUFFERS = 4
_PATCHES = 4096
"""Entries that one buffer has room for: a step changes one a sequence at most, a new sequence one a block."""
_ALIGN = 256


class DeviceTables:
    """Tables, lengths and newest slots of ``batch`` for up to ``max_sequences`` sequences of ``max_blocks`` blocks.

    ``blocks`` int32 [max_sequences, max_blocks], ``lengths`` int32 [max_sequences], 0 beyond the batch, and ``slots``
    int64 [max_sequences], the slot of each sequence's last token, -1 where there is none: NumPy on the host driver,
    CuPy on a GPU. They are as the batch was at the last ``update``, for work that is queued behind it on its stream.
    Raises OutOfMemoryError when memory or addresses are not to be had, StateError where the driver keeps no bytes and
    for a batch that has tables on a device already, RangeError for a count below 1.
    """

    @whole
    def __init__(self, batch: Batch, max_sequences: int, max_blocks: int) -> None:
        max_sequences = whole_number("max_sequences", max_sequences)
        max_blocks = whole_number("max_blocks", max_blocks)
        if min(max_sequences, max_blocks) < 1:
            raise RangeError(f"{max_sequences} sequences of {max_blocks} blocks is no table; give 1 or more of each")
        if batch.watched:
            raise StateError("this batch has tables on a device already; close those first")
        self.batch, self.max_sequences, self.max_blocks = batch, max_sequences, max_blocks
        device, table = batch.pool.device, batch.pool.table
        sizes = (4 * max_sequences * max_blocks, 4 * max_sequences, 8 * max_sequences, _BUFFERS * _PATCHES * 24)
        starts = np.cumsum([0, *(round_up(size, _ALIGN) for size in sizes)]).tolist()
        with contextlib.ExitStack() as undo:
            ring = StagingRing(device, _PATCHES * 24 + 12 * max_sequences, _BUFFERS)
            undo.callback(ring.close)
            memory = GrowableRange(device, starts[-1], name=f"tables of {batch.pool.range.name}")
            undo.callback(memory.close)
            memory.grow(starts[-1])
            self.blocks = memory.array(np.int32, (max_sequences, max_blocks), starts[0])
            self.lengths = memory.array(np.int32, (max_sequences,), starts[1])
            self.slots = memory.array(np.int64, (max_sequences,), starts[2])
            self._patches = memory.array(np.int64, (_BUFFERS, _PATCHES, 3), starts[3])
            self._addresses = [memory.base + start for start in starts]
            undo.pop_all()
        self._ring, self._range = ring, memory
        self._changes = table.watch()
        self._lengths: Numbers = np.zeros(0, np.int64)  # at the last update
        self._current = False  # whether there was one
        batch.watched = True
        batch.moved.update(range(len(batch)))

    def __repr__(self) -> str:
        room = f"{self.max_sequences} sequences of {self.max_blocks} blocks"
        return f"DeviceTables({'closed' if self._range.closed else f'{len(self.batch)} of {room}'})"

    def __enter__(self) -> DeviceTables:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def waits(self) -> int:
        """How often ``update`` had to wait because work from four updates ago was not done."""
        return self._ring.waits

    def check_current(self) -> None:
        """Raise StateError where the batch has changed since the last ``update``, and as ``update`` does."""
        self._check()
        if not (self._current and self._changes.none and not self.batch.moved and self._lengths_are_known()):
            raise StateError("the batch has changed since its tables were updated; call update() once before each step")

    @uninterrupted
    def update(self, *, stream: Stream = 0) -> int:
        """Bring the tables up to the batch of now, in the order of ``stream``; how many entries have changed.

        Raises as ``Batch.check``, RangeError where the batch has more sequences or longer ones than there is room for;
        nothing has changed then, and nothing is lost: the next update brings all.
        """
        self._check()
        self._check_room()
        with contextlib.ExitStack() as undo:
            undo.callback(lambda: self.batch.moved.update(range(len(self.batch))))
            patches = self._new_patches()
            for start in range(0, len(patches) or 1, _PATCHES):
                self._queue(patches[start : start + _PATCHES], stream)
            undo.pop_all()
        self.batch.moved.clear()
        self._lengths, self._current = self.batch.lengths, True
        return len(patches)

    @uninterrupted
    def close(self) -> None:
        """Give the memory back, when the device's work is done. Closing twice does nothing."""
        if self._range.closed:
            return
        with Finishing() as rest:
            rest.run(self._ring.close)
            for name in ("blocks", "lengths", "slots", "_patches"):
                vars(self).pop(name, None)  # a view would keep its memory
            rest.run(self._range.close)
        if self.batch.watched:
            self.batch.watched = False
            self.batch.pool.table.unwatch(self._changes)

    # -- steps --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._range.closed:
            raise ClosedError("these tables were closed; make new ones")
        self.batch.check()

    def _lengths_are_known(self) -> bool:
        return bool(np.array_equal(self.batch.lengths, self._lengths))

    def _check_room(self) -> None:
        longest = -(-int(self.batch.lengths.max(initial=0)) // self.batch.pool.table.block_size)
        if len(self.batch) > self.max_sequences or longest > self.max_blocks:
            raise RangeError(
                f"{len(self.batch)} sequences of up to {longest} blocks do not fit {self.max_sequences} of "
                f"{self.max_blocks}; make larger tables"
            )

    def _new_patches(self) -> Numbers:
        """Place, column and block of every entry that is not on the device as it is here, int64 [n, 3]."""
        batch, table = self.batch, self.batch.pool.table
        used = -(-batch.lengths // table.block_size)
        changed = self._changes.take()
        moved = np.array(sorted(batch.moved) if changed else range(len(batch)), np.int64)
        place_of = np.full(len(table.lengths), -1, np.int64)
        place_of[batch.rows] = np.arange(len(batch))
        place_of[batch.rows[moved]] = -1
        places, columns = np.repeat(moved, used[moved]), _counted(used[moved])
        if changed:
            there = place_of[changed[0]]
            there, column = there[there >= 0], changed[1][there >= 0]
            known = column < used[there]
            entries = np.unique(there[known] * self.max_blocks + column[known])  # each once, as it is now
            places = np.concatenate((places, entries // self.max_blocks))
            columns = np.concatenate((columns, entries % self.max_blocks))
        return np.stack((places, columns, table.blocks[batch.rows[places], columns]), axis=1)

    def _queue(self, patches: Numbers, stream: Stream) -> None:
        """Queue one buffer's patches, and the lengths and slots of all."""
        device, room, stream = self.batch.pool.device, self.max_sequences, stream_handle(stream)
        with self._ring.buffer(stream) as (number, first):
            memory, start = self._ring.memory, first + _PATCHES * 24
            memory.array(np.int64, patches.shape, first)[:] = patches
            memory.array(np.int64, (room,), start)[:] = self._newest_slots()
            lengths = memory.array(np.int32, (room,), start + 8 * room)
            lengths[: len(self.batch)] = self.batch.lengths
            lengths[len(self.batch) :] = 0
            _blocks, to_lengths, to_slots, to_patches, _end = self._addresses
            copy, at = device.driver.copy_in_async, memory.address
            copy(to_slots, at + start, 8 * room, stream)
            copy(to_lengths, at + start + 8 * room, 4 * room, stream)
            if len(patches):
                copy(to_patches + number * _PATCHES * 24, at + first, patches.nbytes, stream)
                here = self._patches[number, : len(patches)]
                launch.patch_table(device, self.blocks, here, stream=stream)

    def _newest_slots(self) -> Numbers:
        table, rows, last = self.batch.pool.table, self.batch.rows, self.batch.lengths - 1
        slots = np.full(self.max_sequences, -1, np.int64)
        columns, offsets = np.divmod(np.maximum(last, 0), table.block_size)
        newest = table.blocks[rows, columns].astype(np.int64) * table.block_size + offsets
        slots[: len(rows)] = np.where(last < 0, -1, newest)
        return slots


def _counted(counts: Numbers) -> Numbers:
    """0 to each count - 1, one after the other."""
    ends = np.cumsum(counts)
    numbers: Numbers = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return numbers
