"""A rehearsal: the log's server replayed on the lengths given, as it was and with a remedy.

The replay is ``paged.replay``'s: continuous batching to the step by V1's rules, a pool committed at the start as vLLM
has it, and the roofline's time for each step. Its model of a step is an estimate; before is compared with after.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import vmm

from ..models import model as find_model
from ..replay import Run, run_policy
from ..replay.options import Options
from ..replay.processes import ReplayError
from ..replay.report import PolicyResult
from ..replay.setup import prepare
from ..serving.driver_costs import driver_costs
from ..serving.scheduler import SchedulerError
from ..serving.workload import Workload
from .serving_case import ServingCase

_POLICY = "paged-prealloc"
_ROOM = 64 << 20
"""Bytes that a GPU's memory may lose when it is rounded down to its granularity, and more."""


@dataclasses.dataclass(frozen=True)
class Rehearsed:
    """One replay's figures, or ``why_not`` there is none. Times are simulated seconds."""

    kv_bytes: int
    tokens_per_s: float = 0.0
    duration_s: float = 0.0
    running_mean: float = 0.0
    running_peak: int = 0
    preemptions: int = 0
    completed: int = 0
    rejected: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    never_used: int = 0
    why_not: str = ""


def rehearse(case: ServingCase, workload: Workload) -> Rehearsed:
    """Replay one case. What the server, or the replay, would refuse is told in ``why_not``."""
    try:
        return _figures(case, run_policy(_run(case, workload), _POLICY))
    except (ValueError, SchedulerError, ReplayError, vmm.VmmError, MemoryError) as error:
        return Rehearsed(case.kv_bytes, why_not=str(error) or type(error).__name__)


def without_longest(workload: Workload, share: float) -> Workload:
    """The requests but for that share of them whose prompt and output together are longest."""
    count = int(len(workload) * share)
    if not count:
        return workload
    keep = np.sort(np.argsort(workload.prompt + workload.output, kind="stable")[: len(workload) - count])
    return dataclasses.replace(
        workload,
        arrival_s=workload.arrival_s[keep],
        prompt=workload.prompt[keep],
        output=workload.output[keep],
        hash_ids=None,
        priority=workload.priority[keep] if workload.priority is not None else None,
    )


def _run(case: ServingCase, workload: Workload) -> Run:
    """The setup whose budget for KV is the case's, to the byte."""
    if case.kv_bytes <= 0:
        raise ValueError("does not start: nothing is left for the KV cache")
    options = Options(
        model=case.model,
        kv_cache_dtype=case.kv_dtype,
        policies=(_POLICY,),
        gpu_memory=1 << 50,
        gpu_memory_utilization=1.0,
        activation_memory=0,
        max_model_len=case.max_model_len,
        max_num_seqs=case.max_num_seqs,
        max_num_batched_tokens=case.max_num_batched_tokens,
        block_size=case.block_size,
        driver="host",
        backing="none",
        flops=case.flops,
        bandwidth=case.bandwidth,
        step_overhead=case.step_overhead,
    )
    options = dataclasses.replace(options, gpu_memory=_memory(case))
    setup = dataclasses.replace(prepare(options), budget=case.kv_bytes)
    roofline = dataclasses.replace(setup.roofline, weight_bytes=case.weight_bytes)
    longest = setup.limits.max_model_len * setup.model.token_bytes
    if setup.budget < longest:
        raise ValueError(
            f"does not start: one sequence of {setup.limits.max_model_len:,} tokens needs {vmm.format_size(longest)} "
            f"of KV cache, it has {vmm.format_size(setup.budget)}"
        )
    served = without_longest(workload, case.longest_share)
    return Run(dataclasses.replace(setup, roofline=roofline), (served,), driver_costs(options.driver_costs))


def _memory(case: ServingCase) -> int:
    """A GPU of which the case's KV cache, and a little, is left when the model's published weights are taken off."""
    return case.kv_bytes + find_model(case.model, case.kv_dtype).weight_bytes + _ROOM


def _figures(case: ServingCase, result: PolicyResult) -> Rehearsed:
    if not result.completed:
        return Rehearsed(case.kv_bytes, rejected=result.rejected, why_not="no request fits: every one was rejected")
    return Rehearsed(
        kv_bytes=case.kv_bytes,
        tokens_per_s=result.tokens_per_s,
        duration_s=result.duration_s,
        running_mean=result.running.mean,
        running_peak=int(result.running.peak),
        preemptions=result.preemptions,
        completed=result.completed,
        rejected=result.rejected,
        prefill_s=result.prefill_s,
        decode_s=result.decode_s,
        never_used=max(0, result.committed.peak - result.live.peak),
    )
