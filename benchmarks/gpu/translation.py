"""What a load costs by the memory that it may fall into: a chain of dependent loads, one in each chunk of a range.

The numbers of a chain fit in the cache from its second turn on, so what grows with the range is the translation of its
addresses. In order, the next chunk is the neighbour; shuffled, any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import vmm
from kernels_cu import launch

from .bench import Bench
from .cases import MIB

CHUNK = 2 * MIB
LINE = 128
"""Bytes: a chain moves on by one in each chunk, so that its words do not all meet in one set of the cache."""
STEPS = 1 << 14
_ITEMS = {
    f"translation over {mib} MiB, {order}": (mib * MIB, order == "shuffled")
    for mib in (16, 256, 4096, 16384)
    for order in ("in order", "shuffled")
}


def names() -> list[str]:
    """One item a footprint and order."""
    return list(_ITEMS)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Walk the chain, see where it ends, and time it."""
    size, shuffled = _ITEMS[name]
    side = bench.side
    size = min(size, 32 * MIB) if side.dry else min(size, side.free // 2 // CHUNK * CHUNK)
    offsets = _offsets(size, shuffled)
    steps = min(STEPS, 100) if side.dry else STEPS
    supply = side.supply(CHUNK)
    with vmm.GrowableRange(side.device, size, supply=supply, name="chain") as chain:
        chain.grow(size)
        words = chain.array(np.int64, (size // 8,), 0)
        patches, out = side.array(launch.probe_patches(offsets)), side.array(np.zeros(1, np.int64))
        launch.patch_table(side, words, patches, stream=side.stream)

        def walk(stream: int) -> None:
            launch.tlb_probe(side, chain.base, int(offsets[0]), steps, out, stream=stream)

        walk(side.stream)
        ok = int(side.host(out)[0]) == int(offsets[steps % len(offsets)])
        timing = bench.timer.time([walk])
        side.device.synchronize()
        del words
    return {**timing.row(), "ns_a_load": timing.seconds / steps * 1e9, "footprint": size, "ok": ok}


def _offsets(size: int, shuffled: bool) -> Any:
    """One place in each chunk."""
    chunks = np.arange(size // CHUNK, dtype=np.int64)
    offsets = chunks * CHUNK + chunks * LINE % CHUNK
    return np.random.default_rng(0).permutation(offsets) if shuffled else offsets
