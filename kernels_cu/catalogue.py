"""Every kernel of the package, and what a report compiles it for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .constants import Constants, constants_for
from .errors import LaunchError
from .launches.decode_build import WARPS, decode_build, decode_constants
from .launches.prefill import prefill_build, prefill_constants
from .paged_kv import NARROW

NO_OPTIONS: Constants = {"SOFT_CAP": 0, "ALIBI": 0, "SINKS": 0, "WINDOW": 0}


@dataclass(frozen=True)
class Built:
    """A kernel as it is launched: its constants, the threads of a block, and a block's dynamic shared memory."""

    constants: Constants
    threads: int
    shared_bytes: int = 0


Recipe = Callable[[str, int, str, str], Built]
"""From the cache's dtype, head_dim and layout and from arch; raises LaunchError where there is no such kernel."""


def _plain(threads: int, **constants: int | str) -> Recipe:
    def recipe(dtype: str, head_dim: int, layout: str, arch: str) -> Built:  # noqa: ARG001
        if dtype in NARROW:
            raise LaunchError(f"not made for a cache of {dtype}")
        return Built({**constants_for(dtype, head_dim, layout), **constants}, threads)

    return recipe


def _moving(source: str, **constants: int | str) -> Recipe:
    """Append and gather: between bfloat16 and a narrow cache, or within one type."""

    def recipe(dtype: str, head_dim: int, layout: str, arch: str) -> Built:  # noqa: ARG001
        other = "bfloat16" if dtype in NARROW else dtype
        return Built({**constants_for(dtype, head_dim, layout), source: other, **constants}, 256)

    return recipe


def _decode(**options: int) -> Recipe:
    def recipe(dtype: str, head_dim: int, layout: str, arch: str) -> Built:
        build = decode_build(dtype, head_dim, layout, arch)
        query = "bfloat16" if dtype in NARROW else dtype
        constants = decode_constants(dtype, query, head_dim, 8, build, {**NO_OPTIONS, **options})
        return Built(constants, 32 * WARPS, build.shared_bytes)

    return recipe


def _prefill(dtype: str, head_dim: int, layout: str, arch: str) -> Built:
    build = prefill_build(dtype, head_dim, layout, arch)
    query = "bfloat16" if dtype in NARROW else dtype
    return Built(
        prefill_constants(dtype, query, head_dim, 16, build, {**NO_OPTIONS, "CAUSAL": 1}), 32 * WARPS, build[1]
    )


KERNELS: Mapping[str, Recipe] = {
    "append_kv": _moving("SOURCE", ROTARY=0, WIDE=1),
    "gather_kv": _moving("OUTPUT"),
    "rotate_query": _moving("SOURCE", ROTARY=1, WIDE=1),
    "paged_attention_simple": _plain(32),
    "paged_decode": _decode(BLOCK_SIZE=16),
    "contiguous_decode": _decode(),
    "paged_prefill": _prefill,
    "decode_merge": _plain(128, HEADS=8),
    "merge_states": _plain(128),
    "copy_blocks": _plain(256, STAGE=0),
    "fill_blocks": _plain(256),
    "patch_table": _plain(128, ENTRY="int32"),
    "tlb_probe": _plain(1),
}


def built_for(kernel: str, dtype: str, head_dim: int, layout: str, arch: str) -> Built | None:
    """How ``kernel`` is built for such a cache on ``arch``; None if there is none for it."""
    try:
        return KERNELS[kernel](dtype, head_dim, layout, arch)
    except LaunchError:
        return None
