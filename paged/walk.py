"""Walk: one token through both page tables, from its number in the sequence to physical memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import vmm
from vmm.host.os_view import KernelMapping, kernel_mapping

from .layout import K, V
from .pool import KVPool
from .tables.block_table import locate


@dataclass(frozen=True, slots=True)
class Translation:
    """What the driver's layer makes of one address: the chunk that covers it, and the physical memory behind that.

    ``offset`` counts from the range's base, ``handle_offset`` from the start of the physical memory. ``system`` is the
    operating system's line for the address, where the host driver keeps real bytes.
    """

    address: int
    range_name: str
    base: int
    offset: int
    chunk: int
    chunk_size: int
    handle: int
    handle_offset: int
    access: vmm.Access
    device: int
    system: KernelMapping | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Where K (or V) of the token begins in one layer and head: in the pool, and in memory."""

    component: str
    layer: int
    head: int
    plane: int
    row: int
    plane_stride: int
    block_stride: int
    inner: int
    translation: Translation


@dataclass(frozen=True, slots=True)
class Walk:
    """The whole chain of one token. ``slot`` is its offset in the block, ``slot_index`` block x block_size + slot."""

    token: int
    logical_block: int
    block: int
    slot: int
    slot_index: int
    stops: tuple[Stop, ...]


def walk(pool: KVPool, table: Sequence[int], token: int, *, layer: int = 0, head: int = 0) -> Walk:
    """Follow token number ``token`` of the sequence with this block table, whose blocks are live in ``pool``.

    Raises vmm.RangeError for a token, layer or head that is not there, vmm.StateError where nothing is committed.
    """
    size = pool.layout.block_size
    block, slot = locate(token, table, size)
    _check_index("layer", layer, pool.layout.spec.layers)
    _check_index("head", head, pool.layout.spec.kv_heads)
    components = (K, V)[: pool.layout.spec.components]
    stops = tuple(_stop(pool, block, slot, layer, component, head) for component in components)
    return Walk(token, token // size, block, slot, block * size + slot, stops)


def translate(pool: KVPool, address: int) -> Translation:
    """Ask the driver's layer, and on the host driver the operating system, what is behind an address of the pool."""
    offset = address - pool.range.base
    chunk = offset // pool.range.chunk_size
    mapping = pool.range.mapping(chunk)
    owner = vmm.describe(pool.device, address)
    return Translation(
        address=address,
        range_name=pool.range.name,
        base=pool.range.base,
        offset=offset,
        chunk=chunk,
        chunk_size=pool.range.chunk_size,
        handle=mapping.handle,
        handle_offset=offset - mapping.offset,
        access=owner.access,
        device=owner.device,
        system=kernel_mapping(address) if pool.device.backing == "memory" else None,
    )


def _stop(pool: KVPool, block: int, slot: int, layer: int, component: int, head: int) -> Stop:
    layout, blocks = pool.layout, pool.block_pool.rows.blocks
    address = pool.address(block=block, layer=layer, component=component, head=head, slot=slot)
    within = address - pool.range.base - layout.plane(layer) * layout.plane_stride(blocks)
    return Stop(
        component="latent" if layout.spec.components == 1 else ("K", "V")[component],
        layer=layer,
        head=head,
        plane=layout.plane(layer),
        row=within // layout.chunk,
        plane_stride=layout.plane_stride(blocks),
        block_stride=layout.block_stride,
        inner=within - block * layout.block_stride,
        translation=translate(pool, address),
    )


def _check_index(name: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise vmm.RangeError(f"{name} {index} is not there; the pool has {name}s 0 to {count - 1}")
