"""PagedKV: where K and V of one layer lie, as the kernels need to know it. The arithmetic itself is paged_kv.cuh's."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import LaunchError
from .whole_numbers import ADDRESSES, MOST_HEADS, whole_number

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "e4m3": 1, "int8": 1}
NARROW = ("e4m3", "int8")
"""Types that are stored divided by a scale."""
LAYOUTS = ("hnd", "nhd", "vllm")
_STRIDE = (-(1 << 63), (1 << 63) - 1)
_BOUNDS = {
    "key": (0, ADDRESSES - 1),
    "value": (0, ADDRESSES - 1),
    "block_size": _STRIDE,
    "kv_heads": (1, MOST_HEADS),
    "head_dim": _STRIDE,
    "block_stride": _STRIDE,
    "head_stride": _STRIDE,
    "slot_stride": _STRIDE,
}
VECTOR_BYTES = 16
"""The widest load of one thread; K rows are read in pieces of this size."""


@dataclass(frozen=True)
class PagedKV:
    """Base addresses and strides of one layer's K and V in a pool of blocks.

    ``key`` and ``value`` are the addresses of K and V of block 0, ``dtype`` the type of their numbers by name
    ("float16", "e4m3"), ``kv_heads`` Hkv and ``head_dim`` D. Strides are in elements, from one block, KV head or slot
    to the next. Inside a block: "hnd" [Hkv, block_size, D], "nhd" [block_size, Hkv, D], and "vllm" K [Hkv, D/x,
    block_size, x] with V [Hkv, D, block_size], x = 16 bytes / element size (there ``slot_stride`` is K's own, x; V's is
    1). ``blocks`` is how many the pool has addresses for: where it is given, launches refuse ids beyond it that lie in
    NumPy arrays. Raises LaunchError for what no kernel can walk.
    """

    key: int
    value: int
    dtype: str
    layout: str
    block_size: int
    kv_heads: int
    head_dim: int
    block_stride: int
    head_stride: int
    slot_stride: int
    blocks: int | None = None

    @property
    def element_bytes(self) -> int:
        """Size of one element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def vector(self) -> int:
        """Elements in 16 bytes: x of the layout "vllm"."""
        return VECTOR_BYTES // self.element_bytes

    def __post_init__(self) -> None:
        """Check everything that can be checked without looking at memory."""
        if self.dtype not in tuple(ELEMENT_BYTES):
            raise LaunchError(f"dtype must be one of {', '.join(ELEMENT_BYTES)}, not {self.dtype!r}")
        if self.layout not in LAYOUTS:
            raise LaunchError(f"layout must be one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        for name, (least, most) in _BOUNDS.items():
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, most))
        if not 1 <= self.block_size <= 256:
            raise LaunchError(f"block_size must be 1 to 256 tokens, not {self.block_size}")
        if not (8 <= self.head_dim <= 256 and self.head_dim % 8 == 0):
            raise LaunchError(f"head_dim must be 8 to 256 in multiples of 8, not {self.head_dim}")
        if self.blocks is not None:
            object.__setattr__(self, "blocks", whole_number("blocks", self.blocks, 0, ADDRESSES))
        if self.layout == "vllm" and self.slot_stride != self.vector:
            raise LaunchError(f"slot_stride of vllm {self.dtype} must be {self.vector}, not {self.slot_stride}")
        self._check_alignment()

    def _check_alignment(self) -> None:
        for name in ("key", "value"):
            if getattr(self, name) % VECTOR_BYTES:
                raise LaunchError(
                    f"{name} must be a multiple of {VECTOR_BYTES} bytes, not {getattr(self, name):#x}; "
                    "kernels read K and V in pieces of that size"
                )
        for name in ("block_stride", "head_stride", "slot_stride"):
            stride = getattr(self, name)
            if stride % self.vector:
                raise LaunchError(
                    f"{name} must be a multiple of {self.vector} {self.dtype} elements "
                    f"({VECTOR_BYTES} bytes), not {stride}"
                )
