"""The kernels on a GPU through CuPy: the cases of the CPU's tests, and what only a GPU can answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels_cu import HostTarget, PagedKV, launch, loader, reference
from kernels_cu.catalogue import built_for
from kernels_cu.constants import constants_of
from kernels_cu.cubin import kernel_parameters
from kernels_cu.cupy_kernel import _driver_parameters
from kernels_cu.nvrtc import compile_cubin
from kernels_cu.report import KERNELS, resources

DTYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("hnd", "nhd", "vllm")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_the_reference(cupy, target, cases, dtype, layout):
    sizes = itertools.product((8, 72, 128, 256), (1, 4, 8), (1, 3, 16, 256))
    for seed, (head_dim, group, block_size) in enumerate(sizes):
        case = cases.Case(
            dtype, layout, head_dim, block_size, group, kv_heads=8 // group, seed=seed, array=cupy.asarray
        )
        case.append(target)
        assert case.error(case.attend(target)) <= cases.TOLERANCE[dtype], (head_dim, group, block_size)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_append_changes_only_the_slots_of_the_tokens(cupy, target, cases, dtype, layout):
    rng = np.random.default_rng(1)
    pools = cases.empty_pools(layout, dtype, 9, 5, 3, 40)
    for pool in pools:
        pool.view(np.uint8)[...] = rng.integers(0, 256, pool.view(np.uint8).shape)
    key, value = (rng.standard_normal((17, 3, 40)).astype(cases.DTYPES[dtype]) for _ in range(2))
    slots = rng.choice(45, 17, replace=False).astype(np.int64)
    slots[[3, 11]] = -1
    on_device = [cupy.asarray(pool) for pool in pools]
    arguments = [cupy.asarray(array) for array in (key, value, slots)]
    launch.append_kv(target, cases.paged_kv(layout, dtype, *on_device), *arguments)
    reference.append(layout, *pools, key, value, slots)
    assert [pool.get().tobytes() for pool in on_device] == [pool.tobytes() for pool in pools]


def test_lengths_without_tokens_and_beyond_the_table(cupy, target, cases):
    case = cases.Case("float16", head_dim=64, lengths=(0, 20, 5), array=cupy.asarray)
    case.append(target)
    case.tables = np.ascontiguousarray(case.tables[:, :2])
    case.lengths = (0, 33, 5)
    out = case.attend(target)
    assert (out[0] == 0).all()
    assert np.isnan(out[1]).all()
    case.lengths = (0, 20, 5)
    assert case.error(case.attend(target)) <= 2e-3


def test_an_empty_batch_launches_nothing(cupy, target, cases):
    case = cases.Case("float16", head_dim=64, lengths=(1,), array=cupy.asarray)
    case.query, case.tables, case.lengths = case.query[:0], case.tables[:0], ()
    assert case.attend(target).shape == (0, 2, 64)
    case.key_pool[...] = 1
    nothing = cupy.empty((0, 2, 64), np.float16)
    launch.append_kv(target, case.kv, nothing, nothing, cupy.empty(0, np.int64))
    assert (case.key_pool == 1).all()


def test_rows_may_lie_apart_and_another_stream_is_used(cupy, target, cases):
    case = cases.Case("float32", head_dim=64, group=4, lengths=(9, 40, 100), array=cupy.asarray)
    case.append(target)
    heads = case.query.shape[1]
    query, out = cupy.zeros((3, heads + 5, 64), np.float32), cupy.full((3, heads + 2, 64), 7, np.float32)
    query[:, :heads] = cupy.asarray(case.query)
    tables, lengths = cupy.asarray(case.tables), cupy.asarray(np.array(case.lengths, np.int32))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    launch.paged_attention_simple(target, case.kv, query[:, :heads], tables, lengths, out[:, :heads], stream=stream.ptr)
    stream.synchronize()
    assert case.error(out[:, :heads].get()) <= 1e-5
    assert (out[:, heads:] == 7).all()


def test_blocks_may_lie_beyond_2_to_the_31_elements(cupy, target, cases):
    free, _ = cupy.cuda.runtime.memGetInfo()
    if free < 20 << 30:
        pytest.skip(f"needs 20 GiB of free GPU memory, there are {free >> 30}")
    case = cases.Case("float16", head_dim=64, block_size=16, lengths=(60,), array=cupy.asarray)
    pool = cupy.empty(9 << 30, np.float16)  # elements
    case.tables = np.array([[2, 0, 3, 1]], np.int32)
    inner = 2 * 16 * 64
    kv = PagedKV(pool.data.ptr, pool.data.ptr + 2 * inner, "float16", "hnd", 16, 2, 64, 5 << 29, 16 * 64, 64)
    key, value, slots = (cupy.asarray(array) for array in (case.keys[0], case.values[0], case.slots()))
    launch.append_kv(target, kv, key, value, slots)
    out = cupy.empty(case.query.shape, np.float16)
    lengths = cupy.asarray(np.array([60], np.int32))
    launch.paged_attention_simple(target, kv, cupy.asarray(case.query), cupy.asarray(case.tables), lengths, out)
    assert case.error(out.get()) <= 2e-3


def test_a_launch_can_be_captured_in_a_graph(cupy, target, cases):
    case = cases.Case("bfloat16", head_dim=128, lengths=(70,), array=cupy.asarray)
    case.append(target)
    wanted = case.attend(target)  # loads the kernel, which must not happen in a capture
    query, tables = cupy.asarray(case.query), cupy.asarray(case.tables)
    lengths, out = cupy.asarray(np.array([70], np.int32)), cupy.zeros_like(query)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        launch.paged_attention_simple(target, case.kv, query, tables, lengths, out, stream=stream.ptr)
        graph = stream.end_capture()
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert (out.get().view(np.uint16) == wanted.view(np.uint16)).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_drivers_table_is_the_cubins(target, kernel):
    constants = built_for(kernel, "float16", 128, "hnd", target.arch).constants
    loaded = loader.load(kernel, constants, target.arch)
    table = _driver_parameters(loaded._kernel.kernel.ptr)
    assert table is not None, "the driver has no cuFuncGetParamInfo"
    assert table == kernel_parameters(compile_cubin(kernel, loaded._text, loaded._options, target.arch).cubin, kernel)
    assert loaded._kernel.num_regs == resources(kernel, constants, target.arch).registers
    assert loaded._kernel.local_size_bytes == 0


def test_the_gpu_and_the_cpu_agree(cupy, target, cases):
    from kernels_cu.compiler import find_compiler
    from kernels_cu.errors import CompilerMissingError

    try:
        find_compiler()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    outputs = []
    for where, array in ((target, cupy.asarray), (HostTarget(), np.asarray)):
        case = cases.Case("float32", "vllm", head_dim=72, group=4, array=array)
        case.append(where)
        assert constants_of(case.kv)["LAYOUT_VLLM"] == 1
        outputs.append(case.attend(where))
    assert abs(outputs[0] - outputs[1]).max() <= 1e-5
