"""Why throughput stopped growing with the batch: a step of decode against the roofline of the GPU.

    bytes a step      = weights + KV cache in use               (each is read once; of one GPU)
    bandwidth's share = bytes a step / (seconds a step x bandwidth)
    compute's share   = 2 x active parameters x sequences / (seconds a step x operations a second x GPUs)

Where neither fills the step, the rest of it is not the GPU's work but launches, scheduling and sampling. Estimates: the
log says nothing of the GPU, so that its rates are those of the options (by default an H100's). Source: Williams,
Waterman and Patterson, "Roofline" (CACM 52(4), 2009); ``paged.serving.roofline``.
"""

from __future__ import annotations

import dataclasses

from vmm import format_size

from .account import Account
from .capacity import Capacity
from .concurrency import Growth, Point
from .finding import Finding
from .server_model import ServerModel

FILLED = 0.5
"""From this share of the step on a resource is named: kernels reach some two thirds of the published rates."""

EMPTY = 0.3
"""Below this share of both the step is mostly something else."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of decode, seconds; shares of 1, None where the log or the model does not tell."""

    seconds: float
    read: int | None
    bandwidth_share: float | None
    compute_share: float | None

    @property
    def overhead_s(self) -> float | None:
        """Seconds that neither memory nor arithmetic explain; None if neither is known."""
        shares = [share for share in (self.bandwidth_share, self.compute_share) if share is not None]
        return max(0.0, self.seconds * (1 - max(shares))) if shares else None


def step_of(
    point: Point, account: Account, cache: Capacity, model: ServerModel, *, flops: float, bandwidth: float
) -> Step:
    """The step of decode at one batch size."""
    weights = account.parts.get("weights")
    read = None
    if weights is not None:
        read = weights + round((cache.size or 0) * point.usage)
    compute = None
    if model.spec is not None:
        work = 2 * model.spec.active_parameters * point.running
        compute = work / (point.step_s * flops * model.gpus)
    share = None if read is None else read / (point.step_s * bandwidth)
    return Step(point.step_s, read, share, compute)


def plateau(growth: Growth | None, step: Step | None, bandwidth: float) -> Finding | None:
    """The cause, if throughput stopped growing; "undecided" with the figures where they do not say enough."""
    if growth is None or step is None or not growth.stopped:
        return None
    small, large = growth.small, growth.large
    figures = [
        f"from {small.running:.0f} to {large.running:.0f} running, outputs went from {small.rate:,.0f} to "
        f"{large.rate:,.0f} tokens/s: batch to the power of {growth.exponent:.2f}",
        f"a step of decode took {step.seconds * 1e3:.1f} ms at {large.running:.0f} (estimate: running / rate), "
        f"{small.step_s * 1e3:.1f} ms at {small.running:.0f}",
    ]
    if step.read is not None and step.bandwidth_share is not None:
        figures.append(
            f"it read {format_size(step.read)} (weights, KV cache in use): {step.bandwidth_share:.0%} of "
            f"{bandwidth / 1e12:.2f} TB/s (estimate)"
        )
    if step.compute_share is not None:
        figures.append(f"its arithmetic was {step.compute_share:.0%} of the GPU's rate (estimate)")
    return Finding(_cause(step), "throughput", tuple(figures), estimate=True)


def _cause(step: Step) -> str:
    bandwidth, compute = step.bandwidth_share, step.compute_share
    if bandwidth is None:
        return "undecided"
    if max(bandwidth, compute or 0.0) >= FILLED:
        return "bandwidth" if bandwidth >= (compute or 0.0) else "compute"
    if max(bandwidth, compute or 0.0) <= EMPTY:
        return "launch and scheduling overhead"
    return "undecided"
