"""How long one step of the model takes: the roofline model of Williams, Waterman and Patterson (CACM 52(4), 2009).

    step time = max(2 x parameters x tokens / FLOP rate, (weights + KV read) / bandwidth) + overhead

Two operations (multiply, add) a parameter and token is the usual count for a forward pass (Kaplan et al. 2020,
"Scaling Laws for Neural Language Models", section 2.1); the operations of attention itself are left out. Every step
reads the weights once, and the KV of every token that the scheduled sequences attend to.
"""

from __future__ import annotations

import dataclasses
import math

H100_FLOPS = 989e12
"""Dense bfloat16 operations a second of one H100 SXM (NVIDIA H100 data sheet: 1,979 TFLOPS with sparsity, half of it
without)."""

H100_BANDWIDTH = 3.35e12
"""Bytes a second of one H100 SXM's memory (NVIDIA H100 data sheet)."""

STEP_OVERHEAD_S = 0.5e-3
"""Time a step that does not depend on its size: scheduling, launches, sampling. An assumption, not a measurement."""

COMPUTE, BANDWIDTH, OVERHEAD = range(3)
"""Which term of a step is the greatest."""


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The constants of the formula above: counts, bytes, operations and bytes a second, seconds."""

    parameters: int
    weight_bytes: int
    token_bytes: int
    flops: float = H100_FLOPS
    bandwidth: float = H100_BANDWIDTH
    overhead_s: float = STEP_OVERHEAD_S

    def __post_init__(self) -> None:
        """Raise ValueError for a rate that is not above 0 or an overhead that is negative."""
        for name, value in (("FLOP rate", self.flops), ("bandwidth", self.bandwidth)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"the {name} must be a number above 0, not {value}")
        if not (math.isfinite(self.overhead_s) and self.overhead_s >= 0):
            raise ValueError(f"the step overhead must be 0 s or more, not {self.overhead_s}")

    def step(self, tokens: int, kv_tokens: int, copied: int = 0) -> tuple[float, int]:
        """Seconds that a step takes, and its greatest term: COMPUTE, BANDWIDTH or OVERHEAD.

        ``tokens`` are computed in the step, ``kv_tokens`` is the sum of the lengths that they attend to, and ``copied``
        are bytes that the allocator moves before the step, each read and written once.
        """
        compute = 2 * self.parameters * tokens / self.flops
        memory = (self.weight_bytes + kv_tokens * self.token_bytes) / self.bandwidth
        copy = 2 * copied / self.bandwidth
        time = (compute if compute > memory else memory) + copy + self.overhead_s
        if self.overhead_s > compute and self.overhead_s > memory + copy:
            return time, OVERHEAD
        return time, COMPUTE if compute > memory + copy else BANDWIDTH
