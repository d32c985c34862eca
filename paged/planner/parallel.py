"""How a model is split over GPUs: heads and inner sizes over tensor parallel ranks, layers over pipeline stages."""

from __future__ import annotations

import dataclasses

from ..spec import KVSpec
from .architecture import Architecture


@dataclasses.dataclass(frozen=True)
class Stage:
    """A pipeline stage: its layers (``first`` up to, not with, ``last``), and which ends of the model it has."""

    first: int
    last: int
    begins: bool
    ends: bool

    @property
    def layers(self) -> int:
        """Layers of the stage."""
        return self.last - self.first


def pipeline_stages(layers: int, size: int) -> tuple[Stage, ...]:
    """Cut ``layers`` into ``size`` stages: equal ones, and one more layer each from the last but one downward.

    Source: ``get_pp_indices`` of vllm/distributed/utils.py (the last stage, which has the output too, gets none of the
    rest). Raises ValueError for more stages than layers.
    """
    if size > layers:
        raise ValueError(f"--pipeline-parallel-size {size} is more than the model's {layers} layers; use at most that")
    counts = [layers // size] * size
    for stage in range(2, layers % size + 2):
        counts[-stage] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(size)]
    return tuple(
        Stage(end - count, end, begins=end == count, ends=end == layers)
        for count, end in zip(counts, ends, strict=True)
    )


def check_tensor_parallel(model: Architecture, size: int) -> None:
    """Raise ValueError unless heads and inner sizes can be split so.

    Query heads must divide; KV heads must divide, or be repeated evenly where there are fewer than GPUs (vLLM's
    ``verify_with_parallel_config`` and ``QKVParallelLinear``).
    """
    config = model.config
    _check_divides("query heads", config.query_heads, size)
    if not model.is_latent and config.kv_heads >= size:
        _check_divides("KV heads", config.kv_heads, size)
    elif not model.is_latent and size % config.kv_heads:
        raise ValueError(
            f"--tensor-parallel-size {size} is no multiple of the {config.kv_heads} KV heads, which are repeated over "
            f"the GPUs; use {config.kv_heads} or a multiple of it"
        )
    for key in ("intermediate_size", "moe_intermediate_size"):
        inner = config.optional(key)
        if inner:
            _check_divides(key, inner, size)


def _check_divides(what: str, count: int, size: int) -> None:
    if count % size:
        fits = ", ".join(str(n) for n in (1, 2, 4, 8, 16, 32) if count % n == 0)
        raise ValueError(f"--tensor-parallel-size {size} does not divide the {count} {what}; use one of {fits}")


def split_group(group: KVSpec, size: int) -> KVSpec:
    """What one of ``size`` GPUs keeps of a group of layers: its share of KV heads, at least one; a latent whole.

    Source: vLLM's ``get_num_kv_heads``: max(1, KV heads // size).
    """
    return dataclasses.replace(group, kv_heads=max(1, group.kv_heads // size))
