"""Allocator: what a heap and everything that wraps one can do."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from .errors import AlignmentError
from .sizes import Size, format_size, parse_size

if TYPE_CHECKING:
    from .block import Block
    from .fence import After
    from .growable import GrowableRange
    from .streams import Stream
    from .views import Shape

ALIGNMENT = 512
"""Every block starts at a multiple of this many bytes, as cudaMalloc's and CuPy's pool do at least."""


class Allocator(Protocol):
    """See ``Heap``, which documents what each of them does."""

    @property
    def range(self) -> GrowableRange:
        """Where its blocks lie."""

    @property
    def committed(self) -> int:
        """Bytes of physical memory, that which retires included."""

    @property
    def trimmable(self) -> int:
        """Bytes that ``trim`` would give back: whole chunks without a block."""

    def allocate(self, size: Size, *, stream: Stream | None = None, alignment: Size = ALIGNMENT) -> Block:
        """A block of at least ``size`` bytes; raises as ``Heap.allocate``."""

    def release(self, block: Block, *, after: After = None) -> None:
        """What ``block.free()`` does."""

    def drop(self, block: Block) -> None:
        """What ``block.drop()`` does."""

    def holds(self, block: Block) -> bool:
        """Whether ``block`` is allocated here, and was not freed."""

    def view(self, block: Block, dtype: Any, shape: Shape) -> Any:
        """What ``block.array()`` does."""

    def trim(self) -> int:
        """Give every chunk back that holds no block; how many bytes."""

    def collect(self, *, wait: bool = False) -> int:
        """Take in what was freed after other work that is done, and unmap what retires; the bytes unmapped."""

    def close(self) -> None:
        """Give back everything, allocated blocks too. Closing twice does nothing."""

    def check(self) -> None:
        """Raise AssertionError where the books contradict each other or the range. For tests."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def parse_alignment(alignment: Size, most: int) -> int:
    """An alignment in bytes. Raises SizeError for no size, AlignmentError for no power of two up to ``most``."""
    wanted = parse_size(alignment, name="alignment")
    if wanted & (wanted - 1) or wanted > most:
        raise AlignmentError(f"alignment {alignment!r} is no power of two up to the chunk of {format_size(most)}")
    return wanted
