"""paged_prefill on the CPU against float64: chunks of prompts, packed groups, masks at every edge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, Scoring, launch, plan_prefill
from kernels_cu.host_run import COPIES, SCHEDULES

LENGTHS = (1, 16, 65, 130, 333, 0)
QUERIES = (1, 16, 64, 3, 100, 0)
BUILDS = [
    ("float16", "hnd", 128, 16, 4),
    ("bfloat16", "nhd", 64, 32, 1),
    ("bfloat16", "hnd", 128, 16, 3),
    ("float16", "nhd", 256, 16, 2),
    ("float16", "hnd", 64, 8, 5),
    ("float16", "hnd", 64, 16, 71),
]


@pytest.mark.parametrize(("dtype", "layout", "head_dim", "block_size", "group"), BUILDS)
def test_agrees_with_float64(target, cases, dtype, layout, head_dim, block_size, group):
    heads = 1 if group > 8 else 2
    case = cases.Case(dtype, layout, head_dim, block_size, group, heads, LENGTHS, seed=group)
    case.append(target)
    case.check(case.prefill(target, QUERIES))


@pytest.mark.exhaustive
@pytest.mark.parametrize("block_size", [1, 16, 256])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_agrees_with_float64_in_every_shape(target, cases, dtype, head_dim, block_size):
    for layout, group, causal in itertools.product(("hnd", "nhd"), (1, 2, 4, 7, 8, 16), (True, False)):
        lengths, queries = (1328, 18, 463, 5), (1, 5, 129, 5)
        case = cases.Case(dtype, layout, head_dim, block_size, group, 1, lengths, seed=group)
        case.append(target)
        case.check(case.prefill(target, queries, causal=causal), causal=causal)


@pytest.mark.parametrize("window", [1, 17, 64, 1000])
@pytest.mark.parametrize("causal", [True, False])
def test_masks(target, cases, causal, window):
    """With 64 tokens in a tile and a window of 1, the last rows see nothing in the tile's first turn."""
    case = cases.Case("float16", head_dim=64, group=1, kv_heads=2, lengths=(200, 65, 7))
    case.append(target)
    case.check(case.prefill(target, (150, 65, 3), causal=causal, window=window), causal=causal, window=window)


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.7},
        {"soft_cap": 30.0},
        {"alibi": True},
        {"sinks": True},
        {"alibi": True, "sinks": True, "soft_cap": 20.0, "window": 37},
    ],
)
def test_options(target, cases, options):
    case = cases.Case("bfloat16", head_dim=64, group=6, kv_heads=2, lengths=LENGTHS)
    case.append(target)
    rng = np.random.default_rng(7)
    arrays = {"alibi": 2.0 ** -np.arange(1, 13, dtype=np.float32), "sinks": rng.normal(2, 2, 12).astype(np.float32)}
    chosen = {name: arrays.get(name, number) for name, number in options.items()}
    case.check(case.prefill(target, QUERIES, **chosen), **chosen)


@pytest.mark.parametrize(("dtype", "query"), [("e4m3", "float16"), ("int8", "bfloat16")])
def test_narrow_caches(target, cases, dtype, query):
    scales = {name: np.array([0.03, 0.05], np.float32) for name in ("key_scale", "value_scale")}
    case = cases.Case(dtype, "hnd", 64, group=4, lengths=LENGTHS, query_dtype=query, scales=scales)
    case.append(target)
    case.check(case.prefill(target, QUERIES))


def test_chunks_of_a_prompt_give_what_the_whole_gives(target, cases):
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=1, lengths=(150,))
    case.append(target)
    whole, _ = case.prefill(target, (150,))
    query = case.query
    for start, end in ((0, 64), (64, 100), (100, 150)):
        plan = plan_prefill((end - start,), (end,), 2, 1)
        out = np.empty_like(query[start:end])
        launch.paged_prefill(target, case.kv, plan, query[start:end], case.tables, out)
        assert abs(out.astype(np.float64) - whole[start:end].astype(np.float64)).max() <= 1e-3


def test_one_query_is_a_decode(target, cases):
    case = cases.Case("float16", head_dim=128, group=4, lengths=(300, 17))
    case.append(target)
    out, lse = case.prefill(target, (1, 1))
    decoded, decoded_lse = case.decode(target)
    assert abs(out.astype(np.float64) - decoded.astype(np.float64)).max() <= 1e-3
    assert np.allclose(lse, decoded_lse, rtol=1e-5, atol=1e-5)


def test_a_shared_prefix_and_a_suffix_are_one_attention(target, cases):
    """Cascade: all queries over the prefix without a mask, each over its suffix, and both joined."""
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=1, lengths=(100, 100))
    case.append(target)
    case.tables[1, :3] = case.tables[0, :3]  # 48 tokens in common
    for rows in (case.keys, case.values):
        rows[1] = np.concatenate([rows[0][:48], rows[1][48:]])
    wanted, wanted_lse = case.wanted()
    states = []
    plan = plan_prefill((2,), (48,), 2, 1)
    out, lse = np.empty_like(case.query), np.empty((2, 2), np.float32)
    launch.paged_prefill(target, case.kv, plan, case.query, case.tables[:1], out, lse=lse, causal=False)
    states += [out.copy(), lse.copy()]
    suffix = plan_prefill((1, 1), (52, 52), 2, 1)
    tables = np.ascontiguousarray(case.tables[:, 3:])
    launch.paged_prefill(target, case.kv, suffix, case.query, tables, out, lse=lse)
    launch.merge_states(target, *states, out, lse, out, lse)
    assert abs(out - wanted).max() <= 4e-3
    assert np.allclose(lse, wanted_lse, rtol=1e-5, atol=1e-5)


