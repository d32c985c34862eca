"""Kernels that only move: append, gather and copies of blocks, which should run as fast as a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels_cu import Blocks, launch, reference_append

from .bench import Bench
from .cases import Case, vary
from .contents import SCALE, normal
from .kv_memory import KVMemory
from .side import DTYPES

MOST_TOKENS = 65536
_E4M3 = np.full(1, SCALE, np.float32)


def names() -> list[str]:
    """The names of all items."""
    return list(_ITEMS)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Check and time one kernel on the memory of a case."""
    case, move, most = _ITEMS[name]
    case = case.small() if bench.side.dry else case
    memory = KVMemory(bench.side, case)
    try:
        return move(bench, case, memory, most)
    finally:
        memory.close()


def append(bench: Bench, case: Case, memory: KVMemory, most: int) -> dict[str, Any]:
    """Write tokens to their slots; the first sequence is read back where the layout says it lies."""
    side = bench.side
    slots = memory.slots(0)[:most]
    shape = (len(slots), case.kv_heads, case.head_dim)
    key, value = (normal(shape, case.query_dtype, seed) for seed in (1, 2))
    places, keys, values, scales = side.array(slots), side.array(key), side.array(value), memory.scales

    def call(layer: int) -> Callable[[int], None]:
        kv = memory.kv(layer)
        return lambda stream: launch.append_kv(side, kv, keys, values, places, stream=stream, **scales)

    calls = [call(layer) for layer in range(memory.layers)]
    calls[-1](side.stream)
    side.device.synchronize()
    length = min(len(slots), case.lengths[0])
    found = memory.rows(0, 0, memory.layers - 1, length)
    ok = all(
        (have.astype(np.float32) == _stored(given[:length], case.dtype)).all()
        for have, given in zip(found, (key, value), strict=True)
    )
    timing = bench.timer.time(calls)
    moved = len(slots) * (case.token_bytes + 2 * case.kv_heads * case.head_dim * 2 + 8)
    return {**timing.row(), "bytes": moved, "tokens": len(slots), "ok": bool(ok)}


def gather(bench: Bench, case: Case, memory: KVMemory, most: int) -> dict[str, Any]:
    """Read tokens from their slots into packed rows; the first sequence is compared with where the layout has it."""
    side = bench.side
    slots = memory.slots(0)[:most]
    shape = (len(slots), case.kv_heads, case.head_dim)
    keys, values = (side.poisoned(shape, case.query_dtype) for _ in range(2))
    places, scales = side.array(slots), memory.scales

    def call(layer: int) -> Callable[[int], None]:
        kv = memory.kv(layer)
        return lambda stream: launch.gather_kv(side, kv, places, keys, values, stream=stream, **scales)

    calls = [call(layer) for layer in range(memory.layers)]
    calls[-1](side.stream)
    length = min(len(slots), case.lengths[0], 4096)
    wanted = memory.rows(0, 0, memory.layers - 1, length)
    ok = all(
        (side.host(have[:length]).astype(np.float32) == want.astype(np.float32)).all()
        for have, want in zip((keys, values), wanted, strict=True)
    )
    timing = bench.timer.time(calls)
    moved = len(slots) * (case.token_bytes + 2 * case.kv_heads * case.head_dim * 2 + 8)
    return {**timing.row(), "bytes": moved, "tokens": len(slots), "ok": bool(ok)}


def copy_blocks(bench: Bench, case: Case, memory: KVMemory, most: int) -> dict[str, Any]:  # noqa: ARG001
    """Copy half of the pool's blocks, of all layers, onto the other half; the last pair is compared."""
    side, layout = bench.side, memory.pool.layout
    total = memory.pool.block_pool.rows.blocks
    ids = np.random.default_rng(3).permutation(total // 2 * 2).astype(np.int64).reshape(-1, 2)
    region = Blocks(
        memory.pool.range.base, layout.block_stride, layout.block_stride, layout.planes, layout.plane_stride(total)
    )
    pairs = side.array(ids)

    def call(stream: int) -> None:
        launch.copy_blocks(side, region, region, pairs, stream=stream)

    call(side.stream)
    side.device.synchronize()
    last = memory.layers - 1
    source, target = (
        side.read(memory.pool.address(block=int(block), layer=last), "uint8", (layout.block_stride // memory.layers,))
        for block in ids[-1]
    )
    timing = bench.timer.time([call])
    moved = 2 * len(ids) * layout.block_bytes
    return {**timing.row(), "bytes": moved, "blocks": len(ids), "ok": bool((source == target).all())}


def _stored(rows: Any, dtype: str) -> Any:
    """What a cache gives back of these rows, in float32."""
    if dtype != "e4m3":
        return rows.astype(np.float32)
    return reference_append.quantised(rows, dtype, _E4M3).astype(DTYPES[dtype]).astype(np.float32) * SCALE


_Move = Callable[[Bench, Case, KVMemory, int], dict[str, Any]]
_ITEMS: dict[str, tuple[Case, _Move, int]] = {
    "append 65536 tokens": (vary(), append, MOST_TOKENS),
    "append 65536 tokens, layout nhd": (vary(layout="nhd"), append, MOST_TOKENS),
    "append 65536 tokens, dtype e4m3": (vary(dtype="e4m3"), append, MOST_TOKENS),
    "append 256 tokens": (vary(batch=256, context=1024), append, 256),
    "gather 65536 tokens": (vary(), gather, MOST_TOKENS),
    "gather 65536 tokens, layout nhd": (vary(layout="nhd"), gather, MOST_TOKENS),
    "gather 65536 tokens, dtype e4m3": (vary(dtype="e4m3"), gather, MOST_TOKENS),
    "copy blocks": (vary(), copy_blocks, 0),
    "copy blocks, order layer": (vary(order="layer"), copy_blocks, 0),
}
