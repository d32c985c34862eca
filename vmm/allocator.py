"""Allocator: what a heap and everything that wraps one can do."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .block import Block
    from .fence import After
    from .growable import GrowableRange
    from .sizes import Size
    from .streams import Stream
    from .views import Shape

ALIGNMENT = 512
"""Every block starts at a multiple of this many bytes, as cudaMalloc's and CuPy's pool do at least."""


class Allocator(Protocol):
    """See ``Heap``, which documents what each of them does."""

    @property
    def range(self) -> GrowableRange: ...

    @property
    def committed(self) -> int: ...

    @property
    def trimmable(self) -> int: ...

    def allocate(self, size: Size, *, stream: Stream | None = None, alignment: Size = ALIGNMENT) -> Block: ...

    def release(self, block: Block, *, after: After = None) -> None: ...

    def drop(self, block: Block) -> None: ...

    def holds(self, block: Block) -> bool: ...

    def view(self, block: Block, dtype: Any, shape: Shape) -> Any: ...

    def trim(self) -> int: ...

    def collect(self, *, wait: bool = False) -> int: ...

    def close(self) -> None: ...

    def check(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
