"""paged_decode on the CPU against float64 computed from the cache: every type, shape, option and split.

Pools hold NaN wherever there is no token, and block tables an id that nobody may follow behind the last block.
"""

from __future__ import annotations

import itertools
import mmap

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, PagedKV, Scoring, launch, plan_decode, reference
from kernels_cu.host_run import COPIES, ORDERS, SCHEDULES

LENGTHS = (1, 15, 16, 17, 0, 63, 64, 65, 100, 257, 500)
"""Every edge of a tile of 16 tokens and of a turn of 4 warps."""
BUILDS = [
    ("float16", "hnd", 128, 16, 1),
    ("float16", "hnd", 128, 16, 4),
    ("float16", "hnd", 128, 16, 8),
    ("bfloat16", "nhd", 128, 32, 4),
    ("bfloat16", "hnd", 64, 64, 7),
    ("float16", "nhd", 256, 16, 2),
    ("bfloat16", "hnd", 128, 16, 12),
    ("float16", "hnd", 64, 16, 71),
    ("float16", "hnd", 64, 8, 2),
    ("bfloat16", "nhd", 128, 1, 1),
    ("float16", "hnd", 64, 20, 3),
]


@pytest.mark.parametrize(("dtype", "layout", "head_dim", "block_size", "group"), BUILDS)
def test_agrees_with_float64(target, cases, dtype, layout, head_dim, block_size, group):
    heads = 1 if group > 8 else 2
    case = cases.Case(dtype, layout, head_dim, block_size, group, heads, LENGTHS, seed=group)
    case.append(target)
    case.check(case.decode(target, shares=5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("block_size", [1, 5, 8, 16, 48, 256])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_agrees_with_float64_in_every_shape(target, cases, dtype, head_dim, block_size):
    lengths = (2011, 1, 16, 0, 1024, 523, 37)
    for seed, (layout, group) in enumerate(itertools.product(("hnd", "nhd"), (1, 2, 3, 4, 5, 7, 8, 9, 16, 17))):
        case = cases.Case(dtype, layout, head_dim, block_size, group, 1, lengths, seed=seed)
        case.append(target)
        shares = (1, 7, 300)[(seed + block_size) % 3]  # they take turns over the shapes
        case.check(case.decode(target, shares=shares))


def _narrow(cases, dtype, query, scales, **shape):
    """A case with a cache of e4m3 or int8, whose scales let its values use the range of the type."""
    step = {"e4m3": 0.03, "int8": 0.04}[dtype]
    rng = np.random.default_rng(scales)
    by = {name: (step * rng.uniform(0.7, 1.4, scales)).astype(np.float32) for name in ("key_scale", "value_scale")}
    return cases.Case(dtype, query_dtype=query, scales=by, **shape)


NARROW = [
    ("e4m3", "float16", 128, 16, 4, 1),
    ("e4m3", "bfloat16", 64, 8, 1, 2),
    ("int8", "bfloat16", 128, 32, 8, 2),
    ("int8", "float16", 256, 16, 3, 1),
]


@pytest.mark.parametrize(("dtype", "query", "head_dim", "block_size", "group", "scales"), NARROW)
def test_narrow_caches_agree_with_float64_of_what_they_hold(
    target, cases, dtype, query, head_dim, block_size, group, scales
):
    shape = {"head_dim": head_dim, "block_size": block_size, "group": group, "lengths": LENGTHS}
    case = _narrow(cases, dtype, query, scales, **shape)
    case.append(target)
    case.check(case.decode(target, shares=5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("block_size", [1, 16, 256])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize(("dtype", "query"), [(c, q) for c in ("e4m3", "int8") for q in ("float16", "bfloat16")])
def test_narrow_caches_agree_in_every_shape(target, cases, dtype, query, head_dim, block_size):
    for layout, group, scales in itertools.product(("hnd", "nhd"), (1, 4, 8, 12), (1, 2)):
        shape = {"head_dim": head_dim, "block_size": block_size, "group": group, "lengths": (2011, 0, 16, 333)}
        case = _narrow(cases, dtype, query, scales, layout=layout, **shape)
        case.append(target)
        case.check(case.decode(target, shares=7))


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_a_nan_byte_in_a_slot_without_a_token_never_reaches_the_result(target, cases, byte):
    outs = []
    for fill in (0, byte):
        case = _narrow(cases, "e4m3", "float16", 1, head_dim=64, group=2, lengths=(5, 17, 70))
        case.key_pool.view(np.uint8)[...] = fill
        case.value_pool.view(np.uint8)[...] = fill
        case.append(target)
        outs.append(case.decode(target, shares=3))
        assert np.isfinite(outs[-1][0]).all()
    assert (outs[0][0] == outs[1][0]).all()
    assert (outs[0][1] == outs[1][1]).all()


def test_every_e4m3_number_is_read_as_it_is(target, cases):
    """One token whose V has every finite e4m3: attention over it is V itself, and a query of ones finds K's sum."""
    import ml_dtypes

    every = np.arange(256, dtype=np.uint8)
    finite = np.where((every & 0x7F) == 0x7F, 0, every).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    case = cases.Case("e4m3", head_dim=256, kv_heads=1, lengths=(1,), query_dtype="float16")
    case.scales = {"key_scale": np.ones(1, np.float32), "value_scale": np.ones(1, np.float32)}
    case.keys = case.values = [finite.reshape(1, 1, 256)]
    case.query = np.random.default_rng(3).permutation(256).reshape(1, 1, 256).astype(np.float16) / 256
    case.append(target)
    out, lse = case.decode(target)
    assert (out[0, 0] == finite).all()
    assert np.allclose(lse[0, 0], case.wanted()[1], rtol=1e-6)


def test_agrees_at_every_length_up_to_three_turns(target, cases):
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=1, lengths=tuple(range(200)))
    case.append(target)
    case.check(case.decode(target, shares=11))


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 64, 100, 5000])
def test_a_window_sees_the_last_tokens_alone(target, cases, window):
    case = cases.Case("float16", head_dim=64, group=4, kv_heads=1, lengths=LENGTHS)
    case.append(target)
    case.check(case.decode(target, window=window), window=window)


def test_tokens_before_the_window_may_hold_anything(target, cases):
    case = cases.Case("float16", head_dim=64, group=1, kv_heads=1, lengths=(70, 33))
    case.append(target)
    right = case.decode(target, window=20)
    for b, length in enumerate(case.lengths):
        for token in range(length - 20):
            for pool in (case.key_pool, case.value_pool):
                pool[case.tables[b, token // 16], :, token % 16] = np.nan
    assert (case.decode(target, window=20)[0] == right[0]).all()


@pytest.mark.parametrize("block_size", [8, 16])
def test_blocks_before_the_window_may_be_gone(target, cases, block_size):
    case = cases.Case("float16", "hnd", 64, block_size, group=1, kv_heads=1, lengths=(70, 33))
    case.append(target)
    for b, length in enumerate(case.lengths):
        case.tables[b, : (length - 20) // block_size] = cases.NO_BLOCK
    case.check(case.decode(target, window=20), window=20)


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.7},
        {"soft_cap": 1.0},
        {"soft_cap": 30.0},
        {"soft_cap": 50.0, "scale": 3.0},
        {"alibi": True},
        {"sinks": True},
        {"alibi": True, "sinks": True, "soft_cap": 20.0, "window": 37},
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_options(target, cases, dtype, options):
    case = cases.Case(dtype, head_dim=64, group=6, kv_heads=2, lengths=LENGTHS)
    case.append(target)
    rng = np.random.default_rng(7)
    arrays = {"alibi": 2.0 ** -np.arange(1, 13, dtype=np.float32), "sinks": rng.normal(2, 2, 12).astype(np.float32)}
    chosen = {name: arrays.get(name, number) for name, number in options.items()}
    case.check(case.decode(target, shares=9, **chosen), **chosen)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_split_does_not_matter(target, cases, dtype):
    case = cases.Case(dtype, head_dim=128, group=4, lengths=(1000, 30, 0, 333))
    case.append(target)
    one, *others = [case.decode(target, shares=shares) for shares in (1, 2, 7, 10_000)]
    case.check(one)
    for out, lse in others:
        assert (
            abs(out.astype(np.float64) - one[0].astype(np.float64)).max() <= {"float16": 1e-3, "bfloat16": 8e-3}[dtype]
        )
        assert np.allclose(lse, one[1], rtol=1e-5, atol=1e-5)


def test_a_fixed_split_gives_the_same_bits_in_every_batch(target, cases):
    case = cases.Case("bfloat16", head_dim=64, group=2, lengths=(700, 333, 16, 1))
    case.append(target)
    together = case.decode(target, shares=7, fixed_tiles=8)
    case.check(together)
    case.tables, case.query, case.lengths = case.tables[1:2], case.query[1:2], case.lengths[1:2]
    alone = case.decode(target, shares=3, fixed_tiles=8)
    assert (alone[0].view(np.uint16) == together[0][1:2].view(np.uint16)).all()
    assert (alone[1] == together[1][1:2]).all()


@pytest.mark.parametrize(("layout", "block_size"), [("hnd", 16), ("nhd", 8)])
def test_the_place_of_blocks_does_not_change_a_bit(target, cases, layout, block_size):
    outputs = []
    for seed in (1, 2):
        case = cases.Case("float16", layout, 64, block_size, group=2, lengths=(300, 41))
        case.tables = cases.Case("float16", layout, 64, block_size, group=2, lengths=(300, 41), seed=seed).tables
        case.append(target)
        outputs.append((case.tables, case.decode(target)[0].view(np.uint16)))
    (first_table, first), (second_table, second) = outputs
    assert (first_table != second_table).any()
    assert (first == second).all()


@pytest.mark.parametrize("layout", ["hnd", "nhd"])
def test_blocks_may_lie_apart_and_stand_in_two_tables(target, cases, layout):
    case = cases.Case("float16", layout, head_dim=64, group=2, lengths=(100, 70), blocks_apart=24)
    case.append(target)
    case.tables[1, :2] = case.tables[0, :2]  # a shared prefix of 32 tokens
    for rows in (case.keys, case.values):
        rows[1] = np.concatenate([rows[0][:32], rows[1][32:]])
    assert case.kv.block_stride == 2 * 16 * 64 + 24
    case.check(case.decode(target))


def test_a_block_may_stand_twice_in_one_table(target, cases):
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=1, lengths=(64,))
    case.append(target)
    case.tables[0, :4] = case.tables[0, [2, 0, 2, 2]]
    order = np.concatenate([np.arange(16 * block, 16 * block + 16) for block in (2, 0, 2, 2)])
    case.keys, case.values = [case.keys[0][order]], [case.values[0][order]]
    case.check(case.decode(target))


@pytest.mark.parametrize(("query_heads", "kv_heads"), [(40, 40), (64, 8), (32, 8)])
def test_many_heads(target, cases, query_heads, kv_heads):
    case = cases.Case("float16", head_dim=64, group=query_heads // kv_heads, kv_heads=kv_heads, lengths=(33, 0, 70))
    case.append(target)
    for shares in (1, 17, 132):
        case.check(case.decode(target, shares=shares))


def test_the_schedule_of_threads_copies_and_blocks_does_not_change_a_bit(cases, target):
    case = cases.Case("float16", "hnd", 128, group=8, kv_heads=1, lengths=(333, 17, 100))
    case.append(target)
    right = case.decode(target)
    case.check(right)
    for schedule, copies in itertools.product(SCHEDULES, COPIES):
        for order in ORDERS[:2]:
            out, lse = case.decode(HostTarget(HostRun(schedule, order, 1, copies=copies)))
            assert (out.view(np.uint16) == right[0].view(np.uint16)).all(), (schedule, copies)
            assert (lse == right[1]).all()


def test_agrees_with_the_simple_kernel(target, cases):
    for dtype, tolerance in (("float16", 2e-3), ("bfloat16", 1.6e-2)):
        case = cases.Case(dtype, head_dim=128, group=4, lengths=(1000, 77, 0, 16))
        case.append(target)
        fast, simple = case.decode(target)[0], case.attend(target)
        assert abs(fast.astype(np.float64) - simple.astype(np.float64)).max() <= tolerance


def test_large_scores_neither_overflow_nor_vanish(target, cases):
    case = cases.Case("bfloat16", head_dim=64, lengths=(70, 300))
    case.keys = [(key.astype(np.float32) * 1000).astype(key.dtype) for key in case.keys]
    case.append(target)
    case.check(case.decode(target))


def test_a_value_that_is_not_a_number_stays_one_and_stays_alone(target, cases):
    case = cases.Case("float16", head_dim=64, kv_heads=2, lengths=(40, 40))
    case.values[0][3, 1, 5] = np.nan
    case.append(target)
    out, _ = case.decode(target)
    assert np.argwhere(np.isnan(out)).tolist() == [[0, 1, 5]]


def test_32768_blocks_lie_beyond_2_to_the_31_elements(target, cases):
    """A pool of 8 GiB of addresses, of which a few pages are touched."""
    blocks, stride = 32768, 1 << 17
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE, which mmap names from Python 3.12 on
    memory = mmap.mmap(-1, 2 * blocks * stride, flags=flags)
    try:
        case = cases.Case("float16", head_dim=64, group=2, kv_heads=1, lengths=(64,))
        base = np.frombuffer(memory, np.uint8).ctypes.data
        kv = PagedKV(base, base + 2048, "float16", "hnd", 16, 1, 64, stride, 1024, 64)
        case.tables = np.array([[blocks - 1, 0, blocks - 2, 17000]], np.int32)
        launch.append_kv(target, kv, case.keys[0], case.values[0], case.slots())
        plan = plan_decode(case.lengths, 2, 1, shares=1)
        out, lse = np.empty_like(case.query), np.empty((1, 2), np.float32)
        launch.paged_decode(target, kv, plan, case.query, case.tables, np.array([64], np.int32), out, lse=lse)
        case.check((out, lse))
    finally:
        memory.close()


def test_rows_of_query_out_and_lse_may_lie_apart(target, cases):
    case = cases.Case("float16", head_dim=64, group=4, lengths=(9, 40, 300))
    case.append(target)
    wide_query = np.zeros((3, 13, 64), np.float16)
    wide_query[:, :8] = case.query
    wide_out, wide_lse = np.full((3, 9, 64), 7, np.float16), np.full((3, 11), 7, np.float32)
    plan = plan_decode(case.lengths, 8, 2, shares=1)
    lengths = np.array(case.lengths, np.int32)
    launch.paged_decode(
        target, case.kv, plan, wide_query[:, :8], case.tables, lengths, wide_out[:, :8], lse=wide_lse[:, :8]
    )
    case.check((wide_out[:, :8], wide_lse[:, :8]))
    assert (wide_out[:, 8:] == 7).all()
    assert (wide_lse[:, 8:] == 7).all()


def test_a_padded_plan_gives_the_same(target, cases):
    case = cases.Case("float16", head_dim=64, group=1, kv_heads=1, lengths=(300, 40))
    case.append(target)
    plan = plan_decode(case.lengths, 1, 1, shares=3, least_tiles=1)
    outs = []
    for chosen in (plan, plan.padded(shares=8, segments=20, merges=5, partials=12)):
        partials = np.empty((12, 8, 64), np.float32), np.empty((12, 8), np.float32)
        out = np.empty_like(case.query)
        arguments = (case.query, case.tables, np.array(case.lengths, np.int32), out)
        launch.paged_decode(target, case.kv, chosen, *arguments, partial_out=partials[0], partial_lse=partials[1])
        outs.append(out.tobytes())
    assert outs[0] == outs[1]


def test_an_empty_batch_launches_nothing(never, cases):
    case = cases.Case("float16", head_dim=64, lengths=(1,))
    case.query, case.tables, case.lengths = case.query[:0], case.tables[:0], ()
    assert case.decode(never)[0].shape == (0, 2, 64)


def test_a_fault_is_the_targets_and_names_the_address(target, cases):
    from kernels_cu import KernelFault

    case = cases.Case("float16", head_dim=64, lengths=(40,))
    case.append(target)
    case.tables[0, 1] = cases.NO_BLOCK
    with pytest.raises(KernelFault, match="which is not readable memory; check the base, the strides and the ids"):
        case.decode(target)


def _plan(lengths=(20, 10), heads=6, kv_heads=3, **options):
    return plan_decode(lengths, heads, kv_heads, shares=1, **options)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"query": lambda a: a.astype(np.float32)}, "query must be one of float16, not float32; convert it"),
        ({"query": lambda a: a[:1]}, r"query must have shape \[2, 6, 64\], not \[1, 6, 64\]"),
        ({"lengths": lambda a: a[:1]}, r"lengths must have shape \[2\], not \[1\]"),
        ({"plan": lambda _: _plan(heads=6, kv_heads=2)}, "the plan is made for 2 KV heads, the pool has 3"),
        (
            {"plan": lambda _: _plan((200, 10))},
            "the longest sequence has 200 tokens, but block_tables has room for 4 bl",
        ),
        (
            {"plan": lambda _: plan_decode((60, 10), 6, 3, shares=9, least_tiles=1)},
            r"the plan has \d+ partial results; pass partial_out float32 \[\d+, 8, 64\]",
        ),
        ({"out": lambda a: np.broadcast_to(a[:1], a.shape)}, "out is read-only"),
        ({"scoring": lambda _: Scoring(alibi=np.zeros(5, np.float32))}, r"alibi must have shape \[6\], not \[5\]"),
        (
            {"scoring": lambda _: Scoring(key_scale=np.ones(1, np.float32))},
            "a cache of float16 has no key_scale",
        ),
    ],
)
def test_wrong_arguments_are_one_line_errors(cases, wrong, text):
    case = cases.Case("float16", head_dim=64, group=2, kv_heads=3, lengths=(20, 10))
    arguments = {
        "plan": _plan(),
        "query": case.query,
        "block_tables": case.tables,
        "lengths": np.array(case.lengths, np.int32),
        "out": np.zeros_like(case.query),
    }
    for name, change in wrong.items():
        arguments[name] = change(arguments.get(name))
    with pytest.raises(LaunchError, match=text) as caught:
        launch.paged_decode(HostTarget(), case.kv, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "layout", "head_dim", "text"),
    [
        ("float32", "hnd", 64, "take float16 or bfloat16, not float32; use"),
        ("float16", "vllm", 64, "take layout hnd or nhd, not layout vllm; use"),
        ("float16", "hnd", 96, "take head_dim 64, 128 or 256, not head_dim 96; use"),
    ],
)
def test_a_cache_that_tensor_cores_do_not_take_is_refused_with_the_kernel_that_does(
    cases, dtype, layout, head_dim, text
):
    case = cases.Case(dtype, layout, head_dim, lengths=(20,))
    with pytest.raises(LaunchError, match=f"tensor cores {text} paged_attention_simple$"):
        case.decode(HostTarget())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"scale": float("inf")}, "scale must be a finite number of float32, not inf"),
        ({"scale": 1e300}, r"scale must be a finite number of float32, not 1e\+300"),
        ({"scale": -2.4e38}, r"scale must be a finite number of float32, not -2\.4e\+38"),  # in base 2 it is more
        ({"scale": 10**400}, "scale must be a number of float32, not 1000"),
        ({"scale": "1"}, "scale must be a number of float32, not '1'"),
        ({"soft_cap": 0.0}, r"soft_cap must be a positive number of float32, not 0\.0; None is none"),
        ({"soft_cap": 1e-50}, "soft_cap must be a positive number of float32, not 1e-50"),
        ({"soft_cap": 1e39}, r"soft_cap must be a positive number of float32, not 1e\+39"),
        ({"soft_cap": float("nan")}, "soft_cap must be a positive number of float32, not nan"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong, text):
    with pytest.raises(LaunchError, match=text):
        Scoring(**wrong)


def test_the_reference_is_the_simple_reference(cases):
    """Two references written apart from each other: the one that teaches and the one with all options."""
    case = cases.Case("float16", head_dim=64, group=3, lengths=(5, 0, 40))
    assert np.allclose(case.wanted()[0], reference.paged_attention(case.query, case.keys, case.values), atol=1e-12)
