"""paged: the application's layer. Tokens lie in KV blocks, a block table says which, a pool commits memory for them.

Data flows  model -> KVSpec -> KVLayout (strides) -> BlockPool (ids) -> KVPool (ids on a GrowableRange) -> Sequence ->
block table -> attention. ContiguousKV is the other way: one span of addresses a sequence, and no block table.
"""

from . import attention as attention
from . import span_attention as span_attention
from .batch import Batch
from .block_pool import BlockPool, Choice
from .block_table import batch_lengths, batch_tables, locate, slots_of
from .contiguous import ContiguousKV, Span
from .device_tables import DeviceTables
from .layout import KVLayout
from .model_pool import ModelPool
from .model_sequence import ModelSequence
from .models import from_config, model
from .pool import KVPool
from .presets import PRESETS
from .replay import replay
from .replay.report import Report
from .rows import Rows
from .sequence import Sequence
from .shortage import Shortage
from .spec import KVSpec, ModelSpec
from .swap import Swapped, SwapSpace
from .trace_reader import read_trace
from .workload import Workload

__all__ = [
    "PRESETS",
    "Batch",
    "BlockPool",
    "Choice",
    "ContiguousKV",
    "DeviceTables",
    "KVLayout",
    "KVPool",
    "KVSpec",
    "ModelPool",
    "ModelSequence",
    "ModelSpec",
    "Report",
    "Rows",
    "Sequence",
    "Shortage",
    "Span",
    "SwapSpace",
    "Swapped",
    "Workload",
    "attention",
    "batch_lengths",
    "batch_tables",
    "from_config",
    "locate",
    "model",
    "read_trace",
    "replay",
    "slots_of",
    "span_attention",
]
