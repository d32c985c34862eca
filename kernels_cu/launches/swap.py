"""Blocks to pinned memory of the host and back by the GPU's copy engines, which leave attention its multiprocessors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import Blocks, check_same_shape, runs_of
from ..errors import LaunchError
from ..target import Target
from .blocks import copy_blocks

_EITHER_WAY = 4
"""cudaMemcpyDefault: the addresses say where they lie."""


def swap_runs(
    target: Target, source: Blocks, destination: Blocks, pairs: NDArray[np.int64], *, stream: int = 0
) -> None:
    """Copy block pairs[i, 0] of ``source`` to pairs[i, 1] of ``destination``, neighbours together, on ``stream``.

    ``pairs`` int64 [n, 2] is on the host, and needs not outlive the call. Pairs that are neighbours on both sides make
    a run, and each run of each plane is one asynchronous copy: choose ids so that runs are long. The host's side must
    be pinned, or the copy is not asynchronous. Source and destination are different memory. On the CPU, the kernel
    copy_blocks does the same. Raises LaunchError for blocks of different shapes or that overlap, target.fault(...) for
    memory that is not there.
    """
    check_same_shape(source, destination)
    for side in (source, destination):
        if side.block_stride < side.block_bytes:
            raise LaunchError(f"blocks of {side.block_bytes} bytes that lie {side.block_stride} apart overlap")
    if len(pairs) == 0:
        return
    if target.arch == "host":
        copy_blocks(target, source, destination, pairs.copy(), stream=stream)
        return
    runs = runs_of(pairs)

    def call() -> None:
        import cupy

        for plane in range(source.planes):
            for first, second, count in runs.tolist():
                _copy_run(cupy.cuda.runtime, source, destination, plane, first, second, count, stream)

    target.submit(stream, call, (source, destination))


def _copy_run(
    runtime: Any, source: Blocks, destination: Blocks, plane: int, first: int, second: int, count: int, stream: int
) -> None:
    """One call: a span of bytes where blocks touch each other on both sides, else rows of a pitch."""
    start, to, size = source.at(plane, first), destination.at(plane, second), source.block_bytes
    if source.block_stride == destination.block_stride == size:
        runtime.memcpyAsync(to, start, size * count, _EITHER_WAY, stream)
    else:
        pitches = destination.block_stride, source.block_stride
        runtime.memcpy2DAsync(to, pitches[0], start, pitches[1], size, count, _EITHER_WAY, stream)
