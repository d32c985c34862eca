"""Heap against CuPy's memory pool on a device: the time of a call, and the memory that each takes for it.

The sequences of benchmarks/heap_sequences.py. A dry run has the model of CuPy's pool in its place.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import heap_sequences as sequences
from cupy_pool_model import CupyPool

import vmm

from .bench import Bench
from .side import Side

ROUNDS = 3
Figures = tuple[float, int]
"""Seconds, and bytes taken from the device at the end: neither gives any back by itself while there is enough."""

_ITEMS: dict[str, tuple[Callable[[], list[sequences.Call]], Callable[[], list[sequences.Call]]]] = {
    "heap, growing decode": (
        lambda: sequences.growing_decode(layers=8),
        lambda: sequences.growing_decode(layers=2, batch=1, prompt=256, tokens=8),
    ),
    "heap, training": (
        lambda: sequences.training(layers=12, steps=40),
        lambda: sequences.training(layers=1, steps=2),
    ),
    "heap, adversary": (
        lambda: sequences.adversary(rounds=30),
        lambda: sequences.adversary(rounds=3, blocks=40),
    ),
}


def names() -> list[str]:
    """The names of all items."""
    return list(_ITEMS)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Both through one sequence, taking turns."""
    side = bench.side
    calls = _ITEMS[name][side.dry]()
    turns = [(_heap(side, calls), _pool(side, calls)) for _ in range(1 if side.dry else ROUNDS)]
    heap_us, pool_us = (statistics.median(one[which][0] for one in turns) / len(calls) * 1e6 for which in (0, 1))
    (_, heap_bytes), (_, pool_bytes) = turns[0]
    return {
        "ok": heap_bytes <= 1.05 * pool_bytes or side.dry,
        "calls": len(calls),
        "heap_us": heap_us,
        "pool_us": pool_us,
        "time_ratio": statistics.median(heap[0] / pool[0] for heap, pool in turns),
        "heap_bytes": heap_bytes,
        "pool_bytes": pool_bytes,
        "text": f"Heap {heap_us:.2f} us a call, {vmm.format_size(heap_bytes)}; "
        f"CuPy's pool {pool_us:.2f} us, {vmm.format_size(pool_bytes)}",
    }


def _heap(side: Side, calls: list[sequences.Call]) -> Figures:
    with vmm.Heap(side.device, "256 GiB") as heap:
        stream = side.stream

        def allocate(size: int) -> vmm.Block:
            return heap.allocate(size, stream=stream)

        gc.collect()
        seconds = sequences.replay(calls, allocate, lambda block: block.free(), time.perf_counter)
        return seconds, heap.committed


def _pool(side: Side, calls: list[sequences.Call]) -> Figures:
    gc.collect()
    if side.dry:
        model = CupyPool(side.device)
        seconds = sequences.replay(calls, model.malloc, lambda memory: memory.free(), time.perf_counter)
        found = model.total_bytes
        for address in model.addresses:
            model.free(address)
        model.free_all_blocks()
        return seconds, found
    pool = side.xp.cuda.MemoryPool()
    with side.on_stream():
        seconds = sequences.replay(calls, pool.malloc, lambda pointer: pointer.mem.free(), time.perf_counter)
        found = int(pool.total_bytes())
        pool.free_all_blocks()
    side.device.synchronize()
    return seconds, found
