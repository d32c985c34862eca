"""Place: which number of which token's K or V an offset in a pool is. The inverse of KVLayout's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from vmm import RangeError

from .layout import K, KVLayout


@dataclass(frozen=True, slots=True)
class Place:
    """Number ``d`` of one head of K or V of the token in ``slot`` of a block, in one layer."""

    block: int
    layer: int
    component: int
    head: int
    slot: int
    d: int


def place_of(layout: KVLayout, offset: int, blocks: int) -> Place | None:
    """What lies at byte ``offset`` of a pool of ``blocks``; None for bytes that belong to no block.

    Raises RangeError outside the pool.
    """
    if not 0 <= offset < layout.reserve_bytes(blocks):
        raise RangeError(f"offset {offset} is outside the {layout.reserve_bytes(blocks)} bytes of the pool")
    plane, offset = divmod(offset, layout.plane_stride(blocks))
    block, offset = divmod(offset, layout.block_stride)
    if block >= blocks:
        return None  # what the last row has left over
    part, offset = divmod(offset, layout.block_size * layout.spec.component_token_bytes)
    layer, component = divmod(part, layout.spec.components)
    head, slot, d = _inside(layout, component, offset // layout.spec.element_bytes)
    return Place(block, plane + layer, component, head, slot, d)


def _inside(layout: KVLayout, component: int, element: int) -> tuple[int, int, int]:
    """(head, slot, d) of an element of one layer's K or V of a block."""
    heads, head_dim, size, x = layout.spec.kv_heads, layout.spec.head_dim, layout.block_size, layout.vector
    if layout.layout == "nhd":
        token, d = divmod(element, head_dim)
        slot, head = divmod(token, heads)
        return head, slot, d
    head, element = divmod(element, head_dim * size)
    if layout.layout == "hnd":
        slot, d = divmod(element, head_dim)
    elif component == K:
        piece, element = divmod(element, size * x)
        slot, d = element // x, piece * x + element % x
    else:
        d, slot = divmod(element, size)
    return head, slot, d
