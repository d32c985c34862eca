"""LimitedHeap: a heap of which only so many bytes may be in use."""

from __future__ import annotations

from .allocator import ALIGNMENT, Allocator
from .block import Block
from .errors import OutOfMemoryError
from .heap_wrapper import HeapWrapper
from .shortage.report import Limit, Portion, Remedy, Shortage
from .sizes import Size, format_size, parse_size, round_up
from .streams import Stream


class LimitedHeap(HeapWrapper):
    """Lets at most ``limit`` bytes of blocks, rounded as the heap rounds them, be in use through here.

    It bounds blocks; a supply's budget or a share's ceiling bounds physical memory.
    """

    def __init__(self, heap: Allocator, limit: Size) -> None:
        super().__init__(heap)
        self.limit = parse_size(limit, name="limit")
        self.in_use = 0

    def allocate(self, size: Size, *, stream: Stream | None = None, alignment: Size = ALIGNMENT) -> Block:
        """As of the heap. Raises OutOfMemoryError beyond the limit too; nothing has changed then."""
        self._free_dropped()
        wanted, left = round_up(parse_size(size), ALIGNMENT), max(0, self.limit - self.in_use)
        if wanted > left and not self.range.closed:
            used = f"{format_size(self.in_use)} of {format_size(self.limit)} are in use"
            raise OutOfMemoryError(
                f"{format_size(wanted)} asked, {format_size(left)} left in the limit ({used}); "
                "free something or raise the limit",
                self._shortage(wanted, left, used),
            )
        return super().allocate(size, stream=stream, alignment=alignment)

    def took(self, block: Block) -> None:
        """Count a block."""
        self.in_use += block.size

    def gave(self, block: Block) -> None:
        """Count a block no more."""
        self.in_use -= block.size

    def gave_all(self) -> None:
        """Nothing is in use."""
        self.in_use = 0

    def _shortage(self, wanted: int, left: int, used: str) -> Shortage:
        """Why ``wanted`` bytes are not to be had."""
        raised = self.in_use + wanted
        return Shortage(
            name="heap",
            unit="bytes",
            asked=wanted,
            granted=left,
            cause="limit",
            limits=(Limit("limit", left, used),),
            portions=(Portion("blocks", self.in_use),),
            remedies=(Remedy("raise limit", raised, wanted, f"set limit to {raised}", "a part of what others have"),),
        )
