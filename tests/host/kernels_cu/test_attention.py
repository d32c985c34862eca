"""paged_attention_simple on the CPU against the float64 reference."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, PagedKV, launch
from kernels_cu.host_run import ORDERS, SCHEDULES

BUILDS = [
    ("float32", "hnd", 8),
    ("float32", "vllm", 72),
    ("float32", "nhd", 256),
    ("float16", "vllm", 8),
    ("float16", "nhd", 64),
    ("float16", "hnd", 128),
    ("bfloat16", "hnd", 40),
    ("bfloat16", "vllm", 128),
    ("bfloat16", "nhd", 128),
]
BLOCK_SIZES = (1, 3, 16, 256)


@pytest.mark.parametrize("group", [1, pytest.param(4, marks=pytest.mark.exhaustive), 8])
@pytest.mark.parametrize(("dtype", "layout", "head_dim"), BUILDS)
def test_agrees_with_the_reference(target, cases, dtype, layout, head_dim, group):
    for seed, block_size in enumerate(BLOCK_SIZES):
        case = cases.Case(dtype, layout, head_dim, block_size, group, kv_heads=8 // group, seed=seed)
        case.append(target)
        assert case.error(case.attend(target)) <= cases.TOLERANCE[dtype], f"block_size {block_size}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", ["hnd", "nhd", "vllm"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_agrees_with_the_reference_for_every_head_dim(target, cases, dtype, layout):
    """Groups take turns from one head_dim and block size to the next."""
    for head_dim in range(8, 257, 8):
        for place, block_size in enumerate((1, 7, 16, 32, 256)):
            group = (1, 4, 8)[(head_dim // 8 + place) % 3]
            case = cases.Case(dtype, layout, head_dim, block_size, group, kv_heads=1, seed=head_dim + block_size)
            case.append(target)
            assert case.error(case.attend(target)) <= cases.TOLERANCE[dtype], (head_dim, group, block_size)


@pytest.mark.parametrize("block_size", [5, 16])
def test_agrees_at_every_length_up_to_three_passes(target, cases, block_size):
    case = cases.Case("float32", head_dim=8, block_size=block_size, lengths=tuple(range(1, 98)))
    case.append(target)
    assert case.error(case.attend(target)) <= 1e-5


def test_a_scale_is_applied(target, cases):
    case = cases.Case("float32", head_dim=8, lengths=(50,))
    case.append(target)
    assert case.error(case.attend(target, scale=2.5), scale=2.5) <= 1e-5
    assert case.error(case.attend(target, scale=-1), scale=-1) <= 1e-5


def test_large_scores_neither_overflow_nor_vanish(target, cases):
    case = cases.Case("float32", head_dim=8, lengths=(70,))
    case.keys = [key * 1000 for key in case.keys]
    case.append(target)
    assert case.error(case.attend(target)) <= 1e-5


@pytest.mark.parametrize("layout", ["hnd", "vllm"])
def test_no_tokens_give_zeros_without_a_look_at_the_table(target, cases, layout):
    case = cases.Case("float16", layout, head_dim=8, lengths=(0, 5, 0))
    assert (case.tables[0] == cases.NO_BLOCK).all()
    case.append(target)
    out = case.attend(target)
    assert (out[[0, 2]] == 0).all()
    assert case.error(out) <= 2e-3


def test_a_table_without_columns_is_never_read(target, cases):
    case = cases.Case("float32", head_dim=8, lengths=(0,))
    case.tables = np.empty((1, 0), np.int32)
    assert (case.attend(target) == 0).all()


def test_a_negative_length_is_no_tokens(target, cases):
    case = cases.Case("float32", head_dim=8, lengths=(0, 3))
    case.append(target)
    case.lengths = (-7, 3)
    assert (case.attend(target)[0] == 0).all()


def test_a_length_beyond_the_table_gives_nan_and_reads_nothing(target, cases):
    case = cases.Case("float32", head_dim=8, lengths=(32, 32))  # full blocks: what lies behind a row is a number
    case.append(target)
    case.tables = np.ascontiguousarray(case.tables[:, :2])
    right = case.attend(target)
    case.lengths = (33, 32)
    out = case.attend(target)
    assert np.isnan(out[0]).all()
    assert (out[1] == right[1]).all()
    case.lengths = (32, 32)
    assert case.error(right) <= 1e-5


@pytest.mark.parametrize("layout", ["hnd", "nhd", "vllm"])
def test_the_place_of_blocks_does_not_change_a_bit(target, cases, layout):
    outputs = []
    for seed in (1, 2):
        case = cases.Case("bfloat16", layout, head_dim=8, lengths=(300, 41))
        other = cases.Case("bfloat16", layout, head_dim=8, lengths=(300, 41), seed=seed)
        case.tables = other.tables
        case.append(target)
        outputs.append((case.tables, case.attend(target).view(np.uint16)))
    (first_table, first), (second_table, second) = outputs
    assert (first_table != second_table).any()
    assert (first == second).all()


def test_a_block_may_stand_in_two_tables(target, cases):
    case = cases.Case("float32", head_dim=8, lengths=(48, 48))
    case.append(target)
    case.tables[1, :2] = case.tables[0, :2]  # a shared prefix of 32 tokens
    for rows in (case.keys, case.values):
        rows[1] = np.concatenate([rows[0][:32], rows[1][32:]])
    assert case.error(case.attend(target)) <= 1e-5


def test_rows_of_query_out_and_tables_may_lie_apart(target, cases):
    case = cases.Case("float16", head_dim=8, group=4, lengths=(9, 40, 100))
    case.append(target)
    heads = case.query.shape[1]
    wide_query = np.zeros((3, heads + 5, 8), np.float16)
    wide_query[:, :heads] = case.query
    wide_tables = np.full((6, case.tables.shape[1] + 3), cases.NO_BLOCK, np.int32)
    wide_tables[::2, : case.tables.shape[1]] = case.tables
    wide_out = np.full((3, heads + 2, 8), 7, np.float16)
    lengths = np.array(case.lengths, np.int32)
    launch.paged_attention_simple(
        target, case.kv, wide_query[:, :heads], wide_tables[::2, :-3], lengths, wide_out[:, :heads]
    )
    assert case.error(wide_out[:, :heads]) <= 2e-3
    assert (wide_out[:, heads:] == 7).all()
    backward = case.attend(target)[::-1]
    launch.paged_attention_simple(
        target, case.kv, case.query[::-1], case.tables[::-1], lengths[::-1].copy(), wide_out[:, :heads]
    )
    assert (wide_out[:, :heads] == backward).all()


def test_the_schedule_of_threads_and_blocks_does_not_change_a_bit(cases, target):
    case = cases.Case("float32", "nhd", head_dim=40, group=4)
    case.append(target)
    outputs = {
        case.attend(HostTarget(HostRun(schedule, order, threads))).tobytes()
        for schedule in SCHEDULES
        for order in ORDERS
        for threads in (1, 4)
    }
    assert len(outputs) == 1


def test_an_empty_batch_launches_nothing(never, cases):
    case = cases.Case("float32", head_dim=8, lengths=(1,))
    case.query, case.tables = case.query[:0], case.tables[:0]
    case.lengths = ()
    assert case.attend(never).shape == (0, 2, 8)


def test_the_arrays_live_until_the_launch_has_run(cases, target):
    held = []

    class DeferredTarget(HostTarget):
        def submit(self, stream, call, keepalive):
            held.append((stream, call, keepalive))

    case = cases.Case("float32", head_dim=8, lengths=(20,))
    case.append(target)
    out = case.attend(DeferredTarget(), stream=42)
    assert np.isnan(out).all()
    stream, call, keepalive = held.pop()
    assert stream == 42
    assert any(array is out for array in keepalive)
    assert {array.shape for array in keepalive} == {case.query.shape, case.tables.shape, (1,)}
    call()
    assert case.error(out) <= 1e-5


def _arguments(case):
    return {
        "query": case.query,
        "block_tables": case.tables,
        "lengths": np.array(case.lengths, np.int32),
        "out": np.zeros_like(case.query),
    }


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"query": lambda a: a.astype(np.float16)}, "query must be float32, not float16"),
        ({"query": lambda a: a[:, :, :4]}, r"query must have shape \[any, any, 8\], not \[2, 6, 4\]"),
        ({"query": lambda a: a[:, :4], "out": lambda a: a[:, :4]}, "query has 4 heads, .* multiple of the 3 KV heads"),
        ({"query": lambda a: a[:, ::2], "out": lambda a: a[:, ::2]}, "query must be packed behind its first axis"),
        ({"query": lambda a: a.tolist()}, "query must be a NumPy array .* not list"),
        ({"block_tables": lambda a: a.astype(np.int64)}, "block_tables must be int32, not int64"),
        ({"block_tables": lambda a: a[:1]}, r"block_tables must have shape \[2, any\], not \[1, 4\]"),
        ({"block_tables": lambda a: a[:, ::2]}, "block_tables must be packed behind its first axis"),
        ({"lengths": lambda a: a[:1]}, r"lengths must have shape \[2\], not \[1\]"),
        ({"lengths": lambda a: np.repeat(a, 2)[::2]}, "lengths must be packed, but axis 0 has a stride of 8 bytes"),
        ({"out": lambda a: a[:1]}, r"out must have shape \[2, 6, 8\], not \[1, 6, 8\]"),
        ({"out": lambda a: np.broadcast_to(a[:1], a.shape)}, "out is read-only"),
        ({"out": lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (32, 32, 4))}, "out has rows .* overlap"),
        ({"scale": lambda _: float("nan")}, "scale must be a finite number of float32, not nan"),
        ({"scale": lambda _: 1e300}, r"scale must be a finite number of float32, not 1e\+300"),
    ],
)
def test_wrong_arguments_are_one_line_errors(cases, wrong, text):
    case = cases.Case("float32", head_dim=8, group=2, kv_heads=3, lengths=(20, 10))
    arguments = _arguments(case)
    for name, change in wrong.items():
        arguments[name] = change(arguments.get(name))
    with pytest.raises(LaunchError, match=text) as caught:
        launch.paged_attention_simple(HostTarget(), case.kv, **arguments)
    assert "\n" not in str(caught.value)


def test_an_array_at_an_odd_address_is_refused(cases):
    case = cases.Case("float32", head_dim=8, lengths=(20, 10))
    arguments = _arguments(case)
    raw = np.zeros(2 * 4 + 1, np.uint8)
    arguments["lengths"] = raw[1:].view(np.int32)
    with pytest.raises(LaunchError, match=r"lengths begins at 0x[0-9a-f]+, not at a multiple of 4"):
        launch.paged_attention_simple(HostTarget(), case.kv, **arguments)


def test_more_sequences_than_a_grid_has_rows_are_refused(cases):
    case = cases.Case("float32", head_dim=8, lengths=(1,))
    many = 65536
    arguments = {
        "query": np.zeros((many, 2, 8), np.float32),
        "block_tables": np.zeros((many, 1), np.int32),
        "lengths": np.zeros(many, np.int32),
        "out": np.zeros((many, 2, 8), np.float32),
    }
    with pytest.raises(LaunchError, match="65536 sequences, a launch takes at most 65535"):
        launch.paged_attention_simple(HostTarget(), case.kv, **arguments)


GOOD = {
    "key": 0,
    "value": 64,
    "dtype": "float16",
    "layout": "hnd",
    "block_size": 16,
    "kv_heads": 2,
    "head_dim": 8,
    "block_stride": 256,
    "head_stride": 128,
    "slot_stride": 8,
}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"dtype": "float64"}, "dtype must be one of float32, float16, bfloat16, e4m3, int8, not 'float64'"),
        ({"layout": "dnh"}, "layout must be one of hnd, nhd, vllm, not 'dnh'"),
        ({"block_size": 0}, "block_size must be 1 to 256 tokens, not 0"),
        ({"block_size": 257}, "block_size must be 1 to 256 tokens, not 257"),
        ({"head_dim": 12}, "head_dim must be 8 to 256 in multiples of 8, not 12"),
        ({"head_dim": 264}, "head_dim must be 8 to 256 in multiples of 8, not 264"),
        ({"kv_heads": 0}, "kv_heads must be at least 1, not 0"),
        ({"layout": "vllm", "slot_stride": 16}, "slot_stride of vllm float16 must be 8, not 16"),
        ({"key": 8}, "key must be a multiple of 16 bytes, not 0x8"),
        ({"head_stride": 12}, "head_stride must be a multiple of 8 float16 elements"),
        ({"block_stride": 1 << 63}, "block_stride must be at most 9223372036854775807, not 9223372036854775808"),
        ({"key": -16}, "key must be at least 0, not -16"),
        ({"value": 1 << 64}, "value must be at most 18446744073709551615, not 18446744073709551616"),
        ({"key": None}, "key must be a whole number, not None"),
        ({"block_size": 16.0}, "block_size must be a whole number, not 16.0"),
        ({"kv_heads": 1.5}, "kv_heads must be a whole number, not 1.5"),
        ({"kv_heads": 65536}, "kv_heads must be at most 65535, not 65536"),
        ({"slot_stride": 8.0}, "slot_stride must be a whole number, not 8.0"),
        ({"dtype": []}, r"dtype must be one of float32, float16, bfloat16, e4m3, int8, not \[\]"),
    ],
)
def test_a_pool_that_no_kernel_can_walk_is_refused(wrong, text):
    assert PagedKV(**GOOD).vector == 8
    with pytest.raises(LaunchError, match=text):
        PagedKV(**{**GOOD, **wrong})


def test_numbers_of_numpy_do_not_overflow():
    narrow = {name: np.int32(number) if isinstance(number, int) else number for name, number in GOOD.items()}
    assert PagedKV(**narrow) == PagedKV(**GOOD)
    assert type(PagedKV(**narrow).block_stride) is int
