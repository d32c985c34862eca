"""What launches have in common: arguments that several kernels take, and the numbers they are made of."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Array, ArrayView, optional_view
from ..errors import LaunchError
from ..launch_shape import MOST_BLOCKS
from ..paged_kv import VECTOR_BYTES, PagedKV
from ..parameters import Argument
from ..plan import DecodePlan
from ..plan_prefill import PrefillPlan
from ..scoring import LOG2_E, checked_scale
from ..whole_numbers import check_heads

WARP = 32
FLOATS = ("float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
MOST_ROWS = MOST_BLOCKS
"""Each has a place in the y extent of a grid."""


def pool_arguments(kv: PagedKV) -> tuple[Argument, ...]:
    """The parameters with which every kernel that walks a pool begins."""
    strides = (np.int64(kv.block_stride), np.int64(kv.head_stride), np.int64(kv.slot_stride))
    return (np.uint64(kv.key), np.uint64(kv.value), *strides, np.int32(kv.block_size))


def addresses(*views: ArrayView) -> tuple[Argument, ...]:
    """Where arrays begin."""
    return tuple(np.uint64(seen.address) for seen in views)


def row_strides(*views: ArrayView) -> tuple[Argument, ...]:
    """Elements from one row of an array to the next."""
    return tuple(np.int64(seen.row_stride) for seen in views)


def group_of(query_heads: int, kv_heads: int) -> int:
    """Query heads that share a KV head."""
    check_heads(query_heads, kv_heads)
    return query_heads // kv_heads


def check_kv_heads(kv: PagedKV, plan: DecodePlan | PrefillPlan) -> None:
    """Raise LaunchError for a plan of another number of KV heads."""
    if plan.kv_heads != kv.kv_heads:
        raise LaunchError(f"the plan is made for {plan.kv_heads} KV heads, the pool has {kv.kv_heads}")


def check_room(kv: PagedKV, plan: DecodePlan | PrefillPlan, columns: int) -> None:
    """Raise LaunchError for a sequence longer than block tables with so many ``columns``."""
    if plan.longest > columns * kv.block_size:
        raise LaunchError(
            f"the longest sequence has {plan.longest} tokens, but block_tables has room for "
            f"{columns} blocks of {kv.block_size}"
        )


def scale_log2(scale: float | None, head_dim: int) -> float:
    """The factor of a score in base 2: exp(x) = exp2(x * log2 e)."""
    return (1 / math.sqrt(head_dim) if scale is None else checked_scale(scale)) * LOG2_E


def partial_views(
    plan: DecodePlan, partial_out: Array | None, partial_lse: Array | None, head_dim: int, arch: str
) -> tuple[ArrayView, ArrayView]:
    """The partial results of a plan, checked: there is a row for each of them, at multiples of 16 bytes."""
    shape = (None, plan.heads)
    out = optional_view("partial_out", partial_out, arch, "float32", (*shape, head_dim), writable=True, packed=True)
    lse = optional_view("partial_lse", partial_lse, arch, "float32", shape, writable=True, packed=True)
    rows = min(out.shape[0], lse.shape[0])
    if rows < plan.partials:
        raise LaunchError(f"partial_out has {rows} rows, the plan has {plan.partials} partial results; allocate more")
    if out.address % VECTOR_BYTES:
        raise LaunchError(f"partial_out begins at {out.address:#x}, not at a multiple of {VECTOR_BYTES}; copy it")
    return out, lse
