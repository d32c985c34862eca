"""Kernels in plain CUDA C for a paged KV cache: append, attention, and what moves blocks. One source, GPU and CPU.

Data flows  launch (checks, grid) -> checked_launch -> loader (source + constants -> kernel) -> Target -> the .cu.
``PagedKV`` and ``Blocks`` say where memory lies, ``plan_decode`` and ``plan_prefill`` who computes what, ``Scoring``
and ``Rotary`` how; ``Target`` is where kernels run. The ``reference`` modules are the NumPy meaning of each kernel, and
``conventions`` turns arrays of vLLM and FlashInfer into ours. This package takes addresses, arrays and ints, and
imports neither vmm nor paged.
"""

from __future__ import annotations

from . import (
    conventions,
    launch,
    net,
    reference,
    reference_append,
    reference_attention,
    reference_blocks,
    reference_merge,
)
from .blocks import Blocks
from .errors import CompileError, CompilerMissingError, KernelError, KernelFault, LaunchError
from .host_run import HostRun
from .memory_meter import MemoryMeter
from .paged_kv import PagedKV
from .plan import DecodePlan, plan_decode
from .plan_prefill import PrefillPlan, plan_prefill
from .race import RaceError
from .rotary import Rotary
from .scoring import Scoring
from .target import HostTarget, Target

__all__ = [
    "Blocks",
    "CompileError",
    "CompilerMissingError",
    "DecodePlan",
    "HostRun",
    "HostTarget",
    "KernelError",
    "KernelFault",
    "LaunchError",
    "MemoryMeter",
    "PagedKV",
    "PrefillPlan",
    "RaceError",
    "Rotary",
    "Scoring",
    "Target",
    "conventions",
    "launch",
    "net",
    "plan_decode",
    "plan_prefill",
    "reference",
    "reference_append",
    "reference_attention",
    "reference_blocks",
    "reference_merge",
]
