"""Divide a batch of prompts, or chunks of them, into tiles of 64 rows for paged_prefill. Integers only.

A row is one query head of one token; the heads of a group lie side by side, so a tile is the same K and V for all its
rows. Tiles that walk over many tokens come first, so that what is left when most thread blocks are done is short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .errors import LaunchError
from .whole_numbers import MOST_TOKENS, check_heads, token_counts, whole_number

ROWS = 64


@dataclass(frozen=True)
class PrefillPlan:
    """The tiles of a batch. All arrays are int32; ``on`` moves them to where the kernel runs.

    ``tiles`` [n, 2]: sequence and first row. ``query_starts`` [B + 1]: where each sequence's queries begin among the N
    tokens of the batch. ``lengths`` [B] in tokens, those of the query included. ``longest`` is the largest of them.
    """

    query_heads: int
    kv_heads: int
    tokens: int
    longest: int
    tiles: Any
    query_starts: Any
    lengths: Any

    @property
    def sequences(self) -> int:
        """B."""
        return len(self.lengths)

    def on(self, move: Callable[[Any], Any]) -> PrefillPlan:
        """The same plan with each array passed through ``move``, cupy.asarray for example."""
        tiles, starts, lengths = map(move, (self.tiles, self.query_starts, self.lengths))
        return replace(self, tiles=tiles, query_starts=starts, lengths=lengths)


def plan_prefill(query_lengths: ArrayLike, lengths: ArrayLike, query_heads: int, kv_heads: int) -> PrefillPlan:
    """The tiles of B sequences with ``query_lengths`` [B] new tokens at the end of ``lengths`` [B] tokens each.

    ``query_heads`` is Hq and ``kv_heads`` Hkv, which divides it. Raises LaunchError for lengths that are no whole
    numbers or do not belong together, and for head counts without a group.
    """
    new, whole = (token_counts(name, x) for name, x in (("query_lengths", query_lengths), ("lengths", lengths)))
    if new.shape != whole.shape or (new < 0).any() or (new > whole).any():
        raise LaunchError(
            "query_lengths must be [B] numbers from 0 to the length of each sequence; queries are its end"
        )
    check_heads(query_heads, kv_heads)
    group = query_heads // kv_heads
    whole_number("query_lengths in all, times the heads of a group,", int(new.sum()) * group, 0, MOST_TOKENS)
    tiles_of = -(-new * group // ROWS)
    sequence = np.repeat(np.arange(len(new)), tiles_of)
    first_row = (np.arange(tiles_of.sum()) - np.repeat(np.cumsum(tiles_of) - tiles_of, tiles_of)) * ROWS
    last_token = np.minimum((first_row + ROWS - 1) // group, new[sequence] - 1)
    work = whole[sequence] - new[sequence] + last_token  # tokens that a causal tile walks over
    order = np.argsort(-work, kind="stable")
    return PrefillPlan(
        query_heads,
        kv_heads,
        int(new.sum()),
        int(whole.max(initial=0)),
        np.stack([sequence, first_row], axis=1)[order].astype(np.int32),
        np.concatenate([[0], np.cumsum(new)]).astype(np.int32),
        whole.astype(np.int32),
    )
