"""HeapWrapper: everything that a heap does, passed on to a heap. What wraps one adds to that."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .allocator import ALIGNMENT, Allocator
from .block import Block
from .errors import StateError, VmmError
from .fence import After
from .sizes import Size
from .streams import Stream
from .uninterrupted import handed_over, uninterrupted
from .views import Shape

if TYPE_CHECKING:
    from typing_extensions import Self

    from .growable import GrowableRange


class HeapWrapper:
    """Wraps ``heap``, which may be wrapped itself; whoever closes this closes that. Blocks come back through here.

    ``took`` and ``gave`` are called after each block that was allocated and given back, ``gave_all`` after the heap was
    closed with all that is left; what they raise is not undone.
    """

    def __init__(self, heap: Allocator) -> None:
        self.heap = heap
        self._blocks: dict[int, Block] = {}
        self._dropped: deque[Block] = deque()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.heap!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heap.__exit__(kind, error, trace)
        if self.heap.range.closed:
            self.close()

    @property
    def range(self) -> GrowableRange:
        """As of the heap."""
        return self.heap.range

    @property
    def committed(self) -> int:
        """As of the heap."""
        return self.heap.committed

    @property
    def trimmable(self) -> int:
        """As of the heap."""
        return self.heap.trimmable

    @handed_over(lambda self, block: self.release(block))
    def allocate(self, size: Size, *, stream: Stream | None = None, alignment: Size = ALIGNMENT) -> Block:
        """As of the heap."""
        self._free_dropped()
        block = self.heap.allocate(size, stream=stream, alignment=alignment)
        block.heap = self
        self._blocks[block.offset] = block
        self.took(block)
        return block

    @uninterrupted
    def release(self, block: Block, *, after: After = None) -> None:
        """As of the heap. Raises StateError for a block of the heap that was not allocated through here, too."""
        self._free_dropped()
        if self._blocks.get(block.offset) is not block:
            what = f"block at offset {block.offset:#x} is not allocated in this heap through this {type(self).__name__}"
            raise StateError(f"{what}; was it freed before?")
        self.heap.release(block, after=after)
        self._forget(block)

    def drop(self, block: Block) -> None:
        """As of the heap, at the next call of this."""
        self._dropped.append(block)

    def holds(self, block: Block) -> bool:
        """As of the heap."""
        return self._blocks.get(block.offset) is block

    def view(self, block: Block, dtype: Any, shape: Shape) -> Any:
        """As of the heap."""
        return self.heap.view(block, dtype, shape)

    def trim(self) -> int:
        """As of the heap."""
        self._free_dropped()
        return self.heap.trim()

    def collect(self, *, wait: bool = False) -> int:
        """As of the heap."""
        self._free_dropped()
        return self.heap.collect(wait=wait)

    @uninterrupted
    def close(self) -> None:
        """As of the heap."""
        self.heap.close()
        self._blocks.clear()
        self._dropped.clear()
        self.gave_all()

    def check(self) -> None:
        """As of the heap."""
        self.heap.check()

    def took(self, block: Block) -> None:
        """A block was allocated."""

    def gave(self, block: Block) -> None:
        """A block was given back."""

    def gave_all(self) -> None:
        """The heap was closed."""

    def _forget(self, block: Block) -> None:
        """A block is the heap's again."""
        del self._blocks[block.offset]
        self.gave(block)

    @uninterrupted
    def _free_dropped(self) -> None:
        for _ in range(len(self._dropped)):
            block = self._dropped.popleft()
            if self.holds(block):
                try:
                    self.heap.release(block)
                except VmmError as error:
                    self._dropped.append(block)
                    if not isinstance(error, StateError):
                        raise
                else:
                    self._forget(block)
