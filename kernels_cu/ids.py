"""Ids that a kernel would follow to memory that is not the pool's: refused before the launch, where they can be seen.

That is where they lie in NumPy arrays: on the CPU. A device's arrays are not looked at, for that would wait for it;
there a wrong id is a fault, or another pool's bytes. Nor is an array looked at again when a queued launch runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array
from .errors import LaunchError
from .paged_kv import PagedKV


def check_ids(name: str, ids: Array, count: int | None, what: str) -> None:
    """Raise LaunchError unless every one of ``ids`` is below ``count``; None is unknown, a negative one is skipped."""
    if count is None or not isinstance(ids, np.ndarray) or not ids.size:
        return
    highest = int(ids.max())
    if highest >= count:
        raise LaunchError(f"{name} has {what} {highest}, which is not there; {_known(what, count)}")


def check_slots(kv: PagedKV, slots: Array) -> None:
    """``check_ids`` for slots of a pool whose number of blocks is known."""
    check_ids("slots", slots, None if kv.blocks is None else kv.blocks * kv.block_size, "slot")


def check_tables(kv: PagedKV, tables: Array, lengths: Array, first_tokens: Any = 0) -> None:
    """Raise LaunchError unless rows of ``tables`` have blocks of the pool for tokens ``first_tokens`` to ``lengths``.

    What stands outside of those is not looked at, as no kernel does. Negative ids are never right; ids beyond the pool
    are seen where ``kv.blocks`` is known.
    """
    if not isinstance(tables, np.ndarray) or not isinstance(lengths, np.ndarray) or not tables.size:
        return
    size, columns = kv.block_size, np.arange(tables.shape[1])
    begin = np.broadcast_to(np.asarray(first_tokens) // size, lengths.shape)[:, None]
    end = -(-lengths.astype(np.int64) // size)[:, None]
    wrong = tables < 0 if kv.blocks is None else (tables < 0) | (tables >= kv.blocks)
    wrong &= (columns >= begin) & (columns < end)
    if wrong.any():
        row, column = (int(found[0]) for found in np.nonzero(wrong))
        allowed = "no block has a negative id" if kv.blocks is None else _known("block", kv.blocks)
        raise LaunchError(f"block_tables[{row}, {column}] is {tables[row, column]}, which is not there; {allowed}")


def check_positions(positions: Array, count: int) -> None:
    """Raise LaunchError for a position that a table of ``count`` rows does not have."""
    check_ids("positions", positions, count, "position")
    if isinstance(positions, np.ndarray) and positions.size and int(positions.min()) < 0:
        raise LaunchError(f"positions has {positions.min()}; a token stands at 0 or behind")


def first_seen(lengths: Array, queries: Any, window: int | None) -> Any:
    """The first token that the first of the last ``queries`` tokens of each sequence sees; 0 where it is not known."""
    if window is None or not isinstance(lengths, np.ndarray):
        return 0
    return np.maximum(lengths.astype(np.int64) - queries + 1 - window, 0)


def _known(what: str, count: int) -> str:
    return f"the pool has {what}s 0 to {count - 1}" if count else f"the pool has no {what}s"
