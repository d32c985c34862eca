"""How fast the device copies memory of one of our own ranges: what every other figure is a share of."""

from __future__ import annotations

from typing import Any

import numpy as np

import vmm

from .bench import Bench
from .cases import MIB
from .timer import COLD

SIZES_MIB = (256, 1024, 4096)


def names() -> list[str]:
    """One item a size."""
    return [f"copy {size} MiB" for size in SIZES_MIB]


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Copy the first half of a range to the second, and back in turn; a byte read and one written count as two."""
    side, driver = bench.side, bench.side.device.driver
    size = 2 * MIB if side.dry else int(name.split()[1]) * MIB
    if 2 * size > 0.8 * side.device.memory_info().free:
        raise vmm.VmmError(f"two halves of {size} bytes are more than most of the free memory")
    with vmm.GrowableRange(side.device, 2 * size) as memory:
        memory.grow(2 * size)
        first, second = memory.base, memory.base + size
        numbers = np.random.default_rng(0).integers(0, 256, 1 * MIB, np.uint8)
        driver.copy_in(first + size - len(numbers), numbers.tobytes(), len(numbers))

        def copy(stream: int) -> None:
            driver.copy_async(second, first, size, stream)

        repeats = 1 if side.dry or size < COLD * side.l2_bytes else max(1, (8 << 30) // (2 * size))
        timing = bench.timer.time([copy] * repeats)
        ok = (side.read(second + size - len(numbers), "uint8", numbers.shape) == numbers).all()
    return {**timing.row(), "bytes": 2 * size, "ok": bool(ok)}
