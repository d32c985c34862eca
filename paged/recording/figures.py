"""Figures: what a pool has in use at one moment, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .state import State


class Figures(NamedTuple):
    """Bytes, and ``sequences``. ``held`` is the room of all sequences, ``cached`` of blocks that only the cache keeps.

    ``committed`` includes what retires, as a pool's own figure does. While a pool sleeps it has no memory, and so
    nothing is held or lives in it.
    """

    reserved: int
    committed: int
    held: int
    live: int
    cached: int
    retiring: int
    sequences: int


def figures(about: Mapping[str, Any], state: State) -> Figures:
    """The figures of a state, with the geometry of its recording."""
    if state.asleep:
        return Figures(about["reserved"], 0, 0, 0, 0, 0, len(state.sequences))
    block_bytes = about["block_bytes"]
    rows = len(state.rows) * about["row_bytes"] + state.retiring
    held = len(state.counts) * block_bytes
    live = min(state.live * about["token_bytes"], held)
    return Figures(about["reserved"], rows, held, live, state.idle * block_bytes, state.retiring, len(state.sequences))
