"""Ids that a kernel would follow to memory that is not the pool's: refused on the CPU, before the kernel runs.

Arrays of a GPU are not looked at, for that would wait for it: there a wrong id is a fault, or another pool's bytes. On
the CPU they are looked at when the launch runs, not when it is queued: work before it may still change them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array
from .errors import LaunchError
from .paged_kv import PagedKV


def check_ids(name: str, ids: Array, count: int | None, what: str) -> None:
    """Raise LaunchError unless every one of ``ids`` is below ``count``; None is unknown, a negative one is skipped."""
    if count is None or not ids.size:
        return
    highest = int(ids.max())
    if highest >= count:
        raise LaunchError(f"{name} has {what} {highest}, which is not there; {_known(what, count)}")


def check_pair_ids(pairs: Array, sources: int | None, destinations: int | None) -> None:
    """``check_ids`` for pairs [n, 2] of a source and a destination; one with a negative id is skipped."""
    kept = pairs[(pairs >= 0).all(axis=1)]
    check_ids("pairs", kept[:, 0], sources, "source block")
    check_ids("pairs", kept[:, 1], destinations, "destination block")


def check_slots(kv: PagedKV, slots: Array) -> None:
    """``check_ids`` for slots of a pool whose number of blocks is known."""
    check_ids("slots", slots, None if kv.blocks is None else kv.blocks * kv.block_size, "slot")


def check_tables(kv: PagedKV, tables: Array, lengths: Array, first_tokens: Any = 0) -> None:
    """Raise LaunchError unless rows of ``tables`` have blocks of the pool for tokens ``first_tokens`` to ``lengths``.

    What stands outside of those is not looked at, as no kernel does. Negative ids are never right; ids beyond the pool
    are seen where ``kv.blocks`` is known.
    """
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
    if positions.size and int(positions.min()) < 0:
        raise LaunchError(f"positions has {positions.min()}; a token stands at 0 or behind")


def first_seen(lengths: Array, queries: Any, window: int | None) -> Any:
    """The first token that the first of the last ``queries`` tokens of each sequence sees."""
    if window is None:
        return 0
    return np.maximum(lengths.astype(np.int64) - queries + 1 - window, 0)


def _known(what: str, count: int) -> str:
    return f"the pool has {what}s 0 to {count - 1}" if count else f"the pool has no {what}s"
