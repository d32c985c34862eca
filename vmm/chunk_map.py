"""ChunkMap: which chunk of an address range has which physical memory, and the changes to that.

Mechanism only: what may be changed is for the caller (``GrowableRange``) to ask. Every change is all-or-nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .address_range import AddressRange, Mapping, adjacent
from .driver import Access
from .errors import RangeError, VmmError
from .fence import Fence
from .finishing import Finishing
from .physical import PhysicalMemory
from .retirement import Kept
from .sizes import format_size
from .supply import Supply
from .suspended import Suspended
from .zero_window import ZeroWindow

_owners = itertools.count(1)  # 0 is "nobody yet"
_SEVERAL = -1


@dataclass(frozen=True, slots=True)
class Run:
    """Committed bytes from ``start`` to ``stop`` (offsets from the base) with one access."""

    start: int
    stop: int
    access: Access


class ChunkMap:
    """The mappings of ``addresses`` by chunk index; a chunk from ``supply`` starts with ``access``."""

    def __init__(self, addresses: AddressRange, supply: Supply, access: Access, name: str) -> None:
        self.addresses, self.supply, self.access, self.name = addresses, supply, access, name
        self.device, self.chunk_size = addresses.device, supply.chunk_size
        self.mappings: dict[int, Mapping] = {}
        self.leaving: dict[int, Mapping] = {}  # mapped still, and nobody's: they go when their fence opens
        self.earlier: dict[int, tuple[Fence, ...]] = {}  # committed again while this work was in flight
        self.windows: list[ZeroWindow] = []
        self.asleep: Suspended | None = None
        self.retirement = addresses.device.retirement
        self._owner = next(_owners)

    def runs(self) -> list[Run]:
        """The committed spans in order, cut where the access changes."""
        found: list[Run] = []
        for chunk in sorted(self.mappings):
            mapping = self.mappings[chunk]
            if found and found[-1].stop == mapping.offset and found[-1].access == mapping.access:
                found[-1] = Run(found[-1].start, mapping.stop, mapping.access)
            else:
                found.append(Run(mapping.offset, mapping.stop, mapping.access))
        return found

    def is_mapped(self, chunk: int) -> bool:
        """Whether a chunk has physical memory of its own, retiring or not."""
        return chunk in self.mappings or chunk in self.leaving

    def access_over(self, start: int, stop: int, device: int) -> Access:
        """The least access of ``device`` under bytes ``start`` to ``stop``; RangeError where a chunk lacks."""
        own = device == self.device.ordinal
        found = Access.READWRITE if own else self.addresses.peers.get(device, Access.NONE)
        for chunk in range(start // self.chunk_size, -(-stop // self.chunk_size)):
            mapping = self.mappings.get(chunk)
            if mapping is None:
                raise RangeError(f"bytes {start} to {stop} of {self.name}: chunk {chunk} is not committed; grow first")
            found = min(found, mapping.access) if own else found
        return found

    def commit(self, wanted: Sequence[int]) -> None:
        """Give memory to chunks that have none: map each, set access once a contiguous run. ``wanted`` is ascending.

        A chunk that is still mapped because it retires stays as it is.
        """
        kept = self._take_back(wanted) if self.leaving else []
        back = {one.chunk: one.mapping for one in kept}
        fresh = [chunk for chunk in wanted if chunk not in back] if back else wanted
        memory: list[PhysicalMemory] = []
        done: list[Mapping] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._undo_commit, kept, fresh, memory, done)
            self.supply.retire(-len(kept))  # they do not come back: who counts on that would be refused in the end
            self.retirement.poll()  # what came free meanwhile need not be created
            memory += self.supply.take(len(fresh))
            for window in self.windows:
                window.uncover(fresh)
            self._map_all(fresh, memory, done)
            undo.pop_all()
        self.mappings.update(zip(fresh, done, strict=True))
        self.mappings.update(back)
        for one in kept:
            del self.leaving[one.chunk]
            self.earlier[one.chunk] = (one.entry.fence, *one.entry.older)

    def decommit(self, leaving: Sequence[int], fence: Fence) -> None:
        """Take the memory of committed chunks, in ascending order, away: now if ``fence`` is open, else when it opens.

        The fence is closed then, or if this fails.
        """
        mappings = {chunk: self.mappings[chunk] for chunk in leaving}
        with contextlib.ExitStack() as undo:
            undo.callback(fence.close)
            older = self._in_flight(leaving)
            done = fence.done and not older
            if done:
                self.unmap_runs(list(mappings.values()))
            undo.pop_all()
        for chunk in leaving:
            del self.mappings[chunk]
            self.earlier.pop(chunk, None)
        if done:
            with Finishing() as rest:
                rest.run(self.give, list(mappings.values()))
                rest.run(fence.close)
        else:
            self.leaving.update(mappings)
            self.supply.retire(len(mappings))
            self.retirement.add(self, mappings, fence, older)

    def _in_flight(self, chunks: Sequence[int]) -> list[Fence]:
        """The fences of earlier decommits of these chunks, which came back before the work was done."""
        found = {id(fence): fence for chunk in chunks for fence in self.earlier.get(chunk, ())} if self.earlier else {}
        return [fence for fence in found.values() if not fence.done]

    def unmap(self, mappings: list[Mapping]) -> None:
        """Unmap what has retired, each contiguous run in one call. Ascending order; all or none."""
        self.unmap_runs(mappings)
        for mapping in mappings:
            del self.leaving[mapping.offset // self.chunk_size]
        self.supply.retire(-len(mappings))

    def give(self, mappings: list[Mapping]) -> None:
        """Return the memory of mappings that are gone."""
        self.supply.give([mapping.memory for mapping in mappings])

    def unmap_runs(self, mappings: Sequence[Mapping]) -> None:
        """Unmap mappings, in the order of their addresses, and keep their memory: all or none."""
        with contextlib.ExitStack() as undo:
            gone: list[Mapping] = []
            undo.callback(self._undo_unmap, gone)
            for run in adjacent(mappings):
                self.addresses.unmap(run)
                gone.extend(run)
            self._cover([mapping.offset // self.chunk_size for mapping in gone])
            undo.pop_all()

    def lift(self) -> list[Mapping]:
        """Unmap every committed chunk and keep its memory, for ``put_down`` or the supply. The work is done."""
        ordered = [self.mappings[chunk] for chunk in sorted(self.mappings)]
        self.unmap_runs(ordered)
        self.mappings.clear()
        return ordered

    def put_down(self, lifted: Sequence[Mapping]) -> None:
        """Map again what was lifted: the same memory at the same places."""
        for mapping in lifted:
            self.addresses.restore(mapping)
            self.mappings[mapping.offset // self.chunk_size] = mapping

    def protect(self, chunks: Sequence[int], access: Access) -> None:
        """Set the access of adjacent committed chunks in one call."""
        self.addresses.set_access([self.mappings[chunk] for chunk in chunks], access)

    def move(self, chunk: int) -> Mapping:
        """Put the bytes of ``chunk`` into other physical memory at the same address."""
        old = self.mappings[chunk]
        self.device.synchronize()  # what work in flight writes, on whatever stream, moves too
        with contextlib.ExitStack() as undo:
            taken = self.supply.take(1)
            undo.callback(self.supply.give, taken)
            taken[0].last_owner = _SEVERAL  # if it goes back, it may hold these bytes or still another's
            with self.second_address(taken[0]) as address:
                self.device.driver.copy_async(address, old.address, old.size)
            new = self._exchange(old, taken[0])
            undo.pop_all()
        taken[0].last_owner = self._owner
        self.mappings[chunk] = new
        self.supply.give([old.memory])
        return new

    def close(self) -> None:
        """Unmap everything, free the addresses, return the memory. The work has been waited for.

        Where an unmap is refused nothing has changed; what else is refused only gives back, and all the rest is done.
        """
        with self.retirement.alone(), Finishing() as rest:
            self.addresses.unmap_all()
            rest.run(self.retirement.forget, self)
            memory = [mapping.memory for mapping in (*self.mappings.values(), *self.leaving.values())]
            memory += [window.forget() for window in self.windows]
            self.supply.retire(-len(self.leaving))
            for books in (self.windows, self.mappings, self.leaving, self.earlier):
                books.clear()
            if self.asleep:
                rest.run(self.asleep.close)
            rest.run(self.addresses.close)
            rest.run(self.supply.give, memory)

    # -- steps and their undo -----------------------------------------------------------------------------------

    def _take_back(self, wanted: Sequence[int]) -> list[Kept]:
        """What retires of ``wanted``. Work in flight keeps the access that it has, so other access waits for it."""
        found = [self.leaving.get(chunk) for chunk in wanted]
        if any(mapping is not None and mapping.access != self.access for mapping in found):
            self.retirement.collect(self, wait=True)
        return self.retirement.take_back(self, wanted)

    def _map_all(self, wanted: Sequence[int], memory: Sequence[PhysicalMemory], done: list[Mapping]) -> None:
        """Map, then set access a run at a time. ``done`` grows with each mapping, for the undo."""
        chunk = wanted[0] if wanted else 0
        try:
            for chunk, piece in zip(wanted, memory, strict=True):
                done.append(self.addresses.map(chunk * self.chunk_size, piece))
            for run in adjacent(done):
                chunk = run[0].offset // self.chunk_size
                self._give_access(run)
        except VmmError as error:
            error.add(f"at chunk {chunk} of {self.name}, {format_size(self.chunk_size)} each")
            raise

    def _give_access(self, run: Sequence[Mapping]) -> None:
        """Set the range's access; bytes that another owner left behind are zeroed first."""
        foreign = [mapping for mapping in run if mapping.memory.last_owner not in (0, self._owner)]
        if foreign:
            self.addresses.set_access(run, Access.READWRITE, peers=False)
            self._zero(foreign)
        if not foreign or self.access != Access.READWRITE or self.addresses.peers:
            self.addresses.set_access(run, self.access)
        for mapping in run:
            mapping.memory.last_owner = self._owner

    def _zero(self, mappings: Sequence[Mapping]) -> None:
        with contextlib.ExitStack() as last:
            last.callback(self.device.synchronize)  # once more: what comes after a failure unmaps
            with self.device.current():
                for mapping in mappings:
                    self.device.driver.fill_async(mapping.address, 0, mapping.size)
            self.device.synchronize()
            last.pop_all()

    def _undo_commit(
        self, kept: list[Kept], fresh: Sequence[int], memory: list[PhysicalMemory], done: list[Mapping]
    ) -> None:
        for run in adjacent(done):
            self.addresses.unmap(run)
        self.supply.give(memory)
        self._cover(fresh)
        self.supply.retire(len(kept))
        self.retirement.put_back(kept)

    def _cover(self, chunks: Sequence[int]) -> None:
        """Let chunks that have no memory of their own read as zeros where a window is open."""
        for window in self.windows:
            window.cover(chunks)

    def _undo_unmap(self, gone: list[Mapping]) -> None:
        for window in self.windows:
            window.uncover(mapping.offset // self.chunk_size for mapping in gone)
        for mapping in gone:
            self.addresses.restore(mapping)

    @contextlib.contextmanager
    def second_address(self, memory: PhysicalMemory) -> Iterator[int]:
        """Map ``memory`` somewhere for work queued inside the ``with``, which is waited for at its end."""
        window = AddressRange(self.device, self.chunk_size)
        with contextlib.ExitStack() as last:
            last.callback(window.close)  # once more, should the close below fail
            last.callback(self.device.synchronize)  # and never under work in flight
            target = window.map(0, memory)
            window.set_access([target], Access.READWRITE)
            with self.device.current():
                yield target.address
            self.device.synchronize()
            window.close()
            last.pop_all()

    def _exchange(self, old: Mapping, memory: PhysicalMemory) -> Mapping:
        """Map ``memory`` where ``old`` was, or put ``old`` back."""
        with contextlib.ExitStack() as undo:
            self.addresses.unmap([old])
            placed: list[Mapping] = []
            undo.callback(self._undo_exchange, old, placed)
            placed.append(self.addresses.map(old.offset, memory))
            self.addresses.set_access(placed, old.access)
            undo.pop_all()
        return placed[0]

    def _undo_exchange(self, old: Mapping, placed: list[Mapping]) -> None:
        self.addresses.unmap(placed)
        self.addresses.restore(old)
