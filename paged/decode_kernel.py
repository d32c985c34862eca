"""Which decode kernel a pool uses: the fast one on a GPU where there is one for its cache, else the simple one."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from kernels_cu import DecodePlan, LaunchError, PagedKV, Scoring, launch, net, plan_decode
from kernels_cu.launches.decode_build import decode_build

from .pool import KVPool

CHOICES = ("simple", "fast")
CPU = "host"
"""The architecture on which neither is fast."""
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_last_plans: weakref.WeakKeyDictionary[KVPool, tuple[object, DecodePlan]] = weakref.WeakKeyDictionary()


def choose_kernel(pool: KVPool, kv: PagedKV, query: Any, asked: str | None) -> str:
    """``asked``, or where it is None, "fast" on a GPU on which the fast kernel is right for ``kv``, else "simple".

    On the host driver the simple kernel is the default: neither is fast there. Raises ValueError for another name.
    """
    if asked not in (None, *CHOICES):
        raise ValueError(
            f"kernel {asked!r} is unknown; use {', '.join(map(repr, CHOICES))}, or None to let it be chosen"
        )
    if asked is not None:
        return asked
    device = pool.device
    if device.arch == CPU or not _has_fast_kernel(kv, query, device.arch):
        return "simple"
    right = net.holds(
        device,
        device.name,
        "paged_decode",
        kv,
        kv.dtype,
        query.shape[1] // kv.kv_heads,
        move=lambda array: np.array(array, like=query),
        wait=device.synchronize,
    )
    return "fast" if right else "simple"


def decode_fast(
    pool: KVPool, kv: PagedKV, query: Any, tables: Any, lengths: Any, out: Any, scale: float | None, stream: int
) -> None:
    """Launch paged_decode over ``lengths`` (on the host), with a plan for all multiprocessors of the pool's device."""
    plan = _plan(pool, kv, query, lengths, stream)
    partials = (plan.partials, plan.heads)
    launch.paged_decode(
        pool.device,
        kv,
        plan,
        query,
        tables,
        np.asarray(lengths, like=query),
        out,
        partial_out=np.empty_like(query, np.float32, shape=(*partials, kv.head_dim)),
        partial_lse=np.empty_like(query, np.float32, shape=partials),
        scoring=Scoring(scale=scale),
        stream=stream,
    )


def _plan(pool: KVPool, kv: PagedKV, query: Any, lengths: Any, stream: int) -> DecodePlan:
    """The plan for these lengths where the kernels run: the last one of the pool, where the layers of a step share it.

    One for each stream: what was copied in the order of one is not there for another.
    """
    device = pool.device
    build = decode_build(kv.dtype, kv.head_dim, kv.layout, device.arch)
    shares = device.driver.device_attribute(device.ordinal, _MULTIPROCESSORS) * build.thread_blocks
    key = (lengths.tobytes(), query.shape[1], kv.kv_heads, shares, stream)
    last = _last_plans.get(pool)
    if last is None or last[0] != key:
        made = plan_decode(lengths, query.shape[1], kv.kv_heads, shares=shares)
        last = _last_plans[pool] = key, made.on(lambda array: np.asarray(array, like=query))
    return last[1]


def _has_fast_kernel(kv: PagedKV, query: Any, arch: str) -> bool:
    """Whether the kernel on tensor cores walks such a cache there, for a query with a row of heads a KV head."""
    if query.ndim != 3 or query.shape[1] < kv.kv_heads or query.shape[1] % kv.kv_heads:
        return False  # the simple launch says what is wrong
    try:
        decode_build(kv.dtype, kv.head_dim, kv.layout, arch)
    except LaunchError:
        return False
    return True
