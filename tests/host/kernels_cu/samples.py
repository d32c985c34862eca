"""One launch of each kernel in each of its builds, with the smallest arguments that pass its checks.

A sample is a function of a target and of ``move``, which takes NumPy arrays to where the target's kernels run.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from kernels_cu import PagedKV, Rotary, launch, plan_prefill
from kernels_cu.blocks import Blocks
from kernels_cu.plan import plan_decode

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
NARROW = {"e4m3": ml_dtypes.float8_e4m3fn, "int8": np.int8}


def pool(dtype: str = "float16", layout: str = "hnd", head_dim: int = 128, block_size: int = 16) -> PagedKV:
    """A pool of two KV heads at no address in particular."""
    row = 16 // np.dtype({**DTYPES, **NARROW}[dtype]).itemsize if layout == "vllm" else head_dim
    head, slot = (head_dim, 2 * head_dim) if layout == "nhd" else (block_size * head_dim, row)
    return PagedKV(1 << 40, 1 << 41, dtype, layout, block_size, 2, head_dim, 2 * block_size * head_dim, head, slot)


def _row(kv: PagedKV, heads: int = 2) -> Any:
    return np.zeros((1, heads, kv.head_dim), DTYPES[kv.dtype])


def append_kv(target: Any, move: Any, kv: PagedKV) -> None:
    launch.append_kv(target, kv, move(_row(kv)), move(_row(kv)), move(np.zeros(1, np.int64)))


def narrow_append_kv(target: Any, move: Any, kv: PagedKV) -> None:
    narrow = pool("e4m3", "nhd", kv.head_dim // 16 * 16 or 16)
    row = move(np.zeros((1, 2, narrow.head_dim), DTYPES[kv.dtype]))
    scales = {name: move(np.ones(2, np.float32)) for name in ("key_scale", "value_scale")}
    launch.append_kv(target, narrow, row, row, move(np.zeros(1, np.int64)), **scales)
    launch.gather_kv(target, narrow, move(np.zeros(1, np.int64)), row, row, **scales)


def turned_append_kv(target: Any, move: Any, kv: PagedKV) -> None:
    if kv.head_dim < 16:
        return  # nothing to turn
    for style in ("halves", "pairs"):
        rotary = Rotary(move(np.zeros((1, 16), np.float32)), move(np.zeros(1, np.int32)), style)
        rows = [move(_row(kv)) for _ in range(3)]
        launch.append_kv(target, kv, *rows[:2], move(np.zeros(1, np.int64)), rotary=rotary)
        launch.rotate_query(target, rows[0], rotary, rows[2])


def gather_kv(target: Any, move: Any, kv: PagedKV) -> None:
    launch.gather_kv(target, kv, move(np.zeros(1, np.int64)), move(_row(kv)), move(_row(kv)))


def paged_attention_simple(target: Any, move: Any, kv: PagedKV) -> None:
    table, length = move(np.zeros((1, 1), np.int32)), move(np.ones(1, np.int32))
    launch.paged_attention_simple(target, kv, move(_row(kv)), table, length, move(_row(kv)))


def merge_states(target: Any, move: Any, kv: PagedKV) -> None:
    state, lse = move(_row(kv)), move(np.zeros((1, 2), np.float32))
    launch.merge_states(target, state, lse, state, lse, state, lse)


def decode_merge(target: Any, move: Any, kv: PagedKV, group: int = 4) -> None:
    plan = plan_decode([4096], 2 * group, 2, shares=33)
    partials = [move(np.zeros(shape, np.float32)) for shape in plan.partial_shapes(kv.head_dim)]
    launch.decode_merge(target, plan.on(move), *partials, move(_row(kv, 2 * group)))


def paged_decode(target: Any, move: Any, kv: PagedKV, group: int = 4, lengths: tuple[int, ...] = (4096,)) -> None:
    plan = plan_decode(lengths, 2 * group, 2, shares=33)
    partial_out, partial_lse = (move(np.zeros(shape, np.float32)) for shape in plan.partial_shapes(kv.head_dim))
    row, table = move(_row(kv, 2 * group)), move(np.zeros((1, 4096), np.int32))
    lengths_there = move(np.array(lengths, np.int32))
    launch.paged_decode(
        target, kv, plan.on(move), row, table, lengths_there, row, partial_out=partial_out, partial_lse=partial_lse
    )


def contiguous_decode(target: Any, move: Any, kv: PagedKV) -> None:
    plan = plan_decode((40,), 8, 2, shares=1)
    row, one = move(_row(kv, 8)), move(np.full(1, 40, np.int32))
    launch.contiguous_decode(target, kv, plan.on(move), row, move(np.zeros(1, np.int64)), one, row)


def paged_prefill(target: Any, move: Any, kv: PagedKV) -> None:
    plan, rows = plan_prefill((1,), (40,), 8, 2).on(move), [move(_row(kv, 8)) for _ in range(2)]
    launch.paged_prefill(target, kv, plan, rows[0], move(np.zeros((1, 9), np.int32)), rows[1])


def copy_blocks(target: Any, move: Any, **options: Any) -> None:
    blocks = Blocks(1 << 40, 4096, 4096, 2, 1 << 20)
    launch.copy_blocks(target, blocks, blocks, move(np.array([[0, 1]])), **options)


def staged_copy_blocks(target: Any, move: Any) -> None:
    copy_blocks(target, move, staging=Blocks(1 << 41, 4096, 4096, 2, 1 << 20))


def swap_blocks(target: Any, move: Any) -> None:
    blocks, host = Blocks(1 << 40, 4096, 4096), Blocks(1 << 41, 4096, 4096)
    launch.swap_blocks(target, blocks, host, move(np.array([[0, 1]])))


def fill_blocks(target: Any, move: Any) -> None:
    launch.fill_blocks(target, Blocks(1 << 40, 4096, 4096), move(np.array([1])))


def patch_table(target: Any, move: Any, dtype: Any = np.int32) -> None:
    launch.patch_table(target, move(np.zeros((2, 2), dtype)), move(np.zeros((1, 3), np.int64)))


def patch_slots(target: Any, move: Any) -> None:
    patch_table(target, move, np.int64)


def tlb_probe(target: Any, move: Any) -> None:
    launch.tlb_probe(target, 1 << 40, 0, 1, move(np.zeros(1, np.int64)))


ON_A_POOL = (
    append_kv,
    narrow_append_kv,
    turned_append_kv,
    gather_kv,
    paged_attention_simple,
    merge_states,
    decode_merge,
)
"""Samples that take a pool: any type, head_dim and layout."""
FAST = (paged_decode, contiguous_decode, paged_prefill)
"""Samples that take a pool of float16 or bfloat16, hnd or nhd, with head_dim 64, 128 or 256."""
ON_BLOCKS = (copy_blocks, staged_copy_blocks, swap_blocks, fill_blocks, patch_table, patch_slots, tlb_probe)
