"""Block tables: the list of block ids of one sequence, the slots of its tokens, and the batched array for a kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from vmm import RangeError

Slots = np.ndarray[Any, np.dtype[np.int64]]
"""int64 [T]: block id x block_size + offset of each token."""

Tables = np.ndarray[Any, np.dtype[np.int32]]
"""int32 [B, max_blocks], padded with 0, or int32 [B]."""


def locate(token: int, table: Sequence[int], block_size: int) -> tuple[int, int]:
    """Return (block id, offset in the block) of token number ``token`` of a sequence with this block table.

    Raises RangeError for a token that the table has no block for.

        >>> locate(37, [7, 42, 9, 103], block_size=16)
        (9, 5)
    """
    if block_size < 1:
        raise RangeError(f"block_size must be at least 1 token, not {block_size}")
    if not 0 <= token < len(table) * block_size:
        room = f"{len(table)} blocks of {block_size} tokens hold tokens 0 to {len(table) * block_size - 1}"
        raise RangeError(f"token {token} is outside the block table: {room if table else 'it is empty'}")
    logical, offset = divmod(token, block_size)
    return table[logical], offset


def slots_of(table: Sequence[int] | Tables | Slots, start: int, stop: int, block_size: int) -> Slots:
    """The slots of tokens ``start`` to ``stop`` - 1 of one sequence, int64: block id x block_size + offset.

    ``table`` must reach to the last of them.

        >>> slots_of([7, 42, 9, 103], 14, 18, block_size=16)
        array([126, 127, 672, 673])
    """
    first, last = start // block_size, (stop - 1) // block_size
    if first == last:  # as a decode step asks, in a third of the time
        begin = int(table[first]) * block_size - first * block_size  # NumPy's int32 would overflow
        return np.arange(begin + start, begin + stop)
    slots: Slots = (np.asarray(table[first : last + 1], np.int64) * block_size).repeat(block_size)
    slots += _offsets(block_size, 1 << (last - first).bit_length())[: len(slots)]
    return slots[start - first * block_size : stop - first * block_size]


@functools.lru_cache(maxsize=64)
def _offsets(block_size: int, blocks: int) -> Slots:
    """0 to ``block_size`` - 1, so many times."""
    return np.tile(np.arange(block_size), blocks)


def batch_tables(tables: Sequence[Sequence[int]]) -> Tables:
    """The tables of B sequences as one array [B, max_blocks].

    Shorter rows are padded with 0, which is a block like any other and may have no memory: a kernel must not look
    further than a sequence's length.

        >>> batch_tables([[7, 42, 9], [103]])
        array([[  7,  42,   9],
               [103,   0,   0]], dtype=int32)
    """
    batched = np.zeros((len(tables), max((len(table) for table in tables), default=0) or 1), np.int32)
    for row, table in enumerate(tables):
        batched[row, : len(table)] = table
    return batched


def batch_lengths(lengths: Sequence[int] | Slots) -> Tables:
    """The lengths of B sequences in tokens as an array, int32 [B]."""
    return np.array(lengths, np.int32)
