"""append_kv on the CPU: every byte of the pool is compared, those that must not change too."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, Rotary, launch, reference, reference_append
from kernels_cu.rotary import rotary_table

LAYOUTS = ["hnd", "nhd", "vllm"]


def _pools_with_noise(cases, rng, layout, dtype, blocks=9, block_size=5, heads=3, head_dim=40):
    pools = cases.empty_pools(layout, dtype, blocks, block_size, heads, head_dim)
    for pool in pools:
        pool.view(np.uint8)[...] = rng.integers(0, 256, pool.view(np.uint8).shape)
    return pools


def _tokens(cases, rng, dtype, tokens, heads=3, head_dim=40):
    shape = (tokens, heads, head_dim)
    return tuple(rng.standard_normal(shape).astype(cases.DTYPES[dtype]) for _ in range(2))


def _same_bytes(mine, theirs):
    return all(a.tobytes() == b.tobytes() for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_only_the_slots_of_the_tokens_change(target, cases, dtype, layout):
    rng = np.random.default_rng(1)
    pools = _pools_with_noise(cases, rng, layout, dtype)
    wanted = [pool.copy() for pool in pools]
    key, value = _tokens(cases, rng, dtype, 17)
    slots = rng.choice(9 * 5, 17, replace=False).astype(np.int64)
    slots[[3, 11]] = -1
    slots[7] = -1234
    reference.append(layout, *wanted, key, value, slots)
    launch.append_kv(target, cases.paged_kv(layout, dtype, *pools), key, value, slots)
    assert _same_bytes(pools, wanted)
    assert not _same_bytes(pools, _pools_with_noise(cases, np.random.default_rng(1), layout, dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_heads_and_dims_than_threads(target, cases, layout):
    rng = np.random.default_rng(2)
    sizes = {"heads": 5, "head_dim": 256}
    pools = _pools_with_noise(cases, rng, layout, "float16", **sizes)
    wanted = [pool.copy() for pool in pools]
    key, value = _tokens(cases, rng, "float16", 45, **sizes)
    slots = rng.permutation(45)
    reference.append(layout, *wanted, key, value, slots)
    launch.append_kv(target, cases.paged_kv(layout, "float16", *pools), key, value, slots)
    assert _same_bytes(pools, wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_appended_is_gathered_again(target, cases, layout):
    case = cases.Case("bfloat16", layout, head_dim=40, block_size=7, lengths=(1, 30))
    case.append(target)
    for table, key, value in zip(case.tables, case.keys, case.values, strict=True):
        found = reference.gather(layout, case.key_pool, case.value_pool, table, len(key))
        assert (found[0] == key).all()
        assert (found[1] == value).all()


def test_tokens_may_lie_apart_and_run_backward(target, cases):
    rng = np.random.default_rng(3)
    pools = _pools_with_noise(cases, rng, "hnd", "float32")
    wanted = [pool.copy() for pool in pools]
    heads_q, heads, dim = 6, 3, 40
    fused = rng.standard_normal((10, (heads_q + 2 * heads) * dim)).astype(np.float32)  # one row: q, k, v of a token
    key = fused[:, heads_q * dim : (heads_q + heads) * dim].reshape(10, heads, dim)[::-1]
    value = fused[:, (heads_q + heads) * dim :].reshape(10, heads, dim)[::2]
    slots = np.arange(20, 25)
    reference.append("hnd", *wanted, key[:5], value, slots)
    launch.append_kv(target, cases.paged_kv("hnd", "float32", *pools), key[:5], value, slots)
    assert key.strides[0] < 0 < value.strides[0]
    assert _same_bytes(pools, wanted)


@pytest.mark.parametrize("schedule", ["ascending", "descending", "interleaved"])
@pytest.mark.usefixtures("target")
def test_every_schedule_writes_the_same(cases, schedule):
    rng = np.random.default_rng(4)
    pools = _pools_with_noise(cases, rng, "vllm", "float16")
    wanted = [pool.copy() for pool in pools]
    key, value = _tokens(cases, rng, "float16", 30)
    slots = rng.permutation(45)[:30]
    reference.append("vllm", *wanted, key, value, slots)
    run = HostRun(schedule, "shuffled", threads=2)
    launch.append_kv(HostTarget(run), cases.paged_kv("vllm", "float16", *pools), key, value, slots)
    assert _same_bytes(pools, wanted)


@pytest.mark.usefixtures("target")
def test_no_tokens_launch_nothing(never, cases):
    pools = cases.empty_pools("hnd", "float32", 2, 4, 3, 40)
    nothing = np.empty((0, 3, 40), np.float32)
    launch.append_kv(never, cases.paged_kv("hnd", "float32", *pools), nothing, nothing, np.empty(0, np.int64))
    with pytest.raises(AssertionError, match="something was launched"):
        one = np.zeros((1, 3, 40), np.float32)
        launch.append_kv(never, cases.paged_kv("hnd", "float32", *pools), one, one, np.zeros(1, np.int64))


def test_bits_stay_as_they_are_where_nothing_is_converted(target, cases):
    """Every float16 there is, NaN and the smallest included."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 2, 64)
    slots = np.arange(len(every))
    pools = cases.empty_pools("hnd", "float16", len(every) // 16, 16, 2, 64)
    launch.append_kv(target, cases.paged_kv("hnd", "float16", *pools), every, every[::-1], slots)
    found = reference.gather("hnd", *pools, range(len(every) // 16), len(every))
    assert (found[0].view(np.uint16) == every.view(np.uint16)).all()
    assert (found[1].view(np.uint16) == every[::-1].view(np.uint16)).all()


def test_rows_at_odd_addresses_are_read(target, cases):
    rng = np.random.default_rng(5)
    pools = _pools_with_noise(cases, rng, "hnd", "float16")
    wanted = [pool.copy() for pool in pools]
    wide = rng.standard_normal((9, 3 * 40 + 1)).astype(np.float16)
    key = wide[:, 1:].reshape(9, 3, 40)
    assert key.ctypes.data % 16 == wide.ctypes.data % 16 + 2
    slots = rng.permutation(45)[:9]
    reference.append("hnd", *wanted, key, key, slots)
    launch.append_kv(target, cases.paged_kv("hnd", "float16", *pools), key, key, slots)
    assert _same_bytes(pools, wanted)


def _narrow_case(cases, rng, dtype, layout, source):
    pools = cases.empty_pools(layout, dtype, 9, 5, 3, 32)
    key, value = (rng.normal(0, 3, (20, 3, 32)).astype(cases.DTYPES[source]) for _ in range(2))
    key[0, 0, :4] = [1e4, -1e4, 0, -0.0]  # beyond what the type holds
    return pools, key, value, rng.permutation(45)[:20]


@pytest.mark.parametrize("scales", [1, 3])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("dtype", "layout"), [("e4m3", "hnd"), ("e4m3", "vllm"), ("int8", "nhd")])
def test_a_narrow_cache_holds_values_divided_by_their_scale(target, cases, dtype, layout, source, scales):
    rng = np.random.default_rng(scales)
    pools, key, value, slots = _narrow_case(cases, rng, dtype, layout, source)
    wanted = [pool.copy() for pool in pools]
    key_scale, value_scale = (rng.uniform(0.01, 0.05, scales).astype(np.float32) for _ in range(2))
    narrow = [reference_append.quantised(x, dtype, s) for x, s in ((key, key_scale), (value, value_scale))]
    reference.append(layout, *wanted, *narrow, slots)
    kv = cases.paged_kv(layout, dtype, *pools)
    launch.append_kv(target, kv, key, value, slots, key_scale=key_scale, value_scale=value_scale)
    assert _same_bytes(pools, wanted)
    largest = {"e4m3": 448, "int8": 127}[dtype]
    assert narrow[0][0, 0, 0] == largest
    assert np.isfinite(narrow[0].astype(np.float32)).all()


@pytest.mark.parametrize("scales", [1, 3])
@pytest.mark.parametrize("output", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("dtype", "layout"), [("e4m3", "nhd"), ("int8", "vllm")])
def test_what_a_narrow_cache_holds_is_gathered_times_its_scale(target, cases, dtype, layout, output, scales):
    rng = np.random.default_rng(scales)
    pools, key, value, slots = _narrow_case(cases, rng, dtype, layout, "float32")
    by = {name: rng.uniform(0.01, 0.05, scales).astype(np.float32) for name in ("key_scale", "value_scale")}
    kv = cases.paged_kv(layout, dtype, *pools)
    launch.append_kv(target, kv, key, value, slots, **by)
    slots[[4, 7]] = -1
    found = [np.full((20, 3, 32), np.nan, cases.DTYPES[output]) for _ in range(2)]
    launch.gather_kv(target, kv, slots, *found, **by)
    for x, mine, scale in zip((key, value), found, by.values(), strict=True):
        wanted = reference_append.dequantised(reference_append.quantised(x, dtype, scale), scale)
        wanted[[4, 7]] = 0
        step = {"float32": 2**-22, "float16": 2**-10, "bfloat16": 2**-7}[output]
        assert (abs(mine.astype(np.float64) - wanted) <= step * abs(wanted) + 1e-7).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gather_is_the_reverse_of_append(target, cases, dtype, layout):
    case = cases.Case(dtype, layout, head_dim=40, block_size=7, lengths=(1, 30))
    case.append(target)
    slots = case.slots()
    slots[5] = -3
    key, value = (np.full((31, 2, 40), 7, cases.DTYPES[dtype]) for _ in range(2))
    launch.gather_kv(target, case.kv, slots, key, value)
    wanted = [np.concatenate(rows) for rows in (case.keys, case.values)]
    for rows in wanted:
        rows[5] = 0
    assert _same_bytes((key, value), wanted)


@pytest.mark.parametrize(("style", "size"), [("halves", 64), ("halves", 32), ("pairs", 64), ("pairs", 16)])
def test_keys_and_queries_are_turned_by_their_positions(target, cases, style, size):
    rng = np.random.default_rng(size)
    case = cases.Case("float32", "nhd", head_dim=64, lengths=(20,))
    positions = rng.permutation(50)[:20].astype(np.int32)
    rotary = Rotary(rotary_table(50, size), positions, style)
    launch.append_kv(target, case.kv, case.keys[0], case.values[0], case.slots(), rotary=rotary)
    key, value = reference.gather("nhd", case.key_pool, case.value_pool, case.tables[0], 20)
    wanted = reference_append.turned(case.keys[0], rotary.turns, positions, style)
    assert abs(key - wanted).max() <= 1e-6 * abs(wanted).max()
    assert (value == case.values[0]).all()
    assert (key[:, :, size:] == case.keys[0][:, :, size:]).all()
    query = rng.standard_normal((20, 5, 64), np.float32)
    out = np.empty_like(query)
    launch.rotate_query(target, query, rotary, out)
    assert abs(out - reference_append.turned(query, rotary.turns, positions, style)).max() <= 1e-5


def test_rows_at_odd_addresses_are_turned(target):
    rng = np.random.default_rng(8)
    rotary = Rotary(rotary_table(9, 32), np.arange(9, dtype=np.int32))
    wide, wide_out = rng.standard_normal((9, 33)).astype(np.float16), np.full((9, 35), 7, np.float16)
    query, out = wide[:, 1:].reshape(9, 1, 32), wide_out[:, 3:].reshape(9, 1, 32)
    launch.rotate_query(target, query, rotary, out)
    assert abs(out - reference_append.turned(query, rotary.turns, rotary.positions, "halves")).max() <= 4e-3
    assert (wide_out[:, :3] == 7).all()


def test_a_turned_product_depends_on_the_distance_alone(target):
    """What rotary embedding is for: q at position m times k at n is a function of m - n."""
    rng = np.random.default_rng(9)
    row = rng.standard_normal((1, 1, 32), np.float32)
    rows, out = np.repeat(row, 40, axis=0), np.empty((40, 1, 32), np.float32)
    launch.rotate_query(target, rows, Rotary(rotary_table(40, 32), np.arange(40, dtype=np.int32)), out)
    products = out[:, 0] @ out[:, 0].T
    for distance in (0, 1, 7):
        line = np.diagonal(products, distance)
        assert np.allclose(line, line[0], rtol=1e-4)
    assert abs(products[0, 7] - products[0, 0]) > 0.1


def test_a_narrow_cache_without_scales_is_refused(cases):
    pools = cases.empty_pools("hnd", "e4m3", 2, 4, 3, 32)
    kv, rows = cases.paged_kv("hnd", "e4m3", *pools), np.zeros((1, 3, 32), np.float32)
    scale = np.ones(1, np.float32)
    with pytest.raises(LaunchError, match=r"a cache of e4m3 needs key_scale, float32 \[3\] or \[1\]"):
        launch.append_kv(HostTarget(), kv, rows, rows, np.zeros(1, np.int64))
    with pytest.raises(LaunchError, match=r"key_scale and value_scale must both be \[3\] or \[1\], not \[1, 2\]"):
        two = np.ones(2, np.float32)
        launch.append_kv(HostTarget(), kv, rows, rows, np.zeros(1, np.int64), key_scale=scale, value_scale=two)
    with pytest.raises(LaunchError, match="key must be one of float32, float16, bfloat16, not float64"):
        wide = rows.astype(np.float64)
        launch.append_kv(HostTarget(), kv, wide, wide, np.zeros(1, np.int64), key_scale=scale, value_scale=scale)


@pytest.mark.parametrize(
    ("turns", "positions", "style", "text"),
    [
        (np.zeros((4, 24), np.float32), np.zeros(1, np.int32), "halves", "rows of 24; a multiple of 16 up to 40"),
        (np.zeros((4, 48), np.float32), np.zeros(1, np.int32), "pairs", "rows of 48; a multiple of 16 up to 40"),
        (np.zeros((4, 32), np.float32), np.zeros(2, np.int32), "pairs", r"positions must have shape \[1\], not \[2\]"),
        (np.zeros((4, 32), np.float32), np.zeros(1, np.int32), "thirds", "style must be one of halves, pairs"),
    ],
)
def test_a_turn_that_cannot_be_is_refused(turns, positions, style, text):
    query = np.zeros((1, 1, 40), np.float32)
    with pytest.raises(LaunchError, match=text):
        launch.rotate_query(HostTarget(), query, Rotary(turns, positions, style), query.copy())


def test_a_query_is_not_turned_in_place():
    query = np.zeros((1, 1, 32), np.float32)
    with pytest.raises(LaunchError, match="out must not be query"):
        launch.rotate_query(HostTarget(), query, Rotary(rotary_table(1, 32), np.zeros(1, np.int32)), query)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key": lambda a: a[:3]}, r"key must have shape \[4, 3, 40\], not \[3, 3, 40\]"),
        ({"value": lambda a: a.astype(np.float64)}, "value must be float32, not float64"),
        ({"value": lambda a: a.transpose(0, 2, 1).copy().transpose(0, 2, 1)}, "value must be packed behind its first"),
        ({"slots": lambda a: a.astype(np.int32)}, "slots must be int64, not int32; convert it with astype"),
        ({"slots": lambda a: a[None]}, r"slots must have shape \[any\], not \[1, 4\]"),
        ({"slots": lambda a: a[::2]}, "slots must be packed, but axis 0 has a stride of 16 bytes"),
    ],
)
def test_wrong_arguments_are_one_line_errors(cases, wrong, text):
    pools = cases.empty_pools("hnd", "float32", 2, 4, 3, 40)
    arguments = {
        "key": np.zeros((4, 3, 40), np.float32),
        "value": np.zeros((4, 3, 40), np.float32),
        "slots": np.arange(4),
    }
    for name, change in wrong.items():
        arguments[name] = change(arguments[name])
    with pytest.raises(LaunchError, match=text) as caught:
        launch.append_kv(HostTarget(), cases.paged_kv("hnd", "float32", *pools), **arguments)
    assert "\n" not in str(caught.value)
