"""Launches that move or fill whole blocks."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, view
from ..blocks import Blocks, check_pairs, check_same_shape
from ..checked_launch import launch_checked
from ..ids import check_ids, check_pair_ids
from ..parameters import Argument
from ..target import Target

THREADS = 256
PIECE_BYTES = THREADS * 4 * 16
"""What one thread block copies at a time."""
MOST_THREAD_BLOCKS = 4096
SWAP_THREAD_BLOCKS = 16
"""Thread blocks that keep a bus to the host busy (16 KiB under way each) and leave the others to attention."""
ALL_NAN = 0xFFFFFFFF
"""All bits set: NaN in float32, float16, bfloat16 and e4m3, -1 in int8."""


def copy_blocks(
    target: Target,
    source: Blocks,
    destination: Blocks,
    pairs: Array,
    *,
    staging: Blocks | None = None,
    thread_blocks: int = MOST_THREAD_BLOCKS,
    stream: int = 0,
) -> None:
    """Copy blocks: for each row of ``pairs`` int64 [n, 2], block pairs[i, 0] of source to pairs[i, 1] of destination.

    Pairs have no order. So within one pool no block may be both a source and a destination, or a destination twice;
    where pairs can be seen, on the CPU, that is a LaunchError. With ``staging``, memory for n blocks that nobody else
    uses, all sources are read before any destination is written: then the pairs behave as if they were simultaneous,
    and a block may be both. A pair with a negative id is skipped; n = 0 launches nothing.

    Source and destination may be pinned memory of the host. Raises LaunchError for blocks of different shapes or arrays
    that do not fit, target.fault(...) for memory that is not there.
    """
    rows = view("pairs", pairs, target.arch, "int64", (None, 2))
    check_same_shape(source, destination, staging or source)
    if staging is None and source == destination and isinstance(pairs, np.ndarray):
        check_pairs(pairs)
    steps = [(source, destination, 0)] if staging is None else [(source, staging, 1), (staging, destination, 2)]
    for first, second, stage in steps:
        arguments = (
            np.uint64(first.address),
            np.uint64(second.address),
            *_strides(first),
            *_strides(second),
            np.int64(source.block_bytes),
            np.int32(source.planes),
            np.int64(rows.shape[0]),
            np.uint64(rows.address),
        )
        grid = _grid(rows.shape[0], source, thread_blocks)
        launch_checked(
            target,
            "copy_blocks",
            {"STAGE": stage},
            grid,
            (THREADS, 1, 1),
            arguments,
            stream=stream,
            keepalive=pairs,
            look=lambda: check_pair_ids(pairs, source.blocks, destination.blocks),
        )


def swap_blocks(target: Target, source: Blocks, destination: Blocks, pairs: Array, *, stream: int = 0) -> None:
    """Copy blocks to pinned memory of the host or back, all in one launch, as ``copy_blocks`` does.

    The GPU reads or writes the host's memory itself, with few thread blocks, so that other kernels run beside it: the
    way for scattered blocks, and in a captured graph. ``swap_runs`` is the way for long runs. Sort ``pairs`` by the
    blocks of the host: neighbours then lie side by side on the bus. Raises as copy_blocks does.
    """
    copy_blocks(target, source, destination, pairs, thread_blocks=SWAP_THREAD_BLOCKS, stream=stream)


def fill_blocks(target: Target, blocks: Blocks, ids: Array, *, pattern: int = ALL_NAN, stream: int = 0) -> None:
    """Fill the blocks ``ids`` int64 [n] with a pattern of 32 bits: NaN in every type if not given, which is poison.

    A negative id is skipped; n = 0 launches nothing. Raises LaunchError for arrays that do not fit, target.fault(...)
    for memory that is not there.
    """
    rows = view("ids", ids, target.arch, "int64", (None,))
    arguments = (
        np.uint64(blocks.address),
        *_strides(blocks),
        np.int64(blocks.block_bytes),
        np.int32(blocks.planes),
        np.uint32(pattern),
        np.int64(rows.shape[0]),
        np.uint64(rows.address),
    )
    grid = _grid(rows.shape[0], blocks, MOST_THREAD_BLOCKS)
    launch_checked(
        target,
        "fill_blocks",
        {},
        grid,
        (THREADS, 1, 1),
        arguments,
        stream=stream,
        keepalive=ids,
        look=lambda: check_ids("ids", ids, blocks.blocks, "block"),
    )


def _strides(region: Blocks) -> tuple[Argument, ...]:
    return (np.int64(region.plane_stride), np.int64(region.block_stride))


def _grid(rows: int, region: Blocks, most: int) -> tuple[int, int, int]:
    """One thread block a piece, up to ``most``."""
    return (min(most, rows * region.planes * -(-region.block_bytes // PIECE_BYTES)), 1, 1)
