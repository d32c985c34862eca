"""A picture as plain values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .picture import BlockKind, ChunkState, Picture
from .spending import spending_of


def picture_json(picture: Picture) -> dict[str, Any]:
    """Everything but free blocks and chunks; addresses, handles and sizes are numbers of bytes."""
    return {
        "name": picture.name,
        "order": picture.order,
        "base": picture.base,
        "chunk": picture.chunk,
        "planes": picture.planes,
        "rows": picture.rows.count,
        "block_size": picture.block_size,
        "block_stride": picture.block_stride,
        "blocks_total": len(picture.counts),
        "reserved": picture.reserved,
        "committed": picture.committed,
        "live": picture.live,
        "tokens": picture.tokens,
        "spending": dataclasses.asdict(spending_of(picture)),
        "chunks": [_chunk(picture, *place) for place in np.argwhere(picture.states).tolist()],
        "blocks": [_block(picture, block) for block in np.flatnonzero(picture.kinds).tolist()],
        "sequences": [_sequence(picture, place) for place in range(len(picture.tables))],
    }


def _chunk(picture: Picture, plane: int, row: int) -> dict[str, Any]:
    state = ChunkState(picture.states[plane, row]).name.lower()
    return {"plane": plane, "row": row, "state": state, "handle": int(picture.handles[plane, row])}


def _block(picture: Picture, block: int) -> dict[str, Any]:
    return {
        "block": block,
        "kind": BlockKind(picture.kinds[block]).name.lower().replace("_", "-"),
        "count": int(picture.counts[block]),
        "cached": bool(picture.cached[block]),
        "filled": int(picture.filled[block]),
    }


def _sequence(picture: Picture, place: int) -> dict[str, Any]:
    tables = picture.tables
    return {
        "row": int(tables.names[place]),
        "tokens": int(tables.lengths[place]),
        "dropped": int(tables.dropped[place]),
        "table": tables.held(place).tolist(),
        "next_append_copies": picture.copies_next(place),
    }
