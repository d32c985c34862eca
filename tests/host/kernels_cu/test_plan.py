"""plan_decode: every tile of every item once, equal shares, and partial results that the merge finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_cu import LaunchError
from kernels_cu.plan import DIRECT, TILE, heads_together, plan_decode


def _tiles_of(first, end):
    """The tiles that hold the tokens first to end; a sequence without tokens is one tile of work."""
    return range(first // TILE, max(-(-end // TILE), first // TILE + 1))


def _walk(plan):
    """For each (sequence, first head): first, end, partial result and share of each part, in order."""
    found = {}
    for share in range(plan.shares):
        for segment in plan.segments[plan.share_starts[share] : plan.share_starts[share + 1]].tolist():
            sequence, head, kv_head, first, end, partial = segment
            assert kv_head == head // (plan.query_heads // plan.kv_heads)
            found.setdefault((sequence, head), []).append((first, end, partial, share))
    return found


@st.composite
def _batches(draw):
    lengths = draw(st.lists(st.integers(0, 700), max_size=9))
    kv_heads, group = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 7, 8, 12, 16, 71]))
    options = {
        "shares": draw(st.integers(1, 40)),
        "least_tiles": draw(st.integers(1, 9)),
        "window": draw(st.none() | st.integers(1, 300)),
        "fixed_tiles": draw(st.none() | st.integers(1, 9)),
    }
    return lengths, kv_heads, group, options


@settings(max_examples=200, deadline=None)
@given(_batches())
def test_every_token_is_walked_once_and_every_part_is_merged(batch):
    lengths, kv_heads, group, options = batch
    plan = plan_decode(lengths, kv_heads * group, kv_heads, **options)
    found = _walk(plan)
    assert sum(map(len, found.values())) == len(plan.segments)
    first_heads = [kv * group + h for kv in range(kv_heads) for h in range(0, group, heads_together(group))]
    assert set(found) == {(b, head) for b in range(len(lengths)) for head in first_heads}
    merged = {tuple(row): list(range(*plan.merge_starts[i : i + 2])) for i, row in enumerate(plan.merge_rows.tolist())}
    for (sequence, head), parts in found.items():
        length = lengths[sequence]
        first = max(0, length - options["window"]) if options["window"] else 0
        at = first
        for begin, end, _, _ in parts:  # side by side, from the first token to the last
            assert begin == at
            at = end
        assert at == length
        partials = [partial for _, _, partial, _ in parts]
        assert partials == merged.get((sequence, head), [DIRECT])
        assert all(begin % TILE == 0 for begin, *_ in parts[1:])
    assert sorted(itertools.chain(*merged.values())) == list(range(plan.partials))


@settings(max_examples=200, deadline=None)
@given(_batches())
def test_shares_are_equal_to_within_one_tile(batch):
    lengths, kv_heads, group, options = batch
    options["fixed_tiles"] = None
    plan = plan_decode(lengths, kv_heads * group, kv_heads, **options)
    work = [0] * plan.shares
    for parts in _walk(plan).values():
        for first, end, _, share in parts:
            work[share] += len(_tiles_of(first, end))
    assert max(work, default=0) - min(work, default=0) <= 1
    assert plan.shares <= options["shares"]
    total = sum(work)
    assert plan.shares == min(options["shares"], -(-total // options["least_tiles"]))


@settings(max_examples=100, deadline=None)
@given(_batches(), st.integers(1, 5))
def test_a_fixed_split_depends_on_the_sequence_alone(batch, fixed):
    lengths, kv_heads, group, options = batch
    options["fixed_tiles"] = fixed
    together = _walk(plan_decode(lengths, kv_heads * group, kv_heads, **options))
    for (sequence, head), parts in together.items():
        alone = plan_decode([lengths[sequence]], kv_heads * group, kv_heads, **{**options, "shares": 1})
        cuts = [part[:2] for part in parts]
        assert cuts == [part[:2] for part in _walk(alone)[0, head]]
        assert all(len(_tiles_of(*cut)) == fixed for cut in cuts[:-1])


def test_the_picture_of_the_docstring():
    """Items of 8, 2 and 9 tiles; A and C are cut, B is not."""
    plan = plan_decode([8 * TILE, 2 * TILE, 9 * TILE - 3], 1, 1, shares=3, least_tiles=1)
    assert plan.share_starts.tolist() == [0, 1, 4, 5]
    assert plan.segments.tolist() == [
        [0, 0, 0, 0, 96, 0],
        [0, 0, 0, 96, 128, 1],
        [1, 0, 0, 0, 32, DIRECT],
        [2, 0, 0, 0, 32, 2],
        [2, 0, 0, 32, 141, 3],
    ]
    assert plan.merge_rows.tolist() == [[0, 0], [2, 0]]
    assert plan.merge_starts.tolist() == [0, 2, 4]
    assert (plan.sequences, plan.query_heads, plan.kv_heads, plan.longest, plan.window) == (3, 1, 1, 141, None)


def test_an_empty_batch_has_no_shares_and_an_empty_sequence_has_one_segment():
    nothing = plan_decode([], 8, 2, shares=264)
    assert (nothing.shares, nothing.merges, nothing.partials, len(nothing.segments)) == (0, 0, 0, 0)
    zeros = plan_decode([0, -3], 8, 2, shares=264)
    assert zeros.segments.tolist() == [[b, h, h // 4, 0, 0, DIRECT] for b in (0, 1) for h in (0, 4)]
    assert zeros.shares == 1


def test_padding_adds_nothing():
    plan = plan_decode([100, 0, 900], 4, 2, shares=7, least_tiles=1)
    padded = plan.padded(shares=11, segments=40, merges=9, partials=30)
    assert (padded.shares, padded.merges, padded.partials, len(padded.segments)) == (11, 9, 30, 40)
    assert _walk(padded) == _walk(plan)
    assert (np.diff(padded.merge_starts)[plan.merges :] == 0).all()
    assert plan_decode([], 4, 2, shares=7).padded(shares=2, segments=3, merges=1, partials=0).shares == 2
    with pytest.raises(LaunchError, match=r"the plan has 7 shares, .*; capture a larger graph"):
        plan.padded(shares=6, segments=40, merges=9, partials=30)


def test_on_moves_every_array():
    moved = plan_decode([300], 4, 2, shares=3, least_tiles=1).on(lambda array: array.copy() + 1)
    plan = plan_decode([300], 4, 2, shares=3, least_tiles=1)
    for name in ("segments", "share_starts", "merge_rows", "merge_starts"):
        assert (getattr(moved, name) == getattr(plan, name) + 1).all()
        assert getattr(plan, name).dtype == np.int32


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([[3]], 4, 2, {"shares": 1}), r"lengths must be whole numbers \[B\] on the host, not int64 \[1, 1\]"),
        (([3.5], 4, 2, {"shares": 1}), "lengths must be whole numbers .* not float64"),
        (([3], 5, 2, {"shares": 1}), "query has 5 heads, which is not a multiple of the 2 KV heads"),
        (([3], 4, 2, {"shares": 0}), "shares must be at least 1, not 0"),
        (([3], 4, 2, {"shares": 1, "window": 0}), "window must be at least 1, not 0"),
        (([3], 4, 2, {"shares": 1, "fixed_tiles": -1}), "fixed_tiles must be at least 1, not -1"),
        (([3], 4, 2, {"shares": 2.5}), "shares must be a whole number, not 2.5"),
        (([3], 4, 2, {"shares": 1, "window": 2.5}), "window must be a whole number, not 2.5"),
        (([3], 4, 2, {"shares": 1, "window": 2**40}), "window must be at most 2147418112, not 1099511627776"),
        (([3], 4, 2, {"shares": 1, "heads": 0}), "heads must be 8 or 16, not 0"),
        (([3], 4, 2, {"shares": 1, "heads": 3}), "heads must be 8 or 16, not 3"),
        (([3], 0, 2, {"shares": 1}), "query has 0 heads, which is not a multiple of the 2 KV heads"),
        (([3], 4, 0, {"shares": 1}), "kv_heads must be at least 1, not 0"),
        (([3], 2**31, 1, {"shares": 1}), "query_heads must be at most 65535, not 2147483648"),
        (([2**31], 4, 2, {"shares": 1}), "lengths has 2147483648 tokens, kernels count up to 2147418112"),
        ((np.array([2**63], np.uint64), 4, 2, {"shares": 1}), "lengths has 9223372036854775808 tokens"),
    ],
)
def test_impossible_numbers_are_one_line_errors(arguments, text):
    *positional, options = arguments
    with pytest.raises(LaunchError, match=text):
        plan_decode(*positional, **options)
