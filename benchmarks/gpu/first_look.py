"""The net under the fast kernels, as a first use of each would meet it: whether it holds, and how long it takes."""

from __future__ import annotations

import time
from typing import Any

from kernels_cu import PagedKV
from kernels_cu.net import KERNELS, SmallCase

from .bench import Bench

_BLOCK = 16 * 8 * 128
_SHAPE = PagedKV(1 << 40, 1 << 41, "bfloat16", "hnd", 16, 8, 128, 2 * _BLOCK, 16 * 128, 128)
"""A cache as in the base case, at no address in particular: the net has memory of its own."""


def names() -> list[str]:
    """One item a kernel."""
    return [f"first look at {kernel}" for kernel in KERNELS]


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Compare a kernel with the simple one twice: with compiling, and without."""
    side, kernel = bench.side, name.split()[-1]
    times = []
    for _ in range(2):
        started = time.perf_counter()
        case = SmallCase(_SHAPE, "bfloat16", 4, side.array, side.device.synchronize)
        error = case.difference(side, kernel)
        times.append(time.perf_counter() - started)
    return {
        "ok": bool(error <= case.allowed),
        "error_simple": error,
        "allowed": case.allowed,
        "first_seconds": times[0],
        "next_seconds": times[1],
    }
