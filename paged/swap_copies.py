"""Copies of whole blocks between a pool and pinned host memory, in the order of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kernels_cu import Blocks, launch
from vmm import Stream, stream_handle
from vmm.views import import_cupy

if TYPE_CHECKING:
    from .pool import KVPool

LONG_RUN = 64 << 10
"""Bytes of a run from which on a copy of its own is worth its call; shorter ones go together, in one launch."""


def copy_out(pool: KVPool, blocks: Sequence[int], host: int, stream: Stream) -> None:
    """Copy blocks of a pool to the host, side by side from address ``host`` on."""
    _copy(pool, blocks, host, stream, out=True)


def copy_in(pool: KVPool, blocks: Sequence[int], host: int, stream: Stream) -> None:
    """Copy back what ``copy_out`` brought to the host, into these blocks."""
    _copy(pool, blocks, host, stream, out=False)


def _copy(pool: KVPool, blocks: Sequence[int], host: int, stream: Stream, *, out: bool) -> None:
    """On a GPU long runs by the copy engines, short ones by one kernel; on the host driver a copy a run and plane."""
    layout, total, stream = pool.layout, pool.block_pool.rows.blocks, stream_handle(stream)
    stride = layout.block_stride
    outside = Blocks(host, stride, stride, layout.planes, len(blocks) * stride)
    inside = layout.blocks(pool.range.base, total)
    pairs = np.column_stack([np.asarray(blocks, np.int64), np.arange(len(blocks))])
    if pool.device.backing != "device":
        _copy_runs(pool, pairs, inside, outside, stream, out=out)
        return
    source, target, moved = (inside, outside, pairs) if out else (outside, inside, pairs[:, ::-1].copy())
    if len(blocks) * stride >= LONG_RUN * _runs(pairs):
        launch.swap_runs(pool.device, source, target, moved, stream=stream)
    else:
        launch.swap_blocks(pool.device, source, target, import_cupy().asarray(moved), stream=stream)


def _runs(pairs: NDArray[np.int64]) -> int:
    """How many runs of neighbours there are."""
    return 1 + int(np.count_nonzero(np.diff(pairs[:, 0]) != 1))


def _copy_runs(
    pool: KVPool, pairs: NDArray[np.int64], inside: Blocks, outside: Blocks, stream: int, *, out: bool
) -> None:
    cuts = np.flatnonzero(np.diff(pairs[:, 0]) != 1) + 1
    driver = pool.device.driver
    with pool.device.current():
        for run in np.split(pairs, cuts):
            first, place = map(int, run[0])
            size = len(run) * pool.layout.block_stride
            for plane in range(pool.layout.planes):
                here, there = inside.at(plane, first), outside.at(plane, place)
                if out:
                    driver.copy_out_async(there, here, size, stream)
                else:
                    driver.copy_in_async(here, there, size, stream)
