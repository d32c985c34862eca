"""What a plan can be told. Names and meanings are vLLM's where vLLM has the option."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from vmm import Size, parse_size

from ..layout import ORDERS
from .option_values import Reader, any_text, fraction, gibibytes, length, whole_number

GRANULARITY = 2 << 20
"""Bytes: what today's GPUs answer; a plan asks no device."""


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """Options of a plan. Raises ValueError for what cannot be meant.

    * ``model``: a preset, a Hugging Face name or the path of a config.json; ``gpu``: a name or a size.
    * ``max_model_len``: None is the model's own, -1 the longest that fits. ``max_num_seqs`` and
      ``max_num_batched_tokens``: None is what vLLM takes on such a GPU.
    * ``kv_cache_dtype`` and ``dtype``: "auto" is the model's own (float16 for a float32 model). ``quantization``: None
      is what the config.json says.
    * ``kv_cache_memory_bytes`` and ``num_gpu_blocks_override`` take the place of the computed pool, ``cpu_offload_gb``
      GiB of the weights lie in host memory.
    * ``allow_long``: VLLM_ALLOW_LONG_MAX_MODEL_LEN=1; ``count_graphs``: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1,
      vLLM's default since 0.21: CUDA graphs come out of the utilization; before, they came on top of it.
    * ``chunk`` and ``order``: how a growing pool lies on the driver's memory.
    """

    model: str = "llama-3-8b"
    gpu: str = "H100-80GB"
    gpu_memory_utilization: float = 0.90
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enforce_eager: bool = False
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    cpu_offload_gb: float = 0.0
    allow_long: bool = False
    count_graphs: bool = True
    chunk: Size = "2 MiB"
    order: str = "block"

    def __post_init__(self) -> None:
        if not 1 <= self.block_size <= 256:
            raise ValueError(f"--block-size must be 1 to 256 tokens, not {self.block_size}")
        if self.order not in ORDERS:
            raise ValueError(f"--order must be one of {', '.join(ORDERS)}, not {self.order!r}")
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            if not 1 <= getattr(self, name) <= 1024:
                raise ValueError(f"--{name.replace('_', '-')} must be 1 to 1024 GPUs, not {getattr(self, name)}")
        self.chunk_bytes()

    def chunk_bytes(self) -> int:
        """``chunk`` in bytes. Raises ValueError if it is no multiple of the granularity."""
        chunk = parse_size(self.chunk, name="--chunk")
        if chunk % GRANULARITY:
            raise ValueError(f"--chunk {self.chunk!r} is no multiple of the granularity, {GRANULARITY} bytes")
        return chunk


READERS: dict[str, Reader] = {
    "model": any_text,
    "gpu": any_text,
    "gpu_memory_utilization": fraction,
    "max_model_len": length,
    "max_num_seqs": whole_number,
    "max_num_batched_tokens": whole_number,
    "block_size": whole_number,
    "kv_cache_dtype": any_text,
    "dtype": any_text,
    "quantization": any_text,
    "tensor_parallel_size": whole_number,
    "pipeline_parallel_size": whole_number,
    "kv_cache_memory_bytes": whole_number,
    "num_gpu_blocks_override": whole_number,
    "cpu_offload_gb": gibibytes,
    "chunk": any_text,
    "order": any_text,
}
"""How the text of each option is read."""

FLAGS = ("enforce_eager", "allow_long", "count_graphs")
"""Fields that are true or false."""

NOT_VLLM = ("gpu", "chunk", "order", "allow_long", "count_graphs")
"""Fields that are no option of a vLLM command line."""


def read_options(given: Mapping[str, str | bool]) -> PlanOptions:
    """Options from their texts, by field name. Raises ValueError naming the option, the value and the remedy."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        values[name] = value if isinstance(value, bool) else READERS[name](option, value)
    return PlanOptions(**values)
