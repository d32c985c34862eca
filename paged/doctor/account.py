"""Account: what the memory of one GPU was for, by part, and what of it was reserved and never used.

    requested = total x utilization
    KV cache  = requested - weights - activations (peak of a profiled step) - what PyTorch does not manage
                (and, since 0.21, - the estimate of the graph pools; before, graphs come on top of what was requested)

Source: vLLM's documentation on conserving memory and gpu_memory_utilization; worker/worker.py and
v1/worker/gpu_worker.py, determine_available_memory.
"""

from __future__ import annotations

import dataclasses

from .capacity import Capacity
from .server_model import ServerModel
from .server_run import ServerRun

PARTS = ("weights", "activations", "non_torch", "graphs", "kv")
USUAL_UTILIZATION = 0.90
"""vLLM's default of gpu_memory_utilization up to 0.18; 0.92 later."""


@dataclasses.dataclass(frozen=True)
class Account:
    """Bytes of one GPU, None where the log does not say; ``estimates`` names those that are worked out here.

    ``held`` is what the process holds from the end of its start on, whatever is asked of it; ``outside`` is what it
    never asked for; ``kv_unused`` the part of the KV cache that no line of the log had in use.
    """

    total: int | None
    utilization: float | None
    requested: int | None
    parts: dict[str, int]
    estimates: tuple[str, ...]
    held: int | None
    outside: int | None
    kv_unused: int | None


def account(run: ServerRun, cache: Capacity, model: ServerModel, gpu_memory: int | None = None) -> Account:
    """Put the figures of the log together; ``gpu_memory`` (bytes) stands in where the log has no total."""
    total = (
        _whole(run, "total") or next((failure.total for failure in run.failures if failure.total), None) or gpu_memory
    )
    utilization = _utilization(run)
    requested = _whole(run, "requested")
    assumed = requested is None and utilization is None
    if requested is None and total:
        requested = int(total * (utilization or USUAL_UTILIZATION))
    parts, estimates = _parts(run, cache, model, requested)
    peak = run.serving.peak_usage
    kv = parts.get("kv")
    known = {"weights", "kv"} <= set(parts)
    return Account(
        total=total,
        utilization=utilization,
        requested=requested,
        parts=parts,
        estimates=(*estimates, "requested") if assumed and requested else estimates,
        held=sum(max(0, size) for size in parts.values()) if known else None,
        outside=total - requested if total and requested else None,
        kv_unused=round(kv * (1 - (peak.usage or 0.0))) if kv and peak and peak.usage is not None else None,
    )


def _parts(
    run: ServerRun, cache: Capacity, model: ServerModel, requested: int | None
) -> tuple[dict[str, int], tuple[str, ...]]:
    parts = {name: size for name in PARTS if (size := _whole(run, name)) is not None}
    estimates = []
    if "kv" not in parts and cache.size is not None:
        parts["kv"] = cache.size
        estimates.append("kv")
    if "weights" not in parts and model.spec is not None:
        parts["weights"] = model.spec.weight_bytes // model.gpus
        estimates.append("weights")
    if "graphs" not in parts and (graphs := _whole(run, "graphs_estimated")) is not None:
        parts["graphs"] = graphs
        estimates.append("graphs")
    both = _whole(run, "weights_and_non_torch")
    if both is not None and "weights" in parts and "non_torch" not in parts:
        parts["non_torch"] = max(0, both - parts["weights"])
    if "activations" not in parts and requested and {"weights", "kv"} <= set(parts):
        rest = requested - sum(parts[name] for name in ("weights", "kv", "non_torch") if name in parts)
        if run.value("graphs_estimated") is not None:
            rest -= parts.get("graphs", 0)
        if rest >= 0:
            parts["activations"] = rest
            estimates.append("activations")
    return {name: parts[name] for name in PARTS if name in parts}, tuple(estimates)


def _utilization(run: ServerRun) -> float | None:
    found = run.value("utilization")
    if found is not None:
        return found
    try:
        named = float(run.options.get("gpu_memory_utilization", ""))
    except ValueError:
        return None
    return named if 0 < named <= 1 else None


def _whole(run: ServerRun, name: str) -> int | None:
    value = run.value(name)
    return None if value is None else int(value)
