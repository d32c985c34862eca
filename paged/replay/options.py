"""What a replay can be told. Names and meanings are vLLM's where vLLM has the option."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import SupportsIndex

from vmm import Size, parse_size

from ..policies import POLICIES, check_policy
from ..serving.host_space import PCIE_BANDWIDTH
from ..serving.roofline import H100_BANDWIDTH, H100_FLOPS, STEP_OVERHEAD_S
from ..serving.rules import Serving

DEFAULT_GPU_MEMORY = 80 << 30
"""Bytes of the GPU that the host driver stands for when none is named: an H100, as the roofline's constants."""

_ZERO = re.compile(r"\s*0+(?:\.0+)?\s*(?:[KMGT]i)?B?\s*", re.IGNORECASE)
_BOUNDS = (
    ("rate", 1e-6, 1e9),
    ("rate_scale", 1e-6, 1e6),
    ("flops", 1e6, 1e24),
    ("bandwidth", 1e3, 1e21),
    ("step_overhead", 0.0, 3600.0),
    ("pcie_bandwidth", 1e3, 1e21),
    ("reserve", 0.0, 1e6),
    ("compact", 1.0, 1e6),
)
"""Least and greatest values with which the clock of a replay still counts; far beyond any machine.

What is no positive number is refused where it is used.
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a replay; sizes are bytes or text such as "80 GiB". Raises ValueError for what cannot be meant.

    * ``policies``: names of policies, or "all".
    * ``model``: a preset, a Hugging Face name or the path of a config.json, or several of them, which share the GPU:
      its compute by turns, a step each on one clock, and its memory within one budget. paged-vmm lets memory flow to
      whoever needs it; under every other policy each has an equal part. ``kv_cache_dtype``: "auto" or a type.
    * ``gpu_memory``: None is 80 GiB on the host driver, and what is free on a real device. The KV budget is
      ``gpu_memory_utilization`` of it less the weights and ``activation_memory``.
    * ``max_model_len``: None is the model's own. ``max_num_seqs``, ``max_num_batched_tokens``: bounds of a batch.
    * ``block_size`` (tokens), ``chunk`` (None is the granularity), ``order`` ("block": a block or a token of a span is
      contiguous over all layers; "layer": a plane or span a layer), ``reserve``: empty rows that paged-vmm keeps
      mapped, as a fraction of the rows in use.
    * ``rate``: requests a second of a workload without arrival times; None is 5.53, the mean of azure_conv, for a trace
      and 30 for a workload that is made, where the budget then binds for some. ``rate_scale`` divides the gaps between
      arrivals, ``limit`` takes the first so many requests, ``seed`` is that of all that is drawn.
    * ``driver``: "cuda", "host" or None (the real one where there is one); ``backing``: the host driver's, "none" or
      "memory"; ``driver_costs``: a name or a file, see ``driver_costs``.
    * ``compact``: paged-vmm moves live blocks together before a step, when a sequence has ended and the rows in use
      have more than so many times the bytes of the blocks in them; at most ``compact_blocks`` a step. None: never.
    * ``prefix_cache``: the paged policies keep prompt blocks for prompts that begin alike; for traces with hash ids.
    * ``scheduling`` ("fcfs" or "priority"), ``watermark`` (the fraction of the budget kept free at an admission),
      ``preemption`` ("recompute", or "swap" to ``swap_space`` of host memory over ``pcie_bandwidth`` bytes a second).
    * ``charge_driver_time``: whether the driver's calls lengthen the steps that follow them. What a policy does before
      the first step does not count. By default they take no time, as if another thread had made them beforehand.
    * ``flops``, ``bandwidth`` (a second) and ``step_overhead`` (seconds): the roofline's constants.
    """

    model: str | tuple[str, ...] = "llama-3-8b"
    kv_cache_dtype: str = "auto"
    policies: tuple[str, ...] = POLICIES
    gpu_memory: Size | None = None
    gpu_memory_utilization: float = 0.90
    activation_memory: Size = "1 GiB"
    max_model_len: int | None = None
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    chunk: Size | None = None
    order: str = "block"
    reserve: float = 0.05
    compact: float | None = None
    compact_blocks: int = 8
    prefix_cache: bool = False
    scheduling: str = "fcfs"
    watermark: float = 0.0
    preemption: str = "recompute"
    swap_space: Size = "4 GiB"
    pcie_bandwidth: float = PCIE_BANDWIDTH
    charge_driver_time: bool = False
    rate: float | None = None
    rate_scale: float = 1.0
    limit: int | None = None
    seed: int = 0
    driver: str | None = None
    backing: str | None = None
    driver_costs: str = "vattention"
    flops: float = H100_FLOPS
    bandwidth: float = H100_BANDWIDTH
    step_overhead: float = STEP_OVERHEAD_S

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            names = tuple(self.model)
            object.__setattr__(self, "model", names[0] if len(names) == 1 else names)
        if not self.models:
            raise ValueError("no model is named; give a preset or the path of a config.json")
        if not (0 < self.gpu_memory_utilization <= 1):
            raise ValueError(f"GPU memory utilization must be above 0 and at most 1, not {self.gpu_memory_utilization}")
        if not (math.isfinite(self.reserve) and self.reserve >= 0):
            raise ValueError(f"reserve must be a fraction of 0 or more, not {self.reserve}")
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if value and 0 < value < math.inf and not least <= value <= most:
                raise ValueError(f"{name.replace('_', ' ')} must be {least:g} to {most:g}, not {value}")
        if self.compact is not None and not self.compact >= 1:
            raise ValueError(f"compact must be a ratio of 1 or more, not {self.compact}")
        if self.compact_blocks < 1:
            raise ValueError(f"compact_blocks must be at least 1, not {self.compact_blocks}")
        if self.seed < 0:
            raise ValueError(f"the seed must be 0 or more, not {self.seed}")
        _one_of("order", self.order, ("block", "layer"))
        _one_of("driver", self.driver, ("cuda", "host", None))
        _one_of("backing", self.backing, ("none", "memory", None))
        named = (self.policies,) if isinstance(self.policies, str) else tuple(dict.fromkeys(self.policies))
        object.__setattr__(self, "policies", POLICIES if "all" in named else named)
        if not self.policies:
            raise ValueError(f"no policy is named; give at least one of {', '.join(POLICIES)}")
        for name in self.policies:
            check_policy(name)

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names."""
        return (self.model,) if isinstance(self.model, str) else self.model

    def activation_bytes(self) -> int:
        """``activation_memory`` in bytes; 0 is allowed."""
        return _size_or_zero(self.activation_memory, "activation memory")

    def serving(self) -> Serving:
        """How sequences wait and are preempted. Raises ValueError for what cannot be meant."""
        space = _size_or_zero(self.swap_space, "swap space")
        return Serving(self.scheduling, self.preemption, space, self.pcie_bandwidth)

    def gpu_memory_bytes(self) -> int | None:
        """``gpu_memory`` in bytes, or None."""
        return None if self.gpu_memory is None else parse_size(self.gpu_memory, name="GPU memory")

    def chunk_bytes(self, granularity: int) -> int:
        """``chunk`` in bytes. Raises ValueError if it is no multiple of the granularity."""
        chunk = granularity if self.chunk is None else parse_size(self.chunk, name="chunk")
        if chunk % granularity:
            raise ValueError(f"chunk {self.chunk!r} is no multiple of the device's granularity, {granularity} bytes")
        return chunk


def _size_or_zero(value: Size, name: str) -> int:
    zero = _ZERO.fullmatch(value) if isinstance(value, str) else _is_zero(value)
    return 0 if zero else parse_size(value, name=name)


def _is_zero(value: SupportsIndex) -> bool:
    return not isinstance(value, bool) and value == 0


def _one_of(name: str, value: str | None, allowed: tuple[str | None, ...]) -> None:
    if value not in allowed:
        known = ", ".join(repr(choice) for choice in allowed if choice)
        raise ValueError(f"{name} must be one of {known}, not {value!r}")
