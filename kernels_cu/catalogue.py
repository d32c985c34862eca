"""Every kernel of the package, and what a report compiles it for."""

from __future__ import annotations

from collections.abc import Mapping

from .constants import Constants

KERNELS: Mapping[str, Constants] = {
    "append_kv": {},
    "paged_attention_simple": {},
    "decode_merge": {"HEADS": 8},
    "merge_states": {},
    "copy_blocks": {"STAGE": 0},
    "fill_blocks": {},
    "patch_table": {"ENTRY": "int32"},
    "tlb_probe": {},
}
"""Name and usual constants of each kernel, beside those that say what the cache looks like."""


def built_for(kernel: str, cache: Constants) -> Constants | None:
    """The constants of ``kernel`` for a cache with those of ``cache`` (constants_for); None if it does not walk such."""
    return {**KERNELS[kernel], **cache}
