"""TableHints: the table that was stored last behind each first block: a prompt is guessed at once. Integers only.

A prompt that is known mostly follows one table that was stored whole. The table says which blocks; whoever asked
compares what they hold, so that a guess may be wrong.
"""

from __future__ import annotations

from ..blocks.block_ids import Ids

_EVERY = 16  # blocks by which a table grows until it is noted again


def wants_table(known: int, full: int) -> bool:
    """Whether a table of ``full`` blocks, of which the first ``known`` were stored before, is to be noted."""
    return -(-known // _EVERY) * _EVERY < full


class TableHints:
    """A first block is known by its root (the node before it) and the bytes of its tokens."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, bytes], Ids] = {}

    def note(self, root: int, first: bytes, table: Ids) -> None:
        """Blocks of a table were stored."""
        self._tables[root, first] = table

    def guess(self, root: int, first: bytes) -> Ids | None:
        """The table that was last stored behind this root and first block; None for no idea."""
        return self._tables.get((root, first))

    def forget(self, root: int, first: bytes) -> None:
        """A first block was struck out."""
        self._tables.pop((root, first), None)

    def clear(self) -> None:
        """Nothing is known, or blocks have moved."""
        self._tables.clear()
