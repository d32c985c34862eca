"""Kernels in plain CUDA C for a paged KV cache: append, attention, and what moves blocks. One source, GPU and CPU.

Data flows  launch (checks, grid) -> checked_launch -> loader (source + constants -> kernel) -> Target -> the .cu.
``PagedKV`` and ``Blocks`` say where memory lies, ``plan_decode`` and ``plan_prefill`` who computes what, ``Scoring``
and ``Rotary`` how; ``Target`` is where kernels run. The ``reference`` modules are the NumPy meaning of each kernel, and
``conventions`` turns arrays of vLLM and FlashInfer into ours. This package takes addresses, arrays and ints, and
imports neither vmm nor paged.
"""

from __future__ import annotations

from . import conventions as conventions
from . import launch as launch
from . import net as net
from . import reference as reference
from . import reference_append as reference_append
from . import reference_attention as reference_attention
from . import reference_blocks as reference_blocks
from . import reference_merge as reference_merge
from .blocks import Blocks as Blocks
from .errors import CompileError as CompileError
from .errors import CompilerMissingError as CompilerMissingError
from .errors import KernelError as KernelError
from .errors import KernelFault as KernelFault
from .errors import LaunchError as LaunchError
from .host_run import HostRun as HostRun
from .memory_meter import MemoryMeter as MemoryMeter
from .paged_kv import PagedKV as PagedKV
from .plan import DecodePlan as DecodePlan
from .plan import plan_decode as plan_decode
from .plan_prefill import PrefillPlan as PrefillPlan
from .plan_prefill import plan_prefill as plan_prefill
from .race import RaceError as RaceError
from .rotary import Rotary as Rotary
from .scoring import Scoring as Scoring
from .target import HostTarget as HostTarget
from .target import Target as Target
