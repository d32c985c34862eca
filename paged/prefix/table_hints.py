"""TableHints: the tables of sequences that were stored, so that a long prefix is guessed at once. Integers only.

A prompt that is known mostly follows one table that was stored whole. A few keys then find how far, and the table says
which blocks; whoever asked compares what they hold, so that a guess may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..blocks.block_ids import Ids
from .chain_hash import Keys

_EVERY = 16  # places of a table from one block that leads to it to the next


class TableHints:
    """For one in 16 of ``blocks`` blocks the table that it was stored in; and the last table of each first block.

    A first block is known by its root (the node before it) and the bytes of its tokens.
    """

    def __init__(self, blocks: int) -> None:
        self._tables: dict[int, Ids] = {}
        self._starts: dict[tuple[int, bytes], Ids] = {}
        self._has = np.zeros(blocks, np.bool_)

    def wants(self, known: int, full: int) -> bool:
        """Whether a table of ``full`` blocks, of which the first ``known`` were stored before, is to be noted."""
        return -(-known // _EVERY) * _EVERY < full

    def note(self, table: Ids, known: int, root: int, first: bytes) -> None:
        """The blocks of a table from place ``known`` on were stored."""
        leading = table[-(-known // _EVERY) * _EVERY :: _EVERY]
        self._tables.update(dict.fromkeys(leading.tolist(), table))
        self._has[leading] = True
        self._starts[root, first] = table

    def start(self, root: int, first: bytes) -> Ids | None:
        """The table that was last stored after this root and first block."""
        return self._starts.get((root, first))

    def guess(self, keys: Keys, place: int, first: Callable[[int], int | None]) -> Ids | None:
        """Blocks of as many of ``keys``, of which the first is known, as are known; None for no idea.

        ``place`` is that of the first; ``first`` is a block of a key. That a key is known only if those before it are
        is a guess, too.
        """
        low, high, middle = 1, len(keys), len(keys)
        while low < high:
            if first(int(keys[middle - 1])) is None:
                high = middle - 1
            else:
                low = middle
            middle = (low + high + 1) // 2
        stop = place + low
        leading = (stop - 1) // _EVERY * _EVERY - place
        block = first(int(keys[leading])) if leading >= 0 else None
        table = None if block is None else self._tables.get(block)
        return None if table is None or len(table) < stop else table[place:stop]

    def forget(self, blocks: Ids) -> None:
        """Blocks were struck out."""
        for block in blocks[self._has[blocks]].tolist():
            del self._tables[block]
            self._has[block] = False

    def forget_start(self, root: int, first: bytes) -> None:
        """A first block was struck out."""
        self._starts.pop((root, first), None)

    def clear(self) -> None:
        """Nothing is known, or blocks have moved."""
        self._tables.clear()
        self._starts.clear()
        self._has[:] = False
