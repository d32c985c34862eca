"""One function a kernel: check what the caller passes, choose the grid, launch.

Each family has a file of its own in ``launches``; this is the list of them.
"""

from __future__ import annotations

from .launches.append import append_kv as append_kv
from .launches.append import gather_kv as gather_kv
from .launches.append import rotate_query as rotate_query
from .launches.attention_simple import paged_attention_simple as paged_attention_simple
from .launches.blocks import copy_blocks as copy_blocks
from .launches.blocks import fill_blocks as fill_blocks
from .launches.blocks import swap_blocks as swap_blocks
from .launches.decode import contiguous_decode as contiguous_decode
from .launches.decode import paged_decode as paged_decode
from .launches.decode_build import decode_build as decode_build
from .launches.merge import decode_merge as decode_merge
from .launches.merge import merge_states as merge_states
from .launches.prefill import paged_prefill as paged_prefill
from .launches.probe import probe_patches as probe_patches
from .launches.probe import tlb_probe as tlb_probe
from .launches.swap import swap_runs as swap_runs
from .launches.table import patch_table as patch_table
