"""What a reader of a recording must know of the pool: where block b, row r and chunk c lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..pool import KVPool


def geometry_of(pool: KVPool) -> dict[str, Any]:
    """Sizes in bytes, addresses and numbers of a pool, as plain data."""
    layout, rows, device = pool.layout, pool.block_pool.rows, pool.device
    return {
        "driver": device.driver.name,
        "device": device.name,
        "backing": device.backing,
        "range": pool.range.name,
        "base": pool.range.base,
        "reserved": pool.reserved,
        "budget": pool.block_pool.max_rows * layout.row_bytes,
        "blocks": rows.blocks,
        "rows": rows.count,
        "chunk": layout.chunk,
        "planes": layout.planes,
        "row_bytes": layout.row_bytes,
        "block_size": layout.block_size,
        "block_bytes": layout.block_bytes,
        "block_stride": layout.block_stride,
        "plane_stride": layout.plane_stride(rows.blocks),
        "token_bytes": layout.spec.token_bytes,
        "order": layout.order,
        "layout": layout.layout,
        "spec": str(layout.spec),
    }
