"""KVLayout: where block b, layer l, K or V, head h and slot s lie. The single source of strides.

    address = base + plane(l) * plane_stride + block * block_stride + inner(l, K|V, h, s, d)

order="block": one plane, a block is contiguous over all layers; the pool grows by one chunk.
order="layer": a plane a layer, K and V of a block together; the pool grows by a chunk in every plane.

Inside a block, for one layer and one of K and V:
    hnd   [Hkv, block_size, D]           native: one head of one block is contiguous
    nhd   [block_size, Hkv, D]           FlashAttention, FlashInfer
    vllm  K [Hkv, D/x, block_size, x], V [Hkv, D, block_size], with x the elements of 16 bytes
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import SupportsIndex

from kernels_cu import Blocks, PagedKV
from vmm import RangeError

from .blocks.rows import Rows
from .spec import KVSpec

K, V = 0, 1
"""The components of a block: K (or the one latent), and V."""

ORDERS = ("block", "layer")
LAYOUTS = ("hnd", "nhd", "vllm")
_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Strides of one group of layers in blocks of ``block_size`` tokens, over chunks of ``chunk`` bytes.

    Raises ValueError for a block size outside 1 to 256, an unknown order or layout, or heads that "vllm" cannot split.

        >>> import paged
        >>> spec = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")
        >>> layout = paged.KVLayout(spec, block_size=16)
        >>> layout.block_bytes == 16 * spec.layers * 2 * spec.kv_heads * spec.head_dim * 2  # K and V, 2 bytes each
        True
        >>> layout.address(0, blocks=100, block=9, slot=5) == 9 * layout.block_stride + 5 * 64 * 2
        True
        >>> layout.component_shape()  # [Hkv, block_size, D]
        (2, 16, 64)
    """

    spec: KVSpec
    block_size: int = 16
    order: str = "block"
    layout: str = "hnd"
    chunk: int = 2 << 20

    def __post_init__(self) -> None:
        if not isinstance(self.spec, KVSpec):
            kind = type(self.spec).__name__
            raise ValueError(f"a layout takes one KVSpec, not {kind}; a model has them in model(...).groups")
        for name in ("block_size", "chunk"):
            if not isinstance(getattr(self, name), SupportsIndex) or isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be a whole number, not {getattr(self, name)!r}")
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        if not 1 <= self.block_size <= 256:
            raise ValueError(f"block_size must be 1 to 256 tokens, not {self.block_size}")
        if self.order not in ORDERS:
            raise ValueError(f"order {self.order!r} is unknown; use 'block' or 'layer'")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout {self.layout!r} is unknown; use 'hnd', 'nhd' or 'vllm'")
        if self.chunk < 1:
            raise ValueError(f"chunk must be at least 1 byte, not {self.chunk}")
        if self.layout == "vllm" and self.spec.head_dim % self.vector:
            raise ValueError(f"layout 'vllm' splits heads by {self.vector}; head_dim {self.spec.head_dim} cannot be")

    def blocks(self, base: int, blocks: int) -> Blocks:
        """Whole blocks over all layers, for the kernels that move them; ``blocks`` have addresses from ``base`` on."""
        return Blocks(base, self.block_stride, self.block_stride, self.planes, self.plane_stride(blocks), blocks)

    # -- sizes in bytes -----------------------------------------------------------------------------------------

    @property
    def planes(self) -> int:
        """Planes of the pool: 1, or one a layer."""
        return 1 if self.order == "block" else self.spec.layers

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self.block_size * self.spec.token_bytes

    @property
    def block_stride(self) -> int:
        """Bytes from one block to the next in a plane."""
        return self.block_bytes // self.planes

    @property
    def row_bytes(self) -> int:
        """Physical memory of one row, the smallest step of growth: a chunk in every plane."""
        return self.planes * self.chunk

    @property
    def vector(self) -> int:
        """Elements of 16 bytes: what the "vllm" layout calls x."""
        return _VECTOR_BYTES // self.spec.element_bytes

    def rows(self, blocks: int) -> Rows:
        """How ``blocks`` blocks lie in rows."""
        return Rows(blocks, self.block_stride, self.chunk)

    def plane_stride(self, blocks: int) -> int:
        """Bytes from one plane to the next for a pool of ``blocks``: a multiple of the chunk."""
        return self.rows(blocks).count * self.chunk

    def reserve_bytes(self, blocks: int) -> int:
        """Bytes of addresses that a pool of ``blocks`` spans."""
        return self.planes * self.plane_stride(blocks)

    def blocks_in(self, budget: int) -> int:
        """How many blocks the physical memory of ``budget`` bytes can hold, committed from row 0 on."""
        return budget // self.row_bytes * self.chunk // self.block_stride

    def chunks_of(self, row: int, blocks: int) -> range:
        """The chunks of a range that make up one row of a pool of ``blocks``: one in every plane."""
        rows = self.rows(blocks).count
        return range(row, self.planes * rows, rows)

    # -- addresses ----------------------------------------------------------------------------------------------

    def plane(self, layer: int) -> int:
        """The plane that a layer lies in. Raises RangeError for a layer that is not there."""
        layer = check_place("layer", layer, self.spec.layers)
        return 0 if self.order == "block" else layer

    def component_offset(self, layer: int, component: int) -> int:
        """Bytes from the start of a block (in its plane) to K or V of one layer."""
        before = layer * self.spec.components if self.order == "block" else 0
        return (before + component) * self.block_size * self.spec.component_token_bytes

    def inner(self, component: int, head: int, slot: int, d: int = 0) -> int:
        """Elements from the start of one layer's K or V to number ``d`` of a head of the token in ``slot``."""
        heads, head_dim, x = self.spec.kv_heads, self.spec.head_dim, self.vector
        if self.layout == "nhd":
            return (slot * heads + head) * head_dim + d
        if self.layout == "hnd":
            return (head * self.block_size + slot) * head_dim + d
        if component == K:
            return (head * (head_dim // x) + d // x) * self.block_size * x + slot * x + d % x
        return (head * head_dim + d) * self.block_size + slot

    def address(
        self,
        base: int,
        blocks: int,
        *,
        block: int,
        layer: int = 0,
        component: int = K,
        head: int = 0,
        slot: int = 0,
        d: int = 0,
    ) -> int:
        """The address of one number of K or V in a pool of ``blocks`` at ``base``.

        Raises RangeError for a block, layer, component, head, slot or d that is not there: its address would be some
        other token's.
        """
        spec = self.spec
        block = check_place("block", block, blocks)
        layer = check_place("layer", layer, spec.layers)
        component = check_place("component", component, spec.components)
        head = check_place("head", head, spec.kv_heads)
        slot = check_place("slot", slot, self.block_size)
        d = check_place("d", d, spec.head_dim)
        start = base + self.plane(layer) * self.plane_stride(blocks) + block * self.block_stride
        inner = self.inner(component, head, slot, d) * self.spec.element_bytes
        return start + self.component_offset(layer, component) + inner

    def component_shape(self, component: int = K) -> tuple[int, ...]:
        """The shape in memory of one layer's K or V of one block."""
        heads, head_dim, x = self.spec.kv_heads, self.spec.head_dim, self.vector
        if self.layout == "nhd":
            return (self.block_size, heads, head_dim)
        if self.layout == "hnd":
            return (heads, self.block_size, head_dim)
        return (heads, head_dim // x, self.block_size, x) if component == K else (heads, head_dim, self.block_size)

    def kv(self, base: int, blocks: int, layer: int) -> PagedKV:
        """What the kernels need to find K and V of one layer. Raises ValueError for a latent, which has no V."""
        if self.spec.components == 1:
            raise ValueError("attention over one latent component is not supported yet; K and V are needed")
        return _kv(self, base, blocks, check_place("layer", layer, self.spec.layers))


@lru_cache(maxsize=1024)
def _kv(layout: KVLayout, base: int, blocks: int, layer: int) -> PagedKV:
    """What ``KVLayout.kv`` returns: every launch of a layer asks for the same again."""
    spec = layout.spec
    head_stride, slot_stride = {
        "hnd": (spec.head_dim * layout.block_size, spec.head_dim),
        "nhd": (spec.head_dim, spec.kv_heads * spec.head_dim),
        "vllm": (spec.head_dim * layout.block_size, layout.vector),
    }[layout.layout]
    return PagedKV(
        key=layout.address(base, blocks, block=0, layer=layer, component=K),
        value=layout.address(base, blocks, block=0, layer=layer, component=V),
        dtype=spec.dtype,
        layout=layout.layout,
        block_size=layout.block_size,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        block_stride=layout.block_stride // spec.element_bytes,
        head_stride=head_stride,
        slot_stride=slot_stride,
        blocks=blocks,
    )


def check_place(name: str, value: SupportsIndex, count: int) -> int:
    """``value`` as Python's int. Raises RangeError unless it is one of ``count`` places; ``name`` says of what."""
    if type(value) is int and 0 <= value < count:  # most often; to ask for a protocol takes many times as long
        return value
    if not isinstance(value, SupportsIndex) or not 0 <= operator.index(value) < count:
        raise RangeError(f"{name} {value} is not there; the pool has {name} 0 to {count - 1}")
    return operator.index(value)
