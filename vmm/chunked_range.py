"""ChunkedRange: a reserved span of addresses whose physical memory comes and goes in chunks. The heart of vmm.

``commit`` and ``decommit`` take any set of chunk indices. Every change is all-or-nothing: it looks first, then changes,
and any failure leaves handles, mappings and counts as they were. ``GrowableRange`` adds a front that moves.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

from .address_range import Mapping
from .device import Device
from .driver import Access
from .errors import AlignmentError, RangeError, StateError
from .fence import After
from .memory_range import MemoryRange
from .relocation import relocate
from .sizes import Size, parse_span
from .suspended import Suspended
from .zero_window import ZeroWindow


class ChunkedRange(MemoryRange):
    """``reserve`` bytes of addresses on ``device``, committed in chunks from ``supply`` (by default one of its own).

    ``base`` never moves. ``access`` ("rw", "r" or "none") is what a committed chunk gets. A range belongs to one thread
    at a time. Offsets are bytes from ``base``; chunk i covers ``[i * chunk_size, (i + 1) * chunk_size)``.

    Raises OutOfMemoryError when the addresses are not to be had, AlignmentError for a chunk that is no multiple of the
    granularity; each method names its own errors.
    """

    # -- chunks ----------------------------------------------------------------------------------------------------

    def commit(self, chunks: Iterable[int]) -> None:
        """Give physical memory to ``chunks``: create or reuse and map each, set access once a contiguous run.

        Raises RangeError for an index outside the reservation, StateError for one that is committed already,
        OutOfMemoryError when chunks run out; the error says at which chunk, and nothing has changed.
        """
        with self._alone():
            self.device.check_open()
            wanted = self._check_new(chunks)
            if wanted:
                self._chunks.commit(wanted)

    def decommit(self, chunks: Iterable[int], *, after: After = None) -> None:
        """Take the memory of ``chunks`` away when the work that may use it is done; never waits for it.

        ``after`` names that work: a stream or an event of CuPy, cuda.core, PyTorch or the bindings, a stream's handle,
        or a list of them. None is all work queued on the device so far, whatever its stream; while a stream captures a
        graph, name the streams. Without such work the chunks are unmapped at once, each run in one call. Else they are
        ``retiring``: gone for the caller, mapped for the work, and unmapped by a later ``collect``, which every commit
        and decommit on the device calls too. A chunk that is committed again before stays as it is: order new work
        after the old.

        Raises StateError for a chunk that is not committed, viewed by a live array, pinned, or held by a front,
        TypeError for an ``after`` that is neither stream nor event; nothing has changed then.
        """
        with self._alone(asleep=True):
            if self.asleep:
                self.asleep.drop(self._check_leaving(chunks))
                return
            leaving = self._check_leaving(chunks)
            if leaving:
                self.device.retirement.poll()
                self._chunks.decommit(leaving, self.device.fence(after))

    def collect(self, *, wait: bool = False) -> int:
        """Unmap what retires here and is used by no work any more; with ``wait``, wait until that is all of it.

        Returns the bytes given back.
        """
        self._check_open()
        return self.device.retirement.collect(self._chunks, wait=wait)

    def relocate(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Take the memory of chunks ``sources`` and put it at ``targets``, as many chunks that have none: no create.

        All work that uses the sources must be done. What the memory holds comes along; the smallest source goes to the
        smallest target. Raises StateError for a source that is not committed, viewed or pinned and for a target that
        is committed or retiring, RangeError for other numbers of both; nothing has changed then.
        """
        with self._alone():
            taken, wanted = self._check_leaving(sources), self._check_new(targets)
            if len(taken) != len(wanted):
                raise RangeError(f"the memory of {len(taken)} chunks cannot go to {len(wanted)} places; give as many")
            retiring = self._chunks.leaving.keys() & wanted if self._chunks.leaving else ()
            if retiring:
                raise StateError(f"chunk {min(retiring)} of {self.name} still retires; collect(wait=True) first")
            if taken:
                relocate(self._chunks, taken, wanted)

    # -- what the memory may be used for ---------------------------------------------------------------------------

    def protect(self, start: Size, stop: Size, access: str | Access) -> None:
        """Set the access of the committed chunks from ``start`` to ``stop`` (offsets, multiples of the chunk).

        It takes effect at once, for work in flight too: wait for what needs more than is left.
        Raises AlignmentError, RangeError, or StateError where a chunk is not committed or a live array needs more.
        """
        wanted = Access.of(access)
        with self._alone():
            span = parse_span(start, stop, self.chunk_size, self.reserved)
            self._refuse_less(span, wanted, self.device.ordinal)
            chunks = range(span[0] // self.chunk_size, span[1] // self.chunk_size)
            for chunk in chunks:
                self.mapping(chunk)
            self._chunks.protect(chunks, wanted)

    def grant(self, device: Device, access: str | Access) -> None:
        """Let another device of the same driver read ("r") or write ("rw") the whole range, or no more ("none").

        What is committed now and what will be: one call a contiguous run now, and none more later. A decommit does not
        wait for work of the other device by itself: name its stream in ``after=``. Before a grant is taken back that
        work must be done.

        Raises StateError when ``device`` cannot reach this one's memory (peer access) or when an array made for it
        needs more, AlignmentError when its granularity is coarser than the chunk, ValueError for the range's own
        device; nothing has changed then.
        """
        if not isinstance(device, Device) or not device.driver.is_same(self.device.driver):
            raise ValueError(f"{device!r} is no Device of the driver of {self.name}; open it with driver=...")
        wanted, other, own = Access.of(access), device.ordinal, self.device.ordinal
        if other == own:
            raise ValueError(f"device {own} is the range's own; set its access with protect()")
        if self.chunk_size % device.granularity:
            need = f"{device.granularity} bytes, the granularity of device {other}"
            raise AlignmentError(f"the chunk of {self.chunk_size} bytes is no multiple of {need}; make larger chunks")
        if wanted and not self.device.driver.can_access_peer(other, own):
            raise StateError(f"device {other} cannot reach the memory of device {own}: they have no peer access")
        with self._alone(), self.device.retirement.alone():  # nothing is unmapped under the calls
            self._refuse_less((0, self.reserved), wanted, other)
            self._chunks.addresses.grant(other, wanted)
        device.driver.ranges.add(self)  # errors of its work name the range too

    def remap(self, chunk: int) -> Mapping:
        """Move the bytes of ``chunk`` to other physical memory at the same address, and return the new mapping.

        Raises StateError when the chunk is not committed, not readable, or pinned, OutOfMemoryError when there is no
        chunk to move to; nothing has changed then.
        """
        with self._alone():
            old = self.mapping(chunk)
            self._pins.refuse([(old.offset, old.stop)], "move")
            if old.access == Access.NONE:
                raise StateError(f"chunk {chunk} of {self.name} cannot be read; protect() it as 'r' or 'rw' first")
            return self._chunks.move(chunk)

    def zero_window(self, start: Size, stop: Size) -> ZeroWindow:
        """Let the uncommitted chunks from ``start`` to ``stop`` (multiples of the chunk) be read as zeros.

        One chunk of zeros is mapped at all of them, until the window is closed; see ``ZeroWindow`` for what it costs.
        It is for kernels and copies, by address: ``array`` still takes committed memory only.
        Raises AlignmentError, RangeError, StateError for a window that overlaps an open one, and OutOfMemoryError when
        there is no chunk for the zeros; nothing has changed then.
        """
        with self._alone():
            span = parse_span(start, stop, self.chunk_size, self.reserved)
            first, last = span[0] // self.chunk_size, span[1] // self.chunk_size
            for window in self._chunks.windows:
                if first < window.stop and window.first < last:
                    raise StateError(f"chunks {first} to {last - 1} overlap {window!r}; close that first")
            return ZeroWindow(self._chunks, first, last)

    # -- sleep -----------------------------------------------------------------------------------------------------

    def suspend(self, tag: str, *, backup: bool) -> Suspended:
        """The first half of a sleep, as ``Residency`` does it: wait for all work, and copy the bytes if ``backup``."""
        with self._alone():
            everything = [(0, self.reserved)]
            self._pins.refuse(everything, f"put to sleep {self.name}, which has")
            self._views.refuse(everything, f"put to sleep {self.name}, which has")
            self.device.synchronize()
            self.device.retirement.collect(self._chunks, wait=True)
            return Suspended(self._chunks, tag, backup=backup)

    def fall_asleep(self, suspended: Suspended) -> None:
        """The second half: its memory, which has left, goes back to the supply."""
        with self._alone():
            self._chunks.asleep = suspended
            self.losses += not suspended.backup
            suspended.let_go()

    def restore(self, *, back: bool = True) -> None:
        """The first half of a wake: memory and bytes return, and the backup stays. With ``back`` False they leave."""
        with self._alone(asleep=True):
            if self.asleep:
                self.asleep.resume() if back else self.asleep.leave_again()

    def resume(self) -> None:
        """The second half of a wake: the backup is dropped, and the range is awake."""
        with self._alone(asleep=True):
            held, self._chunks.asleep = self.asleep, None
            if held:
                held.close()

    # -- steps -----------------------------------------------------------------------------------------------------

    def _check_new(self, chunks: Iterable[int]) -> list[int]:
        wanted = sorted(set(map(operator.index, chunks)))
        if wanted and not 0 <= wanted[0] <= wanted[-1] < self.chunk_count:
            wrong = wanted[0] if wanted[0] < 0 else wanted[-1]
            raise RangeError(f"chunk {wrong} is outside {self.name}, which has chunks 0 to {self.chunk_count - 1}")
        taken = self._mappings.keys() & set(wanted) if self._mappings else ()
        if taken:
            raise StateError(f"chunk {min(taken)} of {self.name} is committed already")
        return wanted

    def _check_leaving(self, chunks: Iterable[int]) -> list[int]:
        leaving = sorted(set(map(operator.index, chunks)))
        for chunk in leaving:
            if not self.is_held(chunk):
                self.mapping(chunk)  # says what is wrong
        if self._pins or self._views:
            spans = [(chunk * self.chunk_size, (chunk + 1) * self.chunk_size) for chunk in leaving]
            self._pins.refuse(spans, "decommit")
            self._views.refuse(spans, "decommit")
        return leaving
