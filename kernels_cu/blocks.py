"""Whole blocks as bytes: where they lie, and what may be copied to where in one launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .errors import LaunchError
from .whole_numbers import ADDRESSES, whole_number

VECTOR_BYTES = 16
_STRIDE = (-(1 << 63), (1 << 63) - 1)
_BOUNDS = {
    "address": (0, ADDRESSES - 1),
    "block_bytes": _STRIDE,
    "block_stride": _STRIDE,
    "planes": (-(1 << 31), (1 << 31) - 1),
    "plane_stride": _STRIDE,
}


@dataclass(frozen=True)
class Blocks:
    """Memory cut into blocks: a pool in either order, a part of one, or a pinned buffer of the host.

    Block b of plane p is the ``block_bytes`` bytes at address + p * plane_stride + b * block_stride. Everything is in
    bytes and a multiple of 16. ``blocks`` is how many there are: where it is given, launches refuse ids beyond it that
    lie in NumPy arrays. Raises LaunchError otherwise.
    """

    address: int
    block_bytes: int
    block_stride: int
    planes: int = 1
    plane_stride: int = 0
    blocks: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check everything that can be checked without looking at memory."""
        for name, (least, most) in _BOUNDS.items():
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, most))
        if self.blocks is not None:
            object.__setattr__(self, "blocks", whole_number("blocks", self.blocks, 0, ADDRESSES))
        for name in ("address", "block_bytes", "block_stride", "plane_stride"):
            if getattr(self, name) % VECTOR_BYTES:
                raise LaunchError(f"{name} must be a multiple of {VECTOR_BYTES} bytes, not {getattr(self, name)}")
        if self.block_bytes < VECTOR_BYTES or self.planes < 1:
            raise LaunchError(
                f"blocks must have at least {VECTOR_BYTES} bytes and one plane, "
                f"not {self.block_bytes} bytes and {self.planes} planes"
            )

    def at(self, plane: int, block: int) -> int:
        """The address of a block in a plane."""
        return self.address + plane * self.plane_stride + block * self.block_stride


def check_same_shape(*regions: Blocks) -> None:
    """Raise LaunchError unless blocks have as many bytes and planes in all of ``regions``."""
    shapes = {(region.block_bytes, region.planes) for region in regions}
    if len(shapes) > 1:
        wanted = " and ".join(f"{size} bytes in {planes} planes" for size, planes in sorted(shapes))
        raise LaunchError(f"blocks must have the same shape on both sides, not {wanted}")


def check_pairs(pairs: NDArray[np.int64]) -> None:
    """Raise LaunchError unless the pairs [n, 2] (source, destination) of one pool may be copied in any order.

    That is: no block is a destination twice, and none is both source and destination. A negative id skips its pair.
    """
    sources, destinations = pairs[(pairs >= 0).all(axis=1)].T
    blocks, counts = np.unique(destinations, return_counts=True)
    if (counts > 1).any():
        raise LaunchError(f"block {blocks[counts > 1][0]} is the destination of two pairs; keep one of them")
    both = np.intersect1d(sources, blocks)
    if both.size:
        raise LaunchError(
            f"block {both[0]} is a source and a destination, and pairs have no order; "
            "pass staging, or copy in two launches"
        )


def runs_of(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs [n, 2] joined into runs [m, 3]: first source, first destination, number of blocks.

    Blocks of a run are neighbours on both sides, so that a copy engine moves them in one call (cuMemcpyAsync, or
    cuMemcpy2DAsync where they lie apart). Pairs are taken in the order of their sources; negative ids are left out.
    """
    kept = pairs[(pairs >= 0).all(axis=1)]
    kept = kept[np.lexsort((kept[:, 1], kept[:, 0]))]
    first = np.ones(len(kept), bool)
    first[1:] = (np.diff(kept, axis=0) != 1).any(axis=1)
    counts = np.diff(np.append(np.flatnonzero(first), len(kept)))
    return np.column_stack([kept[first], counts])
