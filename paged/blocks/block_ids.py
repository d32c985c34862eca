"""Block ids as lists of Python's ints and as NumPy arrays: what is no id is refused, and named."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from vmm import RangeError

Ids = np.ndarray[Any, np.dtype[np.int64]]
"""int64 [n]: block ids. NumPy looks things up by int64 several times faster than by int32."""


def block_ids(blocks: Iterable[SupportsIndex]) -> list[int]:
    """Block ids as Python's ints: NumPy's small ones overflow. Raises RangeError, naming it, for what is no number."""
    listed = list(blocks)
    try:
        return list(map(operator.index, listed))
    except TypeError:
        odd = next(block for block in listed if not _is_number(block))
        raise RangeError(f"{odd!r} is no block id; give whole numbers") from None


def _is_number(block: SupportsIndex) -> bool:
    try:
        operator.index(block)
    except TypeError:
        return False
    return True


def id_array(blocks: Iterable[SupportsIndex], count: int) -> Ids:
    """Block ids below ``count`` as an array. Raises RangeError, naming it, for what is no number or no such block."""
    if isinstance(blocks, np.ndarray) and blocks.dtype.kind == "i" and blocks.ndim == 1:
        found = blocks.astype(np.int64, copy=False)
    else:
        listed = blocks if isinstance(blocks, list) else list(blocks)
        try:
            found = np.frombuffer(array("q", listed), np.int64)  # refuses 1.5 and "1", which NumPy would take
        except (TypeError, OverflowError):
            found = np.array(known(block_ids(listed), count), np.int64)
    if len(found) and np.maximum.reduce(found.view(np.uint64)) >= count:  # so seen, what is below 0 is huge
        known(found.tolist(), count)
    return found


def known(blocks: Sequence[int], count: int) -> Sequence[int]:
    """The same ids. Raises RangeError, naming it, for one that is not 0 to ``count`` - 1."""
    if blocks and not 0 <= min(blocks) <= max(blocks) < count:
        wrong = next(block for block in blocks if not 0 <= block < count)
        raise RangeError(f"block {wrong} is unknown; this pool has blocks 0 to {count - 1}")
    return blocks
