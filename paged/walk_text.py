"""A walk as lines of text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from vmm import format_size

from .layout import KVLayout
from .walk import Stop, Translation, Walk


def describe_layout(layout: KVLayout) -> str:
    """What the pool keeps, and how, in one line."""
    order = f"{layout.planes} plane{'s' if layout.planes > 1 else ''}, order {layout.order}, layout {layout.layout}"
    return f"{layout.spec}; blocks of {layout.block_size} tokens ({format_size(layout.block_bytes)}), {order}"


def walk_lines(walk: Walk, table: Sequence[int], layout: KVLayout) -> Iterator[str]:
    """The chain of one token, a stop a line, first through the block table and then through the driver's layer."""
    size = layout.block_size
    yield f"token {walk.token}"
    yield f"  logical block {walk.logical_block}, slot {walk.slot}".ljust(36) + (
        f"{walk.token} = {walk.logical_block} x {size} + {walk.slot}"
    )
    yield f"  block {walk.block}".ljust(36) + f"entry {walk.logical_block} of the block table {list(table)}"
    yield f"  slot index {walk.slot_index}".ljust(36) + f"{walk.block} x {size} + {walk.slot}"
    for stop in walk.stops:
        yield ""
        yield from stop_lines(stop, walk.block)


def stop_lines(stop: Stop, block: int) -> Iterator[str]:
    """From a block to physical memory for K or V of one layer and head."""
    found = stop.translation
    yield f"{stop.component} of layer {stop.layer}, head {stop.head}"
    yield f"  address {found.address:#x}".ljust(36) + address_sum(stop, block)
    yield from translation_lines(found, stop.row)


def address_sum(stop: Stop, block: int) -> str:
    """The address as the kernel computes it, with the values put in."""
    plane, inner = f"{stop.plane} x {stop.plane_stride:#x}", f"{stop.inner:#x}"
    return f"{stop.translation.base:#x} + {plane} + {block} x {stop.block_stride:#x} + {inner}"


def translation_lines(found: Translation, row: int) -> Iterator[str]:
    """What the driver's layer and the operating system say about one address."""
    yield (
        f"  byte {found.offset:#x}".ljust(36) + f"of range {found.range_name!r}, row {row}, chunk {found.chunk} of "
        f"{format_size(found.chunk_size)}"
    )
    yield f"  handle {found.handle:#x}".ljust(36) + f"byte {found.handle_offset:#x} of this physical memory"
    yield f"  access {found.access.name.lower()}".ljust(36) + f"on device {found.device}"
    if found.system is not None:
        yield f"  the system's page table: {found.system}"


def walk_json(walk: Walk, table: Sequence[int]) -> dict[str, Any]:
    """The chain as plain values; addresses, handles and offsets are numbers of bytes."""
    return {
        "token": walk.token,
        "table": list(table),
        "logical_block": walk.logical_block,
        "block": walk.block,
        "slot": walk.slot,
        "slot_index": walk.slot_index,
        "stops": [stop_json(stop) for stop in walk.stops],
    }


def stop_json(stop: Stop) -> dict[str, Any]:
    """One stop as plain values."""
    values = dataclasses.asdict(stop)
    found = values.pop("translation")
    found["access"] = stop.translation.access.name.lower()
    found["range"] = found.pop("range_name")
    return {**values, **found}
