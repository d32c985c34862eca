"""HeapChunks: which arena of a heap has which chunks of its range, and how chunks come to an arena and go.

A chunk that holds no block is memory for any address: before new memory is made, what lies empty and is used by no work
any more is mapped where it is needed. So physical memory never fragments.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sized

from .arena import Arena, EmptyRun, runs_of
from .errors import OutOfMemoryError
from .fence import After
from .finishing import Finishing
from .growable import GrowableRange
from .settling import Settling
from .shortage.addresses import span_shortage
from .sizes import format_size
from .spans import FreeSpans
from .streams import PER_THREAD, Stream, stream_handle

_BATCH = 32
"""Chunks that are brought together, or are new, in one go."""
_MARGIN = 12
"""A margin is one part in so many of a block."""
_MOST_FREE = 8
"""Times a batch that must be free for a growth of more than is needed."""


class HeapChunks:
    """The arenas on ``range``, by the key of their stream, and the addresses that no arena has."""

    def __init__(self, range_: GrowableRange, blocks: Sized, *, exact: bool) -> None:
        self.range, self.chunk_size = range_, range_.chunk_size
        self._blocks = blocks  # for errors, which say how many there are
        self._exact = exact  # never a chunk more than is needed
        self.addresses = FreeSpans(range_.chunk_count)  # in chunks; they have no memory
        self.leaving: list[tuple[int, int]] = []  # (first, stop), of no arena: their memory retires
        self.small: dict[object, Arena] = {}
        self.large: dict[object, Arena] = {}
        self.large_from = self.chunk_size // 2  # bytes of a block
        self._settling = Settling(range_.device)

    @property
    def arenas(self) -> list[Arena]:
        """All of them."""
        return [*self.large.values(), *self.small.values()]

    def arena(self, stream: Stream | None, length: int) -> Arena:
        """The arena of a stream, by whatever object names it, for blocks of ``length``; without chunks at first."""
        handle = None if stream is None else stream_handle(stream)
        key: object = (handle, threading.get_ident()) if handle == PER_THREAD else handle
        small = length < self.large_from
        known = self.small if small else self.large
        found = known.get(key)
        if found is None:
            boundary = 1 if small else self.chunk_size
            found = known[key] = Arena(key, handle, self.chunk_size, boundary=boundary)
        return found

    @property
    def free(self) -> int:
        """Bytes that have memory, and hold no block."""
        return sum(arena.free for arena in self.arenas)

    @property
    def held(self) -> int:
        """Bytes of the chunks that arenas have."""
        return sum(len(arena.chunks) for arena in self.arenas) * self.chunk_size

    def empty(self) -> int:
        """How many chunks hold no block."""
        return sum(len(run) for run in self._empty_runs())

    # -- chunks come ----------------------------------------------------------------------------------------------

    def extend(self, arena: Arena, length: int, after: After) -> int:
        """Have more chunks for ``arena``, where no free span has ``length`` bytes, and take them; where they begin.

        ``after`` is its stream, as the caller has it. All or nothing. Raises OutOfMemoryError when addresses or memory
        lack.
        """
        self._collect_addresses()
        ample = -(-(length + length // _MARGIN) // self.chunk_size)
        idle = self._idle(arena, max(ample, _BATCH))
        if sum(map(len, idle)) < ample and self._settling.settle(self.arenas, arena, after):
            idle = self._idle(arena, max(ample, _BATCH))
        lie = sum(map(len, idle))
        if 2 * lie >= ample > 2 and not self._exact:  # much lies empty, in pieces
            with contextlib.suppress(OutOfMemoryError):
                apart = self._take_apart(arena, length, max(ample, lie), idle)
                if apart is not None:
                    return apart
        return self._take_beside(arena, length, idle)

    def _take_apart(self, arena: Arena, length: int, count: int, idle: list[EmptyRun]) -> int | None:
        """Take the first ``length`` of ``count`` chunks at addresses of their own; None where no addresses are so long.

        Blocks come and go at sizes that change. What stays behind this one is a margin, for one a little larger to fit
        here, and brings pieces together.
        """
        first = self.addresses.take(count)
        if first is None:
            return None
        self._add_chunks(arena, first, first + count, idle, taken=length)
        return first * self.chunk_size

    def _take_beside(self, arena: Arena, length: int, idle: list[EmptyRun]) -> int:
        """Take ``length`` of as few chunks as make such a span with what is free beside them.

        Where nothing lies empty a large heap has some chunks more in one go, if nobody lacks them.
        """
        more = self._more() if not idle else 0
        first, stop = self._place(arena, length)
        size = self.chunk_size
        beside = (first * size - arena.length_before(first * size), stop * size)
        idle = list(_first([run for run in idle if run.arena is not arena or run.span not in beside], stop - first))
        end = max(stop, min(first + more, stop + self.addresses.length_from(stop)))
        if end > stop:
            self.addresses.cut(stop, stop, end - stop)
        self._add_chunks(arena, first, end, idle)
        found = arena.take(length)
        assert found is not None
        return found

    def _more(self) -> int:
        """How many chunks a growth should have at least: for each a sixteenth of all, if the device has many more."""
        more = 0 if self._exact else min(_BATCH, self.held // self.chunk_size // 16)
        if more > 1 and self.range.supply.can_take(_MOST_FREE * more):
            free = self.range.device.memory_info().free
            return more if free >= _MOST_FREE * more * self.chunk_size else 0
        return 0

    def _add_chunks(self, arena: Arena, first: int, stop: int, idle: list[EmptyRun], *, taken: int = 0) -> None:
        """Give memory to addresses for ``arena``, ``idle`` and new; the first ``taken`` bytes are in use."""
        fresh = stop - sum(map(len, idle))
        with contextlib.ExitStack() as undo:
            undo.callback(self._undo_add, first, stop, fresh, idle)
            for run in idle:
                run.leave()
            if fresh > first:
                self.range.commit(range(first, fresh))
            if idle:
                self.range.relocate(_chunks_of(idle), range(fresh, stop))
            undo.pop_all()
        for run in idle:
            self.addresses.give(run.first, len(run))
        arena.add(first, stop, taken=taken)

    def _undo_add(self, first: int, stop: int, fresh: int, idle: list[EmptyRun]) -> None:
        new = [chunk for chunk in range(first, fresh) if self.range.is_committed(chunk)]
        self.range.decommit(new, after=[])
        for run in idle:
            run.come_back()
        self.addresses.give(first, stop - first)

    def _place(self, arena: Arena, length: int) -> tuple[int, int]:
        """Addresses (first, stop) in chunks that make a span of ``length`` with what is free beside them."""
        size = self.chunk_size
        first = self.addresses.take(-(-length // size))
        if first is None:
            return self._squeeze(arena, length)
        stop = first + -(-length // size)
        fewer = first + -(-(length - arena.length_before(first * size)) // size)
        if fewer < stop:
            self.addresses.give(fewer, stop - fewer)
        return first, fewer

    def _squeeze(self, arena: Arena, length: int) -> tuple[int, int]:
        """The same where no addresses have it alone. Raises OutOfMemoryError with what could be had."""
        largest, size = arena.largest, self.chunk_size
        for start, count in self.addresses:
            stop = start + count
            before, behind = arena.length_before(start * size), arena.length_from(stop * size)
            largest = max(largest, before + count * size + behind)
            if before + count * size + behind >= length:
                self.addresses.cut(start, start, count)
                return start, stop
        raise OutOfMemoryError(
            f"no free span of {format_size(length)} in the heap's {format_size(self.range.reserved)} of addresses; "
            f"the largest is {format_size(largest)}; reserve more, addresses cost no memory",
            span_shortage("heap", length, self.range.reserved, self.held - self.free, largest, len(self._blocks)),
        )

    def _idle(self, arena: Arena, most: int) -> list[EmptyRun]:
        """Up to ``most`` chunks that are empty and used by no work, the arena's own first."""
        found = arena.empty_runs(most, settled=True)
        for other in self.arenas:
            if other is not arena:
                found += other.empty_runs(most - sum(map(len, found)), settled=True)
        return found

    # -- chunks go ------------------------------------------------------------------------------------------------

    def give_back(self, most: int | None = None) -> int:
        """Take the memory of (up to ``most``) empty chunks away, when no work uses it; how many chunks."""
        runs = list(self._empty_runs())
        if most is not None:
            runs = list(_first(runs, most))
        self.decommit(runs)
        return sum(map(len, runs))

    def decommit(self, runs: list[EmptyRun]) -> None:
        """Take the memory of empty chunks away: now if no work uses them, else when the device's work is done."""
        chunks = _chunks_of(runs)
        if not chunks:
            return
        with Finishing() as rest:
            rest.run(self.range.decommit, chunks, after=[] if all(run.settled for run in runs) else None)
            for run in runs:
                run.leave()
            self.leaving += runs_of(chunks)
            self._collect_addresses()

    def wait(self) -> bool:
        """Wait for the work that uses memory on its way out, so that its addresses can be had; whether there was any.

        Memory itself is waited for by the supply.
        """
        waited = bool(self.leaving)
        if waited:
            self.range.collect(wait=True)
            self._collect_addresses()
        return waited

    def _collect_addresses(self) -> None:
        """Have the addresses again whose memory has gone."""
        retire = self.range.is_retiring
        waiting = []
        for first, stop in self.leaving:
            if self.range.retiring and any(retire(chunk) for chunk in range(first, stop)):
                waiting.append((first, stop))
            else:
                self.addresses.give(first, stop - first)
        self.leaving = waiting

    def forget(self) -> None:
        """Drop everything: the range is closed, and all work is done."""
        self.small.clear()
        self.large.clear()
        self._settling.forget()

    def _empty_runs(self) -> Iterator[EmptyRun]:
        for arena in self.arenas:
            yield from arena.empty_runs()


def _chunks_of(runs: list[EmptyRun]) -> list[int]:
    return sorted(chunk for run in runs for chunk in range(run.first, run.stop))


def _first(runs: list[EmptyRun], most: int) -> Iterator[EmptyRun]:
    """Runs of no more than ``most`` chunks together; the last is shortened."""
    for run in runs:
        if most <= 0:
            return
        first = max(run.first, run.stop - most)
        yield EmptyRun(run.arena, run.span, first, run.stop, run.stamp)
        most -= run.stop - first
