"""The kernels on tensor cores, append, gather and the movers of blocks on a GPU: cases of the CPU's tests."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from kernels_cu import Blocks, Rotary, launch, plan_decode, reference, reference_append, reference_blocks
from kernels_cu.rotary import rotary_table

LENGTHS = (1, 15, 16, 17, 0, 63, 64, 65, 2011, 500)
OPTIONS = [
    {},
    {"window": 37},
    {"soft_cap": 30.0, "scale": 0.7},
    {"alibi": True},
    {"sinks": True},
    {"alibi": True, "sinks": True, "soft_cap": 20.0, "window": 100},
]


@pytest.fixture
def array(cupy):
    """Moves a NumPy array to the GPU; CuPy has no e4m3, so a narrow cache is bytes there."""

    def move(x):
        return cupy.asarray(x.view(np.uint8) if x.dtype in (np.int8, ml_dtypes.float8_e4m3fn) else x)

    return move


def _arrays(options, heads):
    rng = np.random.default_rng(7)
    arrays = {"alibi": 2.0 ** -np.linspace(1, 8, heads), "sinks": rng.normal(2, 2, heads)}
    return {name: arrays[name].astype(np.float32) if name in arrays else x for name, x in options.items()}


@pytest.mark.parametrize("block_size", [1, 8, 16, 32, 256])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_decode_agrees_with_float64(target, cases, array, dtype, head_dim, block_size):
    for layout, group in itertools.product(("hnd", "nhd"), (1, 4, 8, 12)):
        case = cases.Case(dtype, layout, head_dim, block_size, group, 2, LENGTHS, seed=group, array=array)
        case.append(target)
        for shares in (1, 7, 264):
            case.check(case.decode(target, shares=shares))


@pytest.mark.parametrize("options", OPTIONS)
def test_options(target, cases, array, options):
    case = cases.Case("bfloat16", head_dim=128, group=6, kv_heads=2, lengths=LENGTHS, array=array)
    case.append(target)
    chosen = _arrays(options, 12)
    case.check(case.decode(target, **chosen), **chosen)
    queries = tuple(min(length, 100) for length in LENGTHS)
    case.check(case.prefill(target, queries, **chosen), **chosen)


@pytest.mark.parametrize("scales", [1, 2])
@pytest.mark.parametrize("query", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["e4m3", "int8"])
def test_narrow_caches(target, cases, array, dtype, query, scales):
    for head_dim, block_size in ((64, 8), (128, 16), (256, 16)):
        by = {name: np.linspace(0.03, 0.05, scales).astype(np.float32) for name in ("key_scale", "value_scale")}
        shape = {"head_dim": head_dim, "block_size": block_size, "group": 4, "lengths": LENGTHS}
        case = cases.Case(dtype, query_dtype=query, scales=by, array=array, **shape)
        case.append(target)
        case.check(case.decode(target))
        case.check(case.prefill(target, tuple(min(length, 70) for length in LENGTHS)))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_prefill_agrees_with_float64(target, cases, array, dtype, head_dim):
    for group, causal, block_size in itertools.product((1, 3, 8), (True, False), (16, 8)):
        case = cases.Case(dtype, "hnd", head_dim, block_size, group, 2, (463, 18, 0, 1328), array=array)
        case.append(target)
        case.check(case.prefill(target, (129, 5, 0, 1), causal=causal), causal=causal)


def test_a_fixed_split_gives_the_same_bits_in_every_batch(target, cases, array):
    case = cases.Case("bfloat16", head_dim=128, group=4, lengths=(700, 333, 16, 1), array=array)
    case.append(target)
    together = case.decode(target, shares=264, fixed_tiles=8)
    case.tables, case.query, case.lengths = case.tables[1:2], case.query[1:2], case.lengths[1:2]
    alone = case.decode(target, shares=264, fixed_tiles=8)
    assert (alone[0].view(np.uint16) == together[0][1:2].view(np.uint16)).all()


def test_contiguous_decode_gives_the_bits_of_paged_decode(target, cases, array):
    case = cases.Case("float16", "nhd", 128, 16, 4, 2, (320, 320), array=array)
    case.tables = np.arange(40, dtype=np.int32).reshape(2, 20)  # side by side: a table that need not be
    case.append(target)
    paged = case.decode(target, shares=1)
    plan = plan_decode(case.lengths, 8, 2, shares=1)
    out, starts = array(np.zeros_like(case.query)), array(np.array([0, 20 * case.kv.block_stride]))
    lengths = array(np.array(case.lengths, np.int32))
    launch.contiguous_decode(target, case.kv, plan.on(array), array(case.query), starts, lengths, out)
    assert (out.get() == paged[0]).all()


@pytest.mark.parametrize("layout", ["hnd", "nhd", "vllm"])
@pytest.mark.parametrize("dtype", ["e4m3", "int8"])
def test_append_quantises_and_gather_reads_back(cupy, target, cases, array, dtype, layout):
    rng = np.random.default_rng(1)
    pools = [array(pool) for pool in cases.empty_pools(layout, dtype, 9, 5, 3, 32)]
    rows = [rng.normal(0, 3, (20, 3, 32)).astype(np.float32) for _ in range(2)]
    by = {name: rng.uniform(0.02, 0.05, 3).astype(np.float32) for name in ("key_scale", "value_scale")}
    on_device = {name: array(scale) for name, scale in by.items()}
    slots, kv = array(rng.permutation(45)[:20]), cases.paged_kv(layout, dtype, *pools)
    launch.append_kv(target, kv, *map(array, rows), slots, **on_device)
    found = [cupy.empty((20, 3, 32), np.float32) for _ in range(2)]
    launch.gather_kv(target, kv, slots, *found, **on_device)
    for x, scale, mine in zip(rows, by.values(), found, strict=True):
        wanted = reference_append.dequantised(reference_append.quantised(x, dtype, scale), scale)
        assert abs(mine.get() - wanted).max() <= 1e-6 * abs(wanted).max()


@pytest.mark.parametrize("style", ["halves", "pairs"])
def test_keys_are_turned(target, cases, array, style):
    case = cases.Case("float32", "nhd", head_dim=64, lengths=(20,), array=array)
    turns, positions = rotary_table(50, 32), np.arange(7, 27, dtype=np.int32)
    rotary = Rotary(array(turns), array(positions), style)
    rows = array(case.keys[0]), array(case.values[0]), array(case.slots())
    launch.append_kv(target, case.kv, *rows, rotary=rotary)
    key, _ = reference.gather("nhd", case.key_pool.get(), case.value_pool.get(), case.tables[0], 20)
    wanted = reference_append.turned(case.keys[0], turns, positions, style)
    assert abs(key - wanted).max() <= 1e-5


def test_blocks_are_copied_and_filled(target, array):
    rng = np.random.default_rng(3)
    memory = rng.integers(0, 256, (3, 11, 40000)).astype(np.uint8)
    pool, stage = array(memory), array(np.zeros((3, 4, 40000), np.uint8))
    blocks = Blocks(pool.data.ptr, 40000, 40000, 3, 11 * 40000)
    staging = Blocks(stage.data.ptr, 40000, 40000, 3, 4 * 40000)
    pairs = np.array([[1, 2], [2, 0], [0, 1], [5, 9]])
    launch.copy_blocks(target, blocks, blocks, array(pairs), staging=staging)
    launch.fill_blocks(target, blocks, array(np.array([7, -1])))
    reference_blocks.copy_blocks(memory, memory, pairs)
    reference_blocks.fill_blocks(memory, np.array([7]), 0xFFFFFFFF)
    assert (pool.get() == memory).all()


def test_blocks_go_to_pinned_memory_and_back(cupy, target, array):
    rng = np.random.default_rng(4)
    memory = rng.integers(0, 256, (1, 9, 1 << 16)).astype(np.uint8)
    pool, pinned = array(memory), cupy.cuda.alloc_pinned_memory(4 << 16)
    host = np.frombuffer(pinned, np.uint8, 4 << 16).reshape(1, 4, 1 << 16)
    inside, outside = Blocks(pool.data.ptr, 1 << 16, 1 << 16), Blocks(pinned.ptr, 1 << 16, 1 << 16)
    pairs = np.array([[8, 0], [3, 1], [4, 2]])
    launch.swap_blocks(target, inside, outside, array(pairs))
    cupy.cuda.Device().synchronize()
    assert (host[:, :3] == memory[:, [8, 3, 4]]).all()
    pool[...] = 0
    launch.swap_blocks(target, outside, inside, array(pairs[:, ::-1].copy()))
    assert (pool.get()[:, [8, 3, 4]] == memory[:, [8, 3, 4]]).all()
    pool[...] = 0
    launch.swap_runs(target, outside, inside, pairs[:, ::-1].copy())
    assert (pool.get()[:, [8, 3, 4]] == memory[:, [8, 3, 4]]).all()


def test_tables_are_patched_and_chains_walked(cupy, target, array):
    words = cupy.full(1 << 16, -(1 << 40), np.int64)
    offsets = np.random.default_rng(5).permutation(1 << 16)[:1000] * 8
    launch.patch_table(target, words, array(launch.probe_patches(offsets)))
    out = cupy.zeros(1, np.int64)
    launch.tlb_probe(target, words.data.ptr, int(offsets[0]), 2345, out)
    assert int(out[0]) == offsets[345]


def test_decode_can_be_captured_in_a_graph(cupy, target, cases, array):
    """Partial results and merge too; the plan's arrays lie where the graph reads them."""
    case = cases.Case("bfloat16", head_dim=128, group=4, kv_heads=2, lengths=(700,), array=array)
    case.append(target)
    wanted, _ = case.decode(target, shares=8)  # loads both kernels, which must not happen in a capture
    plan = plan_decode(case.lengths, 8, 2, shares=8, least_tiles=1).padded(shares=9, segments=20, merges=4, partials=20)
    held = [array(x) for x in (case.query, case.tables, np.array(case.lengths, np.int32), np.zeros_like(case.query))]
    partials = cupy.empty((20, 8, 128), np.float32), cupy.empty((20, 8), np.float32)
    on_device, stream = plan.on(array), cupy.cuda.Stream(non_blocking=True)
    options = {"partial_out": partials[0], "partial_lse": partials[1], "stream": stream.ptr}
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        launch.paged_decode(target, case.kv, on_device, *held, **options)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert (held[3].get().view(np.uint16) == wanted.view(np.uint16)).all()
