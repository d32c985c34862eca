"""Copies of whole blocks from place to place in one pool, in the order of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels_cu import launch
from vmm import StateError, Stream, stream_handle
from vmm.finishing import Finishing
from vmm.shown import shown
from vmm.views import import_cupy

from .blocks.block_ids import id_array

if TYPE_CHECKING:
    from .pool import KVPool


def copy_one(pool: KVPool, source: int, target: int, stream: Stream) -> None:
    """What ``KVPool.copy_block`` does."""
    pair = _with_memory(pool, [source, target])
    if pair[0] == pair[1]:
        raise StateError(f"block {pair[0]} cannot be copied onto itself; give another target")
    copy_blocks(pool, pair[:1], pair[1:], stream)


def copy_all(pool: KVPool, pairs: Sequence[tuple[int, int]], stream: Stream) -> None:
    """What ``KVPool.copy_blocks`` does."""
    try:
        blocks = [block for source, target in pairs for block in (source, target)]
    except (TypeError, ValueError):
        raise ValueError(f"copies are pairs (source, target), such as [(0, 1)], not {shown(pairs)}") from None
    flat = _with_memory(pool, blocks)
    wanted = list(zip(flat[::2], flat[1::2], strict=True))
    if len({target for _source, target in wanted}) < len(wanted):
        raise StateError(f"a block is the target of two copies in {wanted[:8]}; give each one source")
    spare = pool.allocate(1) if needs_spare(wanted) else []
    with Finishing() as rest:
        try:
            for batch in in_order(wanted, *(spare or [-1])):
                sources, targets = zip(*batch, strict=True)
                copy_blocks(pool, sources, targets, stream)
        finally:
            rest.run(pool.free, spare, after=stream)


def _with_memory(pool: KVPool, blocks: Sequence[int]) -> list[int]:
    """Block ids, all of which have memory: a kernel that reads what is not mapped ends all work of the device."""
    ids: list[int] = id_array(blocks, pool.block_pool.rows.blocks).tolist()
    bare = next((block for block in ids if not pool.block_pool.committed.holds(block)), None)
    if bare is not None:
        raise StateError(f"block {bare} has no memory and cannot be copied; allocate it first")
    return ids


def copy_blocks(pool: KVPool, sources: Sequence[int], targets: Sequence[int], stream: Stream) -> None:
    """Copy all bytes of each block of ``sources`` to the one of ``targets`` beside it; no block may be both.

    On a GPU one launch of the kernel copy_blocks; on the host driver one copy a plane for each run of neighbours.
    """
    stream = stream_handle(stream)
    if pool.device.backing == "device":
        pairs = import_cupy().asarray(np.stack([sources, targets], axis=1).astype(np.int64))
        blocks = pool.layout.blocks(pool.range.base, pool.block_pool.rows.blocks)
        launch.copy_blocks(pool.device, blocks, blocks, pairs, stream=stream)
        return
    stride, layout, driver = pool.layout.block_stride, pool.layout, pool.device.driver
    plane_stride = layout.plane_stride(pool.block_pool.rows.blocks)
    with pool.device.current():
        for source, target, count in _runs(sources, targets):
            for plane in range(layout.planes):
                start = pool.range.base + plane * plane_stride
                driver.copy_async(start + target * stride, start + source * stride, count * stride, stream)


Pairs = list[tuple[int, int]]
"""(source, target) of each copy."""


def needs_spare(pairs: Pairs) -> bool:
    """Whether some of the pairs go round in a circle, so that no order of copies is right without another block."""
    return any(spared for _batch, spared in _batches(pairs, -1))


def in_order(pairs: Pairs, spare: int) -> list[Pairs]:
    """Batches of copies that, one after the other, do what all ``pairs`` at once would do.

    In a batch no block is both source and target. A block is written once it has been read; of pairs that go round in
    a circle one block is kept in ``spare`` meanwhile. Targets are distinct.
    """
    return [batch for batch, _spared in _batches(pairs, spare)]


def _batches(pairs: Pairs, spare: int) -> Iterator[tuple[Pairs, bool]]:
    left = {target: source for source, target in pairs if source != target}
    while left:
        read = set(left.values())
        ready = [target for target in left if target not in read]
        if ready:
            yield [(left.pop(target), target) for target in ready], False
            continue
        kept = next(iter(left))  # all that are left are circles
        yield [(kept, spare)], True
        left = {target: spare if source == kept else source for target, source in left.items()}


def _runs(sources: Sequence[int], targets: Sequence[int]) -> list[list[int]]:
    """Pairs joined where both are neighbours: [first source, first target, how many]."""
    found: list[list[int]] = []
    for source, target in sorted(zip(sources, targets, strict=True)):
        last = found[-1] if found else [source, target, 0]
        if found and (source, target) == (last[0] + last[2], last[1] + last[2]):
            last[2] += 1
        else:
            found.append([source, target, 1])
    return found
