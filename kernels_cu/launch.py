"""One function a kernel: check what the caller passes, choose the grid, launch.

Each family has a file of its own in ``launches``; this is the list of them.

What all take: ``target`` is where the kernel runs, a ``vmm.Device`` or a ``HostTarget``; arrays are NumPy's where it is
the CPU and CuPy's on a GPU; ``stream`` is a handle, 0 the default stream, in whose order it runs. Shapes are in
brackets: B sequences, T or N tokens, Hq and Hkv heads of queries and of the cache, D the head's size. ``out``, ``lse``
and the like are written, nothing is returned.
"""

from __future__ import annotations

from .launches.append import append_kv, gather_kv, rotate_query
from .launches.attention_simple import paged_attention_simple
from .launches.blocks import copy_blocks, fill_blocks, swap_blocks
from .launches.decode import contiguous_decode, paged_decode
from .launches.decode_build import decode_build
from .launches.merge import decode_merge, merge_states
from .launches.prefill import paged_prefill
from .launches.probe import probe_patches, tlb_probe
from .launches.swap import swap_runs
from .launches.table import patch_table

__all__ = [
    "append_kv",
    "contiguous_decode",
    "copy_blocks",
    "decode_build",
    "decode_merge",
    "fill_blocks",
    "gather_kv",
    "merge_states",
    "paged_attention_simple",
    "paged_decode",
    "paged_prefill",
    "patch_table",
    "probe_patches",
    "rotate_query",
    "swap_blocks",
    "swap_runs",
    "tlb_probe",
]