def test_the_schedule_of_threads_and_copies_does_not_change_a_bit(cases, target):
    results = set()
    runs = [target, *(HostTarget(HostRun(s, threads=1, copies=c)) for s, c in itertools.product(SCHEDULES, COPIES))]
    for run in runs:
        case = cases.Case("float16", head_dim=64, group=3, kv_heads=1, lengths=(150, 20))
        case.append(target)
        out, lse = case.prefill(run, (70, 20))
        results.add((out.tobytes(), lse.tobytes()))
    assert len(results) == 1


@pytest.mark.parametrize(("schedule", "copies"), [("descending", "lazy"), ("interleaved", "eager")])
@pytest.mark.parametrize("block_size", [16, 8])
def test_no_access_to_shared_memory_races(cases, target, schedule, copies, block_size):  # noqa: ARG001
    run = HostTarget(HostRun(schedule, race_check=True, copies=copies))
    case = cases.Case("float16", "hnd", 64, block_size, group=3, kv_heads=1, lengths=(150, 20, 0))
    case.append(run)
    case.check(case.prefill(run, (70, 20, 0)))


def test_tokens_of_query_and_out_may_lie_apart(target, cases):
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=1, lengths=(40,))
    case.append(target)
    case.prefill(target, (10,))
    wide_query, wide_out = np.zeros((10, 5, 64), np.float16), np.full((10, 3, 64), 7, np.float16)
    wide_query[:, :2] = case.query
    wide_lse = np.full((10, 4), 7, np.float32)
    plan = plan_prefill((10,), (40,), 2, 1)
    launch.paged_prefill(target, case.kv, plan, wide_query[:, :2], case.tables, wide_out[:, :2], lse=wide_lse[:, :2])
    case.check((wide_out[:, :2], wide_lse[:, :2]))
    assert (wide_out[:, 2:] == 7).all()
    assert (wide_lse[:, 2:] == 7).all()


def test_a_plan_has_each_row_once_and_long_tiles_first():
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 500, 20)
    queries = rng.integers(0, lengths + 1)
    plan = plan_prefill(queries, lengths, 12, 4)
    rows = {(sequence, row) for sequence, first in plan.tiles.tolist() for row in range(first, first + 64)}
    wanted = {(b, row) for b, count in enumerate(queries) for row in range(-(-count * 3 // 64) * 64)}
    assert rows == wanted
    assert len(rows) == 64 * len(plan.tiles)
    assert plan.query_starts.tolist() == [0, *np.cumsum(queries)]
    walked = [min(lengths[b], lengths[b] - queries[b] + (first + 63) // 3 + 1) for b, first in plan.tiles.tolist()]
    assert walked == sorted(walked, reverse=True)


def test_no_queries_launch_nothing(never, cases):
    case = cases.Case("float16", head_dim=64, lengths=(40,))
    assert case.prefill(never, (0,))[0].shape == (0, 2, 64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (((3,), (2,), 4, 2), "query_lengths must be .B. numbers from 0 to the length of each sequence"),
        (((1, 1), (2,), 4, 2), "query_lengths must be .B. numbers from 0 to the length of each sequence"),
        (((1.0,), (2,), 4, 2), "query_lengths must be whole numbers .* not float64"),
        (((1,), (2,), 5, 2), "query has 5 heads, which is not a multiple of the 2 KV heads"),
        (((1,), (2,), 0, 2), "query has 0 heads, which is not a multiple of the 2 KV heads"),
        (((1,), (2**31,), 4, 2), "lengths has 2147483648 tokens, kernels count up to 2147418112"),
        (((2**28,), (2**28,), 8, 1), "times the heads of a group, must be at most 2147418112, not 2147483648"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(arguments, text):
    with pytest.raises(LaunchError, match=text):
        plan_prefill(*arguments)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"plan": lambda _: plan_prefill((3, 5), (20, 10), 4, 1)}, "the plan is made for 1 KV heads, the pool has 2"),
        ({"plan": lambda _: plan_prefill((3, 5), (200, 10), 4, 2)}, "the longest sequence has 200 tokens, but block_t"),
        ({"query": lambda a: a[:7]}, r"query must have shape \[8, 4, 64\], not \[7, 4, 64\]"),
        ({"window": lambda _: 0}, "window must be at least 1, not 0"),
        ({"window": lambda _: 2**40}, "window must be at most 2147418112, not 1099511627776"),
        ({"window": lambda _: 2.5}, "window must be a whole number, not 2.5"),
        ({"scoring": lambda _: Scoring(sinks=np.zeros(3, np.float32))}, r"sinks must have shape \[4\], not \[3\]"),
    ],
)
def test_wrong_arguments_are_one_line_errors(cases, wrong, text):
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=2, lengths=(20, 10))
    arguments = {
        "plan": plan_prefill((3, 5), (20, 10), 4, 2),
        "query": np.zeros((8, 4, 64), np.float16),
        "block_tables": case.tables,
        "out": np.zeros((8, 4, 64), np.float16),
    }
    for name, change in wrong.items():
        arguments[name] = change(arguments.get(name))
    with pytest.raises(LaunchError, match=text):
        launch.paged_prefill(HostTarget(), case.kv, **arguments)
