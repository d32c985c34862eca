"""HostRoom: pinned host memory cut into spans of blocks. Spans that work still reads or writes come back behind it."""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmm import Device, Fence, OutOfMemoryError, format_size
from vmm.finishing import Finishing
from vmm.pinned import PinnedMemory
from vmm.shortage.pinned_memory import pinned_shortage
from vmm.spans import FreeSpans

from .shortage.host_memory import room_shortage

if TYPE_CHECKING:
    from .swap import Swapped

_PIECE = 256 << 20
"""Bytes of one pinned allocation at most: the host searches pages for each, and may not have one of all bytes."""


@dataclass(frozen=True, slots=True)
class HostSpan:
    """``blocks`` blocks side by side from byte ``start`` of pinned allocation ``piece`` on, ``size`` bytes in all."""

    piece: int
    start: int
    size: int
    blocks: int


class HostRoom:
    """``size`` bytes of pinned host memory. Raises OutOfMemoryError when the host has not so much."""

    def __init__(self, device: Device, size: int) -> None:
        self.device, self.size = device, size
        self.leaving = 0  # bytes of spans that work in flight still uses
        self._pieces: list[PinnedMemory] = []
        self._free: list[FreeSpans] = []
        self._behind: deque[tuple[Fence, list[HostSpan]]] = deque()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for start in range(0, size, _PIECE):
                piece = min(_PIECE, size - start)
                try:
                    self._pieces.append(PinnedMemory(device, piece))
                except OutOfMemoryError as error:
                    error.report = pinned_shortage(device, size, mine=start)
                    raise
                self._free.append(FreeSpans(piece))
            undo.pop_all()

    @property
    def free(self) -> int:
        """Bytes that nobody uses."""
        return sum(spans.free for spans in self._free)

    def holds(self, blocks: int, each: int) -> bool:
        """Whether ``blocks`` more blocks of ``each`` bytes have room, if what is leaving is waited for."""
        leaving = sum(span.size // each for _fence, spans in self._behind for span in spans)
        return self._count(each) + leaving >= blocks

    def take(self, blocks: int, each: int, held: Iterable[Swapped] = ()) -> list[HostSpan]:
        """Room for ``blocks`` blocks of ``each`` bytes, in few spans. Waits for work only where it must.

        ``held`` is who has the rest, for the report of an error.

        Raises OutOfMemoryError, with both numbers, when there is not so much; nothing has changed then.
        """
        self.collect()
        while self._count(each) < blocks and self._behind:
            self._behind[0][0].wait()
            self.collect()
        have = self._count(each)
        if have < blocks:
            wanted, left = format_size(blocks * each), format_size(have * each)
            raise OutOfMemoryError(
                f"{wanted} of host memory asked, {left} of {format_size(self.size)} left in blocks of {each} bytes; "
                "restore or discard something, or make a larger swap space",
                room_shortage(self, blocks, each, held),
            )
        return self._cut(blocks, each)

    def give(self, spans: Iterable[HostSpan], fence: Fence | None = None) -> None:
        """Give spans back, behind a fence if work may still use them; it is closed then. Calls no driver."""
        listed = list(spans)
        if fence is None:
            for span in listed:
                self._free[span.piece].give(span.start, span.size)
        else:
            self._behind.append((fence, listed))
            self.leaving += sum(span.size for span in listed)

    def collect(self) -> None:
        """Take back what no work uses any more."""
        with Finishing() as rest:
            for _ in range(len(self._behind)):
                fence, spans = self._behind[0]
                if not fence.done:
                    return
                self._behind.popleft()
                self.leaving -= sum(span.size for span in spans)
                self.give(spans)
                rest.run(fence.close)

    def address(self, span: HostSpan) -> int:
        """Where a span lies, for the host and the device."""
        return self._pieces[span.piece].address + span.start

    def close(self) -> None:
        """Free everything; all work has been waited for. Closing twice does nothing."""
        with Finishing() as rest:
            while self._pieces:
                rest.run(self._pieces[-1].close)  # whose memory cannot be freed now may be closed again
                self._pieces.pop()
            self._free.clear()
            while self._behind:
                rest.run(self._behind.popleft()[0].close)
            self.leaving = 0

    def would_hold(self, each: int, spans: Iterable[HostSpan] = ()) -> int:
        """Blocks of ``each`` bytes that would have room once ``spans`` and what is leaving have been given back."""
        copies = copy.deepcopy(self._free)  # to try it on
        for span in [*spans, *(span for _fence, leaving in self._behind for span in leaving)]:
            copies[span.piece].give(span.start, span.size)
        return sum(length // each for free in copies for _start, length in free)

    # -- steps --------------------------------------------------------------------------------------------------

    def _count(self, each: int) -> int:
        """Blocks of ``each`` bytes that the free spans hold: a block lies in one of them."""
        return sum(length // each for spans in self._free for _start, length in spans)

    def _cut(self, blocks: int, each: int) -> list[HostSpan]:
        """Cut spans that hold so many blocks, which there are: one if some span is long enough, else the longest."""
        found: list[HostSpan] = []
        while blocks:
            piece = min(range(len(self._free)), key=lambda number: self._fit(number, blocks * each))
            count = min(blocks, self._free[piece].largest // each)
            start = self._free[piece].take(count * each)
            assert start is not None, "the largest span is large enough"
            found.append(HostSpan(piece, start, count * each, count))
            blocks -= count
        return found

    def _fit(self, piece: int, size: int) -> tuple[bool, int]:
        """Pieces that have the whole size first, the fullest of them; then those with the longest span."""
        spans = self._free[piece]
        return (spans.largest < size, spans.free if spans.largest >= size else -spans.largest)
