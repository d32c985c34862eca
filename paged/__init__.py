"""paged: the application's layer. Tokens lie in KV blocks, a block table says which, a pool commits memory for them.

Data flows  model -> KVSpec -> KVLayout (strides) -> BlockPool (ids) -> KVPool (ids on a GrowableRange) -> Sequence ->
block table -> attention. ContiguousKV is the other way: one span of addresses a sequence, and no block table.
"""

from vmm import Shortage

from . import attention as attention
from . import interop as interop
from . import picture as picture
from .attached_kv import AttachedKV
from .attention import attached_attention as attached_attention
from .attention import span_attention as span_attention
from .blocks.block_pool import BlockPool, Choice
from .blocks.rows import Rows
from .contiguous import ContiguousKV
from .handoff import Handoff
from .layout import KVLayout
from .model_pool import ModelPool
from .model_sequence import ModelSequence
from .models import from_config, model
from .pool import KVPool
from .presets import PRESETS
from .replay import replay
from .replay.report import Report
from .sequence import Sequence
from .serving.trace_reader import read_trace
from .serving.workload import Workload
from .span import Span
from .spec import KVSpec, ModelSpec
from .swap import Swapped, SwapSpace
from .tables.batch import Batch
from .tables.block_table import batch_lengths, batch_tables, locate, slots_of
from .tables.device_tables import DeviceTables

__all__ = [
    "PRESETS",
    "AttachedKV",
    "Batch",
    "BlockPool",
    "Choice",
    "ContiguousKV",
    "DeviceTables",
    "Handoff",
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
    "attached_attention",
    "attention",
    "batch_lengths",
    "batch_tables",
    "from_config",
    "interop",
    "locate",
    "model",
    "picture",
    "read_trace",
    "replay",
    "slots_of",
    "span_attention",
]
