"""Which kernel attention uses: on a GPU the one on tensor cores where the cache has one, else the simple one."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_cu import LaunchError, PagedKV, net
from kernels_cu.arrays import DTYPES
from kernels_cu.launches.arguments import HALVES
from kernels_cu.launches.decode_build import decode_build, misfit
from kernels_cu.launches.prefill import prefill_build
from vmm import Device

from .options import AttentionOptions

CHOICES = ("simple", "fast")
CPU = "host"
"""The architecture on which neither is fast."""
_BUILDS: Any = {"paged_decode": decode_build, "contiguous_decode": decode_build, "paged_prefill": prefill_build}


def choose_kernel(
    device: Device, fast: str, kv: PagedKV, query: Any, options: AttentionOptions, asked: str | None
) -> str:
    """``asked``, or where it is None, "fast" on a GPU on which the kernel ``fast`` is right for ``kv``, else "simple".

    On the host driver the simple kernel is the default: neither is fast there. What it does not do is done by the
    other, everywhere. Raises ValueError for another name, LaunchError for options that neither has for this cache.
    """
    if asked not in (None, *CHOICES):
        raise ValueError(
            f"kernel {asked!r} is unknown; use {', '.join(map(repr, CHOICES))}, or None to let it be chosen"
        )
    needs = options.beyond_simple(kv)
    if asked == "simple" and needs:
        raise LaunchError(f"the simple kernel does not do {needs}; leave kernel=None, or ask for 'fast'")
    if asked is not None:
        return asked
    reason = _no_fast_kernel(device.arch, fast, kv)
    if not reason and not _fits(kv, query):
        return "fast" if needs else "simple"  # whose launch says what is wrong
    if not reason and device.arch != CPU and not _holds(device, fast, kv, query):
        reason = f"{fast} was wrong on {device.name}, and kernel='fast' forces it"
    wrong = misfit(kv.dtype, kv.head_dim, kv.layout) if needs else None
    if wrong:
        raise LaunchError(f"{needs} needs {wrong[0]}; this pool is of {wrong[1]}")
    if needs and reason:
        raise LaunchError(f"only the kernel on tensor cores does {needs}: {reason}")
    return "fast" if needs or (device.arch != CPU and not reason) else "simple"


def _no_fast_kernel(arch: str, fast: str, kv: PagedKV) -> str:
    """Why the kernel on tensor cores does not walk such a cache there; "" if it does."""
    try:
        _BUILDS[fast](kv.dtype, kv.head_dim, kv.layout, arch)
    except LaunchError as refused:
        return str(refused).partition("; use ")[0]
    return ""


def _fits(kv: PagedKV, query: Any) -> bool:
    """Whether a query has a row of heads a KV head, in a type that the kernels on tensor cores take."""
    if query.ndim != 3 or query.shape[1] < kv.kv_heads or query.shape[1] % kv.kv_heads:
        return False
    return any(query.dtype == DTYPES[dtype] for dtype in HALVES)


def _holds(device: Device, fast: str, kv: PagedKV, query: Any) -> bool:
    dtype = next(name for name in HALVES if query.dtype == DTYPES[name])
    group = query.shape[1] // kv.kv_heads
    return net.holds(
        device,
        device.name,
        fast,
        kv,
        dtype,
        group,
        move=lambda array: np.array(array, like=query),
        wait=device.synchronize,
    )
