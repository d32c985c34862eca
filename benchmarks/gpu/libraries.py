"""Other libraries on our memory: their tests, a process for each that is installed, and what an allocation costs."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vmm
from vmm.interop import malloc

from .bench import Bench
from .programs import PYTEST, run_process

TESTS = Path(__file__).resolve().parents[2] / "tests" / "device" / "test_interop.py"
LIBRARIES = {  # what is imported: which of the tests
    "cupy": "cupy",
    "cuda.core": "cuda_core",
    "rmm": "rmm",
    "numba_cuda": "numba",
    "torch": "pytorch",
    "flashinfer": "flashinfer",
}
ALLOCATIONS = "allocations by address"
_SIZES = (4 << 10, 1 << 20)
_ROUNDS = 2000


def names() -> list[str]:
    """The libraries, and the cost of an allocation."""
    return [*LIBRARIES, ALLOCATIONS]


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Run the tests of one library, or time allocations."""
    if name == ALLOCATIONS:
        return _allocations(bench)
    try:
        there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it lies in
        there = False
    if not there:
        return {"absent": f"{name} is not installed"}
    return run_process([*PYTEST, "-rs", str(TESTS), "-k", LIBRARIES[name]], bench)


def _allocations(bench: Bench) -> dict[str, Any]:
    """Microseconds of an allocation and its free, median, by address from a heap, and of CuPy's own pool beside it."""
    side, found = bench.side, {}
    with vmm.Heap(side.device, "1 GiB") as heap:
        held = malloc.of(heap)
        first = held.allocate(64, side.stream)  # the first chunk stays
        for size in _SIZES:
            found[f"heap, {vmm.format_size(size)}"] = _median(
                lambda size=size: held.free(held.allocate(size, side.stream), side.stream), bench.dry
            )
        held.free(first, side.stream)
    if not side.dry:
        pool = side.xp.cuda.MemoryPool()
        for size in _SIZES:
            found[f"CuPy's pool, {vmm.format_size(size)}"] = _median(lambda size=size: pool.malloc(size), bench.dry)
        pool.free_all_blocks()
    return {"ok": True, "microseconds": found}


def _median(call: Callable[[], object], dry: bool) -> float:
    taken = []
    for _ in range(_ROUNDS // 100 if dry else _ROUNDS):
        started = time.perf_counter()
        call()
        taken.append((time.perf_counter() - started) * 1e6)
    return round(statistics.median(taken), 2)
