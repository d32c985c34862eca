"""HeapSpare: what a heap holds and could do without, for others on its supply and its device."""

from __future__ import annotations

from .errors import StateError
from .heap_chunks import HeapChunks
from .heap_turn import HeapTurn


class HeapSpare:
    """A ``Giver`` of the heap's supply, and a ``Cache`` of its device: chunks that hold no block. For any thread.

    A heap that is being changed, or sleeps, spares nothing at that moment.
    """

    def __init__(self, chunks: HeapChunks, turn: HeapTurn) -> None:
        self._chunks, self._turn = chunks, turn
        chunks.range.supply.register(self)
        chunks.range.device.caches[id(self)] = self

    def spare(self, *, cached: bool) -> int:  # noqa: ARG002  a heap caches nothing that a user would miss
        """How many chunks hold no block."""
        with self._turn.borrowed() as mine:
            return self._chunks.empty() if mine and self._awake else 0

    def give_up(self, chunks: int, *, cached: bool) -> int:  # noqa: ARG002
        """Give so many of them back; how many went. They may retire for a while."""
        with self._turn.borrowed() as mine:
            if not (mine and self._awake):
                return 0
            try:
                return self._chunks.give_back(chunks)
            except StateError:  # somebody works on the range itself
                return 0

    def trim(self) -> int:
        """Give all of them back; how many bytes went."""
        return self.give_up(self.spare(cached=True), cached=True) * self._chunks.chunk_size

    @property
    def releasable(self) -> int:
        """Bytes that ``trim`` would give back."""
        return self.spare(cached=True) * self._chunks.chunk_size

    @property
    def _awake(self) -> bool:
        return not self._chunks.range.closed and self._chunks.range.asleep is None
