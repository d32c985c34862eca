"""An explanation as lines of text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from vmm import format_size

from .explain import ChunkContents, Explanation, LiveBlock
from .layout import KVLayout
from .place import Place

_MOST_BLOCKS_SHOWN = 8


def explanation_lines(found: Explanation) -> Iterator[str]:
    """From an address up to tokens, a stop a line."""
    layout = found.layout
    yield f"address {found.address:#x}"
    yield from chunk_lines(found.chunk, found.offset, layout)
    yield ""
    if found.place is None:
        yield "no block: what blocks leave over at the end of a plane"
        return
    yield from _place_lines(found.place, layout)
    if found.block is None:
        yield f"  block {found.place.block} is free: nobody holds it"
        return
    for holder in found.block.holders:
        token = holder.token(found.place.slot)
        where = f"token {token}" if token is not None else "no token yet: the tail of the block"
        yield f"  sequence {holder.row}".ljust(36) + where
    if found.block.others:
        yield f"  {found.block.others} more hold it".ljust(36) + "by its id"
    if found.block.cached:
        yield "  the prefix cache has it".ljust(36) + "for prompts that begin alike"


def chunk_lines(chunk: ChunkContents, offset: int, layout: KVLayout) -> Iterator[str]:
    """What the driver's layer has there, and everything that lives in the chunk."""
    size = format_size(layout.chunk)
    yield f"  byte {offset:#x}".ljust(36) + f"row {chunk.row} of plane {chunk.plane}, chunk {chunk.chunk} of {size}"
    yield f"  {chunk.state}".ljust(36) + (f"handle {chunk.handle:#x}" if chunk.handle else "nothing is mapped")
    live = f"{len(chunk.blocks)} live block{'' if len(chunk.blocks) == 1 else 's'}"
    yield f"  {live}".ljust(36) + f"in this row, and room for {chunk.free} more"
    for block in chunk.blocks[:_MOST_BLOCKS_SHOWN]:
        yield f"    {_held(block)}"
    if len(chunk.blocks) > _MOST_BLOCKS_SHOWN:
        yield f"    and {len(chunk.blocks) - _MOST_BLOCKS_SHOWN} more"


def explanation_json(found: Explanation) -> dict[str, Any]:
    """The explanation as plain values; addresses, handles and offsets are numbers of bytes."""
    values: dict[str, Any] = dataclasses.asdict(found)
    del values["layout"]
    return values


def _place_lines(place: Place, layout: KVLayout) -> Iterator[str]:
    component = "latent" if layout.spec.components == 1 else ("K", "V")[place.component]
    yield f"{component} of layer {place.layer}, head {place.head}"
    yield (
        f"  block {place.block}, slot {place.slot}".ljust(36) + f"element {place.d} of head_dim {layout.spec.head_dim}"
    )


def _held(block: LiveBlock) -> str:
    """Who holds a block, in one line."""
    by = [f"sequence {one.row} (tokens {one.start} to {one.stop - 1})" for one in block.holders]
    by += [f"{block.others} by its id"] * bool(block.others)
    by += ["the prefix cache"] * block.cached
    count = f"{block.count} hold" if block.count != 1 else "1 holds"
    return f"block {block.block}: {count} it" + (f": {', '.join(by)}" if by else "")
