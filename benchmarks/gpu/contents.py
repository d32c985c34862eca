"""The numbers in the KV memory of every case: normal, and no two blocks alike."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import vmm

from .cases import ELEMENT_BYTES
from .side import DTYPES, Side

SCALE = 2.0**-5
"""Of a cache of e4m3. A power of 2, so that its numbers are bfloat16's too."""
PERIOD = 8 * 1_048_573
"""Elements after which the numbers repeat: 8 times a prime, so that they begin elsewhere in each block."""
LARGEST = 6.0
"""None is larger."""


def fill(side: Side, memory: vmm.GrowableRange, dtype: str) -> None:
    """Write numbers into every committed run of a range: once from the host, then copied on, twice as far each time."""
    driver = side.device.driver
    for run in memory.runs():
        start, size = memory.base + run.start, run.stop - run.start
        numbers = _numbers(dtype, min(PERIOD, size // ELEMENT_BYTES[dtype]))
        driver.copy_in(start, numbers.tobytes(), numbers.nbytes)
        done = numbers.nbytes
        while done < size:
            length = min(done, size - done)
            driver.copy_async(start + done, start, length, side.stream)
            done += length
    side.device.synchronize()


def normal(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Normal numbers in NumPy, none of them larger than LARGEST."""
    draw = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return np.clip(draw, -LARGEST, LARGEST).astype(DTYPES[dtype])


@cache
def _numbers(dtype: str, count: int) -> Any:
    if dtype != "e4m3":
        return normal((count,), dtype, 0)
    return (normal((count,), "float32", 0) / SCALE).astype(DTYPES[dtype])
