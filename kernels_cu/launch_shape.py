"""Whether a GPU would take the shape of a launch: its grid, its thread blocks, and their dynamic shared memory.

Figures of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", the same from sm_50 on.
"""

from __future__ import annotations

from .errors import LaunchError
from .kernel import Extent
from .shared_memory import most_shared_bytes

MOST_BLOCKS_X, MOST_BLOCKS = (1 << 31) - 1, 65_535
"""Of a grid: in x; in y and in z."""
MOST_THREADS, MOST_THREADS_Z = 1024, 64
"""Of a thread block: in x, in y and in all; in z."""


def check_shape(name: str, arch: str, grid: Extent, block: Extent, shared_bytes: int) -> None:
    """Raise LaunchError for a launch that a GPU refuses. A grid may have an extent of 0: it launches nothing.

    The CPU, "host", is held to the limits of sm_90.
    """
    _check_extents(name, "grid", grid, (MOST_BLOCKS_X, MOST_BLOCKS, MOST_BLOCKS), 0)
    _check_extents(name, "block", block, (MOST_THREADS, MOST_THREADS, MOST_THREADS_Z), 1)
    x, y, z = block
    if x * y * z > MOST_THREADS:
        raise LaunchError(f"{name}: block {block!r} has {x * y * z} threads; a GPU takes at most {MOST_THREADS}")
    if type(shared_bytes) is not int or shared_bytes < 0:
        raise LaunchError(f"{name}: shared_bytes must be an int of at least 0, not {shared_bytes!r}")
    if shared_bytes and shared_bytes > (most := most_shared_bytes(arch, 1)):
        raise LaunchError(
            f"{name}: shared_bytes is {shared_bytes}; {arch} has at most {most} for a thread block, "
            "so keep less of the data there at a time"
        )


def _check_extents(name: str, what: str, extents: Extent, most: Extent, fewest: int) -> None:
    if type(extents) is tuple and len(extents) == 3:
        x, y, z = extents
        if (
            type(x) is type(y) is type(z) is int
            and fewest <= x <= most[0]
            and fewest <= y <= most[1]
            and fewest <= z <= most[2]
        ):
            return
    raise LaunchError(
        f"{name}: {what} must be a tuple of three positive ints, (x, y, z), "
        f"at most {most[0]}, {most[1]} and {most[2]}, not {extents!r}"
    )
