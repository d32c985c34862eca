"""Launch of tlb_probe, and the chains that it walks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, view
from ..checked_launch import launch_checked
from ..errors import LaunchError
from ..target import Target

WORD_BYTES = 8


def probe_patches(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """What ``patch_table`` must write into a range, seen as int64 words, so that tlb_probe visits ``offsets`` in turn.

    ``offsets`` [n] in bytes, different multiples of 8; the last one leads back to the first. Returns int64 [n, 3].
    Raises LaunchError for other offsets.
    """
    if len(np.unique(offsets)) != len(offsets) or (offsets % WORD_BYTES).any() or (offsets < 0).any():
        raise LaunchError(
            f"offsets must be different multiples of {WORD_BYTES} bytes from 0 on; a chain visits each once"
        )
    return np.stack([np.zeros_like(offsets), offsets // WORD_BYTES, np.roll(offsets, -1)], axis=1)


def tlb_probe(target: Target, address: int, start: int, steps: int, out: Array, *, stream: int = 0) -> None:
    """Walk a chain of dependent loads: at = the 8 bytes at ``address`` + at, ``steps`` times, from ``start`` on.

    ``out`` int64 [1] receives the last offset. The time of the launch over ``steps`` is the latency of one load, which
    depends on how much memory the chain spans and in what order. Raises LaunchError for arguments that do not fit,
    target.fault(...) when the chain leads out of memory.
    """
    result = view("out", out, target.arch, "int64", (1,), writable=True)
    if address % WORD_BYTES or start % WORD_BYTES or steps < 0:
        raise LaunchError(
            f"address {address:#x} and start {start} must be multiples of {WORD_BYTES}, steps {steps} not negative"
        )
    arguments = (np.uint64(result.address), np.uint64(address), np.int64(start), np.int64(steps))
    launch_checked(target, "tlb_probe", {}, (1, 1, 1), (1, 1, 1), arguments, stream=stream, keepalive=out)
