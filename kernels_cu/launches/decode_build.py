"""What the decode kernels are compiled for: how many tiles are on their way, and how many thread blocks fit."""

from __future__ import annotations

from dataclasses import dataclass

from ..constants import Constants
from ..errors import LaunchError
from ..paged_kv import ELEMENT_BYTES
from ..shared_memory import most_shared_bytes

TILE = 16
WARPS = 4
HEAD_DIMS = (64, 128, 256)
MOST_STAGES = 6
"""More tiles on their way than this gain nothing: the memory is busy."""


@dataclass(frozen=True)
class DecodeBuild:
    """The shape of a decode kernel: tiles in each warp's ring, thread blocks a multiprocessor, shared memory of one."""

    stages: int
    thread_blocks: int
    shared_bytes: int


def decode_build(dtype: str, head_dim: int, layout: str, arch: str) -> DecodeBuild:
    """Two thread blocks a multiprocessor where they fit, with as many tiles in their rings as fit, 2 to 6.

    ``dtype``, ``head_dim`` and ``layout`` are the cache's, ``arch`` what is compiled for ("sm_90"). Raises LaunchError
    for a cache that the kernels do not walk.
    """
    check_walkable(dtype, head_dim, layout)
    turn = WARPS * 2 * TILE * head_dim * ELEMENT_BYTES[dtype]  # a tile of each warp
    joint = 4 * WARPS * 8 * (head_dim + 4 + 2)
    for thread_blocks in (2, 1) if head_dim < 256 else (1,):
        stages = min(MOST_STAGES, (most_shared_bytes(arch, thread_blocks) - joint) // turn)
        if stages >= 2:
            return DecodeBuild(stages, thread_blocks, stages * turn + joint)
    raise LaunchError(
        f"{arch} has {most_shared_bytes(arch, 1)} bytes of shared memory for a thread block, head_dim {head_dim} of "
        f"{dtype} needs {2 * turn + joint}; use paged_attention_simple"
    )


def check_walkable(dtype: str, head_dim: int, layout: str) -> None:
    """Raise LaunchError unless the kernels on tensor cores walk such a cache."""
    if wrong := misfit(dtype, head_dim, layout):
        needed, found = wrong
        raise LaunchError(f"the kernels on tensor cores take {needed}, not {found}; use paged_attention_simple")


def misfit(dtype: str, head_dim: int, layout: str) -> tuple[str, str] | None:
    """What the kernels on tensor cores need of a cache, and what such a one is of instead; None if they walk it."""
    if dtype == "float32":
        return "float16 or bfloat16", dtype
    if head_dim not in HEAD_DIMS:
        return "head_dim 64, 128 or 256", f"head_dim {head_dim}"
    return ("layout hnd or nhd", f"layout {layout}") if layout == "vllm" else None


def decode_constants(
    dtype: str, query: str, head_dim: int, heads: int, build: DecodeBuild, options: Constants
) -> Constants:
    """The -D constants of a decode kernel."""
    return {
        "ELEMENT": dtype,
        "QUERY": query,
        "HEAD_DIM": head_dim,
        "LAYOUT_VLLM": 0,
        "HEADS": heads,
        "STAGES": build.stages,
        "MIN_BLOCKS": build.thread_blocks,
        **options,
    }
