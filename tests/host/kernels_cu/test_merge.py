"""merge_states and decode_merge on the CPU against float64."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, launch, reference_merge
from kernels_cu.plan import plan_decode

NEGATIVE = -np.inf


def _states(cases, rng, dtype, shape):
    out = rng.standard_normal(shape).astype(cases.DTYPES[dtype])
    return out, rng.normal(0, 30, shape[:2]).astype(np.float32)


@pytest.mark.parametrize("head_dim", [8, 72, 128])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_two_states_become_one(target, cases, dtype, head_dim):
    rng = np.random.default_rng(head_dim)
    a, a_lse = _states(cases, rng, dtype, (7, 3, head_dim))
    b, b_lse = _states(cases, rng, dtype, (7, 3, head_dim))
    b_lse[2:] = a_lse[2:] + rng.normal(0, 2, (5, 3))  # near each other: both count
    a_lse[0], b_lse[1], a_lse[3, 1], b_lse[3, 1] = NEGATIVE, NEGATIVE, NEGATIVE, NEGATIVE
    a[0], b[1], a[3, 1] = np.nan, np.nan, np.nan  # no tokens: whatever stands there
    wanted, wanted_lse = reference_merge.merge(np.stack([a, b]), np.stack([a_lse, b_lse]))
    out, lse = np.empty_like(a), np.empty_like(a_lse)
    launch.merge_states(target, a, a_lse, b, b_lse, out, lse)
    largest = np.nanmax(abs(np.stack([a, b]).astype(np.float64)))
    assert abs(out.astype(np.float64) - wanted).max() <= cases.TOLERANCE[dtype] * largest
    assert np.allclose(lse, wanted_lse, rtol=1e-5, atol=1e-5)
    assert (out[3, 1] == 0).all()
    assert lse[3, 1] == NEGATIVE
    launch.merge_states(target, a, a_lse, b, b_lse, a, b_lse)  # in place
    assert (a == out).all()
    assert (b_lse == lse).all()


def test_the_order_of_merging_does_not_matter(target, cases):
    rng = np.random.default_rng(3)
    states = [_states(cases, rng, "float32", (4, 2, 16)) for _ in range(3)]
    for _, lse in states:
        lse[...] = rng.normal(0, 3, lse.shape)

    def joined(first, second):
        out, lse = np.empty_like(first[0]), np.empty_like(first[1])
        launch.merge_states(target, *first, *second, out, lse)
        return out, lse

    one = joined(joined(states[0], states[1]), states[2])
    other = joined(states[0], joined(states[2], states[1]))
    assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(("group", "head_dim"), [(4, 64), (12, 8), (20, 128)])
def test_partials_of_a_plan_are_joined(target, group, head_dim, sinks):
    rng = np.random.default_rng(group)
    plan = plan_decode([900, 0, 16, 333], 2 * group, 2, shares=9, least_tiles=1)
    assert plan.merges >= 3
    partial_out = rng.standard_normal((plan.partials + 2, plan.heads, head_dim), np.float32)
    partial_lse = rng.normal(0, 4, partial_out.shape[:2]).astype(np.float32)
    partial_lse[0] = NEGATIVE  # a part whose tokens are all masked
    partial_out[0] = 0
    logits = rng.normal(0, 2, 2 * group).astype(np.float32) if sinks else None
    wide = np.full((4, 2 * group + 1, head_dim), 7, np.float16)
    out, lse = wide[:, :-1], np.full((4, 2 * group), 7, np.float32)
    launch.decode_merge(target, plan, partial_out, partial_lse, out, lse=lse, sinks=logits)
    untouched = np.ones((4, 2 * group), bool)
    for (sequence, first), start, end in zip(
        plan.merge_rows, plan.merge_starts[:-1], plan.merge_starts[1:], strict=True
    ):
        heads = slice(first, min(first + plan.heads, (first // group + 1) * group))
        count = heads.stop - heads.start
        parts = partial_out[start:end, :count], partial_lse[start:end, :count]
        wanted, wanted_lse = reference_merge.merge(*parts, None if logits is None else logits[heads])
        assert abs(out[sequence, heads] - wanted).max() <= 2e-3 * abs(partial_out).max()
        assert np.allclose(lse[sequence, heads], wanted_lse, rtol=1e-5, atol=1e-5)
        untouched[sequence, heads] = False
    assert untouched.any()
    assert (out[untouched] == 7).all()
    assert (lse[untouched] == 7).all()
    assert (wide[:, -1] == 7).all()


def test_no_access_to_shared_memory_races(target):  # noqa: ARG001
    rng = np.random.default_rng(6)
    run = HostTarget(HostRun("descending", race_check=True))
    plan = plan_decode([900], 2, 1, shares=9, least_tiles=1)
    partials = rng.standard_normal((9, 8, 64), np.float32), rng.standard_normal((9, 8), np.float32)
    out = np.zeros((1, 2, 64), np.float32)
    launch.decode_merge(run, plan, *partials, out)
    wanted, _ = reference_merge.merge(partials[0][:, :2], partials[1][:, :2])
    assert np.allclose(out[0], wanted, rtol=1e-4, atol=1e-5)
    states = [np.ascontiguousarray(x[:2]) for x in partials]
    launch.merge_states(run, *states, *(x.copy() for x in states), *states)


def test_padded_rows_of_a_plan_do_nothing(target):
    plan = plan_decode([640], 2, 2, shares=4, least_tiles=1)
    padded = plan.padded(shares=8, segments=9, merges=7, partials=20)
    rng = np.random.default_rng(5)
    partial_out, partial_lse = rng.standard_normal((20, 8, 8), np.float32), rng.standard_normal((20, 8), np.float32)
    outs = np.zeros((2, 1, 2, 8), np.float32)
    for out, chosen in zip(outs, (plan, padded), strict=True):
        launch.decode_merge(target, chosen, partial_out, partial_lse, out)
    assert (outs[0] == outs[1]).all()
    assert (outs[0] != 0).all()


def test_nothing_that_was_cut_launches_nothing(never):
    plan = plan_decode([16, 16], 2, 2, shares=4)
    assert plan.merges == 0
    partials = np.empty((0, 8, 8), np.float32), np.empty((0, 8), np.float32)
    launch.decode_merge(never, plan, *partials, np.zeros((2, 2, 8), np.float32))
    nothing = np.empty((0, 2, 8), np.float32), np.empty((0, 2), np.float32)
    launch.merge_states(never, *nothing, *nothing, *nothing)


def test_wrong_arguments_are_one_line_errors():
    a, lse = np.zeros((2, 3, 8), np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(LaunchError, match="b must be float32, not float16"):
        launch.merge_states(HostTarget(), a, lse, a.astype(np.float16), lse, a, lse)
    with pytest.raises(LaunchError, match="a must be packed, but its rows lie 48 elements apart"):
        launch.merge_states(HostTarget(), np.zeros((4, 3, 8), np.float32)[::2], lse, a, lse, a, lse)
    with pytest.raises(LaunchError, match="a must be one of float32, float16, bfloat16, not float64"):
        launch.merge_states(HostTarget(), a.astype(np.float64), lse, a, lse, a, lse)
    plan = plan_decode([640], 2, 2, shares=4, least_tiles=1)
    few = np.zeros((1, 8, 8), np.float32), np.zeros((1, 8), np.float32)
    with pytest.raises(LaunchError, match=r"partial_out has 1 rows, the plan has \d+ partial results; allocate more"):
        launch.decode_merge(HostTarget(), plan, *few, np.zeros((1, 2, 8), np.float32))
