"""The pointer arithmetic of paged_kv.cuh, run on the CPU, against formulas that follow from each layout."""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest

from kernels_cu import PagedKV, launch, reference
from kernels_cu.checked_launch import launch_checked

MAP_NORESERVE = 0x4000
"""mmap has the name from Python 3.12 on."""
KERNEL = Path(__file__).with_name("addresses.cu")


def _addresses(target, dtype, layout, head_dim, block_size, strides, questions):
    """Offsets in elements of K and V that the kernels compute for each question (slot index, head, d)."""
    questions = np.array(questions, np.int64)
    found = np.empty((2, len(questions)), np.int64)
    launch_checked(
        target,
        KERNEL,
        {"ELEMENT": dtype, "HEAD_DIM": head_dim, "LAYOUT_VLLM": int(layout == "vllm")},
        (-(-len(questions) // 64), 1, 1),
        (64, 1, 1),
        (
            np.uint64(found[0].ctypes.data),
            np.uint64(found[1].ctypes.data),
            np.uint64(questions.ctypes.data),
            *(np.int64(stride) for stride in strides),
            np.int32(block_size),
            np.int32(len(questions)),
        ),
        stream=0,
        keepalive=None,
    )
    return found.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_vllm_is_vllms_own_expression(target, dtype):
    x = 4 if dtype == "float32" else 8
    head_dim, block_size, heads = 40, 12, 3
    kv_head_stride = head_dim * block_size
    kv_block_stride = heads * kv_head_stride + 64  # blocks may lie apart
    questions, keys, values = [], [], []
    for slot_index, kv_head_idx, d in itertools.product((0, 1, 11, 12, 500, 123456789), range(heads), range(head_dim)):
        physical_block_number, physical_block_offset = divmod(slot_index, block_size)
        k_cache = v_cache = 0
        k_ptr = (
            k_cache + physical_block_number * kv_block_stride + kv_head_idx * kv_head_stride + physical_block_offset * x
        )
        v_ptr = v_cache + physical_block_number * kv_block_stride + kv_head_idx * kv_head_stride
        questions.append((slot_index, kv_head_idx, d))
        keys.append(k_ptr + d // x * block_size * x + d % x)
        values.append(v_ptr + d * block_size + physical_block_offset)
    strides = (kv_block_stride, kv_head_stride, x)
    assert _addresses(target, dtype, "vllm", head_dim, block_size, strides, questions) == [keys, values]


@pytest.mark.parametrize("layout", ["hnd", "nhd", "vllm"])
def test_a_place_is_the_index_of_its_array(target, cases, layout):
    """The arrays of NumPy know their own strides: an element that holds its own offset must be found at that offset."""
    blocks, block_size, heads, head_dim = 5, 6, 3, 16
    pools = [
        np.arange(pool.size, dtype=np.int64).reshape(pool.shape)
        for pool in cases.empty_pools(layout, "float16", blocks, block_size, heads, head_dim)
    ]
    kv = cases.paged_kv(layout, "float16", *(np.zeros(pool.shape, np.float16) for pool in pools))
    questions = list(itertools.product(range(blocks * block_size), range(heads), range(head_dim)))
    tables = [[slot // block_size] for slot, _, _ in questions]
    wanted = ([], [])
    for (slot, head, d), (block,) in zip(questions, tables, strict=True):
        key, value = reference.gather(layout, *pools, [block], slot % block_size + 1)
        wanted[0].append(key[-1, head, d])
        wanted[1].append(value[-1, head, d])
    strides = (kv.block_stride, kv.head_stride, kv.slot_stride)
    assert _addresses(target, "float16", layout, head_dim, block_size, strides, questions) == list(wanted)


def test_offsets_have_64_bits(target):
    far = 5_000_000_000
    questions = [(16 * far + 3, 2, 1), (7, far // 1000, 0)]
    found = _addresses(target, "float32", "hnd", 8, 16, (1 << 30, far, 1 << 33), questions)[0]
    assert found == [far * (1 << 30) + 2 * far + 3 * (1 << 33) + 1, far // 1000 * far + 7 * (1 << 33)]


def _far_pool(target, cases, stride, first_block_at, layout="hnd"):
    """Append and attend in a pool of four blocks that lie ``stride`` bytes apart in 40 GiB of untouched addresses."""
    memory = mmap.mmap(-1, 40 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    try:
        base = np.frombuffer(memory, np.uint8).ctypes.data
        case = cases.Case("float32", layout, head_dim=8, block_size=16, group=2, lengths=(60,))
        case.tables = np.array([[2, 0, 3, 1]], np.int32)
        slots = case.slots()
        inner = {"hnd": (16 * 8, 8), "vllm": (16 * 8, 4)}[layout]
        value = 4 << 20
        kv = PagedKV(
            base + first_block_at, base + first_block_at + value, "float32", layout, 16, 2, 8, stride // 4, *inner
        )
        launch.append_kv(target, kv, case.keys[0], case.values[0], slots)
        out = np.empty_like(case.query)
        launch.paged_attention_simple(target, kv, case.query, case.tables, np.array([60], np.int32), out)
        return case.error(out)
    finally:
        memory.close()


@pytest.mark.parametrize("layout", ["hnd", "vllm"])
def test_blocks_may_lie_beyond_2_to_the_31_elements(target, cases, layout):
    assert _far_pool(target, cases, stride=12 << 30, first_block_at=0, layout=layout) <= 1e-5


def test_blocks_may_lie_downward(target, cases):
    assert _far_pool(target, cases, stride=-(12 << 30), first_block_at=38 << 30) <= 1e-5
