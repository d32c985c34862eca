"""Block: bytes of a heap that belong to one user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import StateError
from .fence import After
from .sizes import format_size
from .streams import Stream
from .tensor_view import TensorView
from .views import Shape

if TYPE_CHECKING:
    from .allocator import Allocator
    from .arena import Arena


class Block:
    """``size`` bytes at ``address``, of which ``requested`` were asked for. Belongs to the heap that made it.

    The address stays the same until the block is freed; ``offset`` is that from the base of the heap's range.
    """

    __slots__ = ("address", "arena", "heap", "offset", "requested", "size")

    heap: Allocator
    arena: Arena
    address: int
    offset: int
    size: int
    requested: int

    def __repr__(self) -> str:
        return f"Block({self.address:#x}, {format_size(self.size)})"

    @property
    def stream(self) -> int | None:
        """The handle of the stream for which it was allocated; None where none was named."""
        return self.arena.stream

    def array(self, dtype: Any, shape: Shape) -> Any:
        """An array on the block's memory; the block cannot be freed while it lives."""
        return self.heap.view(self, dtype, shape)

    def tensor(self, dtype: Any, shape: Shape, *, stream: Stream | None = None) -> TensorView:
        """As ``array``, for any library; see ``ChunkedRange.tensor``.

        Raises StateError for a block that was freed.
        """
        if not self.heap.holds(self):
            raise StateError(f"{self!r} is not allocated any more; was it freed before?")
        end = self.offset + self.size
        return self.heap.range.tensor(dtype, shape, self.offset, limit=end, stream=stream)

    def free(self, *, after: After = None) -> None:
        """Give the block back. Raises StateError the second time, and while an array views it.

        The stream that it was allocated for may have its memory again at once: new work there runs after the old.
        Nobody else gets it before that work is done, and nothing waits for that. ``after`` names other work that may
        still use the block: a stream or an event, or a list of them; then nobody gets it before that is done too.

        A block without a stream is used by any work of the device, or if ``after`` is named by that alone. The next
        block without a stream may be there at once: order its work after the old.
        """
        self.heap.release(self, after=after)

    def drop(self) -> None:
        """As ``free``, at the heap's next call. For finalizers, which run in any thread at any moment; never raises."""
        self.heap.drop(self)
