"""Divide the work of one decode step among the thread blocks of a GPU, before it is launched. Integers only.

The work is a list of items, one for each sequence and each set of query heads that are computed together; an item is
as many tiles of 16 tokens as its sequence is long. All tiles of all items form one line, and the line is cut into equal
shares, one a thread block:

    items     | A A A A A A A A | B B | C C C C C C C C C |
    shares    |      0      |       1       |      2      |
    segments  | A A A A A A | A A | B B | C C | C C C C C C C |

A share walks its segments. A segment that is a whole item (B) writes the item's output; the parts of a cut item (A, C)
leave partial results, which decode_merge joins. A GPU whose thread blocks all have the same work ends all at once,
however uneven the sequences are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import LaunchError
from .whole_numbers import MOST_TOKENS, check_heads, token_counts, whole_number

TILE = 16
"""Tokens that a tensor core takes at once: the unit of all cuts."""
LEAST_TILES = 8
"""A share of fewer tiles costs more to start and to merge than it saves."""
HEADS = (8, 16)
"""Query heads that the kernels compute in one walk over a KV head's tokens: the widths of one and two operands."""
PARTIAL = 5
"""The column of a segment that has the number of its partial result."""
DIRECT = -1
"""Stands there when a segment has no partial result and writes the output."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class DecodePlan:
    """Who computes what. All arrays are int32; ``on`` moves them to where the kernels run.

    ``segments`` [n, 6]: sequence, first query head, KV head, first token, end of the tokens, partial result or -1.
    ``share_starts`` [shares + 1]: share i walks the segments share_starts[i] to share_starts[i + 1].
    ``merge_rows`` [m, 2]: sequence and first query head of each item that was cut; ``merge_starts`` [m + 1]: row i is
    joined from the partial results merge_starts[i] to merge_starts[i + 1].
    ``heads``: query heads of an item, the last of a KV head may have fewer. ``partials``: how many there are.
    ``sequences``, ``query_heads``, ``kv_heads``, ``longest`` (tokens) and ``window`` are what it was made for.
    """

    sequences: int
    query_heads: int
    kv_heads: int
    longest: int
    window: int | None
    heads: int
    partials: int
    segments: Any
    share_starts: Any
    merge_rows: Any
    merge_starts: Any

    @property
    def shares(self) -> int:
        """Thread blocks to launch."""
        return len(self.share_starts) - 1

    @property
    def merges(self) -> int:
        """Items to be joined by decode_merge."""
        return len(self.merge_rows)

    def partial_shapes(self, head_dim: int) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """The extents of partial_out and partial_lse, both float32, that the decode kernels need."""
        return (self.partials, self.heads, head_dim), (self.partials, self.heads)

    def on(self, move: Callable[[Any], Any]) -> DecodePlan:
        """The same plan with each array passed through ``move``, cupy.asarray for example."""
        arrays = (self.segments, self.share_starts, self.merge_rows, self.merge_starts)
        segments, share_starts, merge_rows, merge_starts = map(move, arrays)
        return replace(
            self, segments=segments, share_starts=share_starts, merge_rows=merge_rows, merge_starts=merge_starts
        )

    def padded(self, *, shares: int, segments: int, merges: int, partials: int) -> DecodePlan:
        """The same plan in arrays of fixed extents, as a captured graph needs them: what is added does nothing.

        Raises LaunchError if the plan is larger than that.
        """
        have = (self.shares, len(self.segments), self.merges, self.partials)
        if any(n > room for n, room in zip(have, (shares, segments, merges, partials), strict=True)):
            raise LaunchError(
                f"the plan has {have[0]} shares, {have[1]} segments, {have[2]} merges and {have[3]} partials, more "
                f"than the {shares}, {segments}, {merges} and {partials} it should be padded to; capture a larger graph"
            )
        return replace(
            self,
            partials=partials,
            segments=_lengthened(self.segments, segments),
            share_starts=_lengthened(self.share_starts, shares + 1),
            merge_rows=_lengthened(self.merge_rows, merges),
            merge_starts=_lengthened(self.merge_starts, merges + 1),
        )


def plan_decode(
    lengths: ArrayLike,
    query_heads: int,
    kv_heads: int,
    *,
    shares: int,
    heads: int | None = None,
    window: int | None = None,
    least_tiles: int = LEAST_TILES,
    fixed_tiles: int | None = None,
) -> DecodePlan:
    """Divide the attention of one query token a sequence into ``shares`` equal shares, to within one tile.

    ``lengths`` [B] in tokens, on the host; ``shares`` is the number of thread blocks that the GPU runs at once
    (multiprocessors x blocks of each); fewer are used where one would get less than ``least_tiles``. ``heads`` query
    heads of a KV head are computed together, those that ``heads_together`` gives if None. With ``window`` only the last
    so many tokens of a sequence are walked. A sequence without tokens is one tile of work: its zeros must be written.

    ``fixed_tiles`` cuts every item after each so many tiles, wherever the shares end: an item is then computed in the
    same steps in every batch, and its result is the same to the last bit. Raises LaunchError for impossible numbers.
    """
    counts = np.maximum(token_counts("lengths", lengths), 0)  # a negative length is none, as it is to the kernels
    check_heads(query_heads, kv_heads)
    _check_least(shares=shares, least_tiles=least_tiles, window=window, fixed_tiles=fixed_tiles)
    if heads not in (None, *HEADS):
        raise LaunchError(f"heads must be 8 or 16, not {heads!r}: the kernels compute so many together")
    heads = heads_together(query_heads // kv_heads) if heads is None else heads
    first_tokens = np.maximum(counts - window, 0) if window else np.zeros_like(counts)
    line = _Line(counts, first_tokens, _first_heads(query_heads, query_heads // kv_heads, heads), kv_heads)
    shares = min(shares, -(-line.length // least_tiles))
    ideal = np.arange(shares, dtype=np.int64) * line.length // max(shares, 1)
    begin = _merged(line.starts, line.cuts_every(fixed_tiles) if fixed_tiles else ideal)
    segments = line.segments(begin)
    share = begin * shares // max(line.length, 1) if fixed_tiles else np.searchsorted(ideal, begin, "right") - 1
    share_starts = np.searchsorted(share, np.arange(shares + 1)).astype(np.int32)
    made_for = (len(counts), query_heads, kv_heads, int(counts.max(initial=0)), window)
    partials = int((segments[:, PARTIAL] != DIRECT).sum())
    return DecodePlan(*made_for, heads, partials, segments, share_starts, *_merges(segments))


class _Line:
    """All tiles of all items, one after the other: items of a sequence side by side, one for each of first_heads."""

    def __init__(self, counts: Integers, first_tokens: Integers, first_heads: Integers, kv_heads: int) -> None:
        self._counts, self._first_tokens, self._first_heads = counts, first_tokens, first_heads
        self._kv_heads = np.repeat(np.arange(kv_heads), len(first_heads) // kv_heads)
        self._first_tiles = first_tokens // TILE
        tiles = np.maximum(-(-counts // TILE) - self._first_tiles, 1)
        self._tiles = np.repeat(tiles, len(first_heads))
        self._ends = np.cumsum(self._tiles)
        self.starts, self.length = self._ends - self._tiles, int(self._tiles.sum())

    def cuts_every(self, fixed: int) -> Integers:
        """Where items are cut after each ``fixed`` tiles."""
        pieces = -(-self._tiles // fixed)
        piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        cuts: Integers = np.repeat(self.starts, pieces) + piece * fixed
        return cuts

    def segments(self, begin: Integers) -> NDArray[np.int32]:
        """The segments that begin at these tiles of the line and end at the next."""
        end = np.append(begin[1:], self.length)[: len(begin)]
        item = np.searchsorted(self.starts, begin, "right") - 1
        sequence, head = np.divmod(item, len(self._first_heads))
        tile = begin - self.starts[item] + self._first_tiles[sequence]
        cut = (begin != self.starts[item]) | (end != self._ends[item])
        columns = (
            sequence,
            self._first_heads[head],
            self._kv_heads[head],
            np.maximum(tile * TILE, self._first_tokens[sequence]),
            np.minimum((tile + end - begin) * TILE, self._counts[sequence]),
            np.where(cut, np.cumsum(cut) - 1, DIRECT),
        )
        return np.stack(columns, axis=1).astype(np.int32)


def _merged(a: Integers, b: Integers) -> Integers:
    """Two ascending lists as one, each number once; np.unique would take most of the plan's time."""
    both = np.sort(np.concatenate([a, b]), kind="stable")
    first = np.ones(len(both), bool)
    first[1:] = both[1:] != both[:-1]
    return both[first]


def heads_together(group: int) -> int:
    """Query heads of one KV head that are computed in one walk over its tokens, and more in several walks."""
    return HEADS[0] if group <= HEADS[0] else HEADS[1]


def _check_least(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None:
            whole_number(name, number, 1, MOST_TOKENS)


def _first_heads(query_heads: int, group: int, heads: int) -> Integers:
    """The first query head of each item of a sequence: every ``heads`` within each group."""
    every = np.arange(query_heads, dtype=np.int64)
    first: Integers = every[every % group % heads == 0]
    return first


def _merges(segments: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The items that were cut, and the first partial result of each; the partials of one lie side by side."""
    cut = segments[segments[:, PARTIAL] != DIRECT]
    first = np.ones(len(cut), bool)
    first[1:] = (cut[1:, :2] != cut[:-1, :2]).any(axis=1)
    return cut[first, :2].copy(), np.append(np.flatnonzero(first), len(cut)).astype(np.int32)


def _lengthened(array: Any, rows: int) -> Any:
    """``array`` with its last row repeated up to ``rows`` rows, or zeros if it has none."""
    if len(array) == 0:
        return np.zeros((rows, *array.shape[1:]), np.int32)
    return np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])
