"""Binding: which limit keeps a server from starting, or from running more, and what would lift it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from vmm import format_size

from .memory import Setting, StageMemory, find_setting, stage_memories
from .options import PlanOptions
from .sequences import KV, SEQS, Concurrency

WEIGHTS, UTILIZATION, ACTIVATIONS, MEMORY = "weights", "utilization", "activations", "GPU memory"
POSITIONS, LENGTH = "the positions of the model", "max_model_len"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The ``limit`` that binds, why, and a ``remedy``, "" where none was found.

    ``starts``: whether the server has memory for one sequence of the longest length that is planned with.
    """

    starts: bool
    limit: str
    why: str
    remedy: str


def starting_verdict(setting: Setting, memory: StageMemory, longest: int) -> Verdict | None:
    """Why the server cannot start, None if it can.

    The pool must hold one sequence of ``longest`` tokens (vLLM's ``check_enough_kv_cache_memory``), and everything
    together must not be more than the GPU has: a pool or graphs beyond the utilization may be.
    """
    if _starts(setting, memory, longest):
        return None
    limit, why = _lacking(setting, memory, longest)
    return Verdict(False, limit, why, _first_that_starts(setting, longest))


def _starts(setting: Setting, memory: StageMemory, longest: int) -> bool:
    return memory.pool.holds(longest) > 0 and memory.fixed + memory.pool.budget <= setting.gpu.memory


def _lacking(setting: Setting, memory: StageMemory, longest: int) -> tuple[str, str]:
    gpu, given = setting.gpu.memory, setting.utilized
    weights, fixed, kv = memory.weights, memory.fixed, memory.pool.sequence_bytes(longest)
    share = f"{format_size(given)} that utilization {setting.options.gpu_memory_utilization:g} gives"
    if weights > gpu:
        return WEIGHTS, f"the weights alone take {format_size(weights)} of a GPU with {format_size(gpu)}"
    if memory.pool.holds(longest):
        total = format_size(fixed + memory.pool.budget)
        return MEMORY, f"the KV pool and the rest take {total} of a GPU with {format_size(gpu)}"
    if weights > given:
        return UTILIZATION, f"the weights take {format_size(weights)}, more than the {share}"
    if memory.pool.holds(1) or setting.pool_is_given:
        held = memory.pool.longest(longest)
        return KV, f"the KV pool holds one sequence of {held:,} tokens, not of {longest:,} ({format_size(kv)})"
    if fixed + kv <= gpu and memory.pool.budget < 0:
        return (
            UTILIZATION,
            f"weights, activations, workspace and graphs take {format_size(fixed)}, more than the {share}",
        )
    parts = {ACTIVATIONS: memory.activations.peak, "workspace": memory.workspace, "CUDA graphs": memory.graphs.bytes}
    widest = max(parts, key=parts.__getitem__)
    left = format_size(max(0, memory.pool.budget))
    return widest, f"weights take {format_size(weights)}, {widest} {format_size(parts[widest])}; {left} are left for KV"


def _first_that_starts(setting: Setting, longest: int) -> str:
    """The first change, cheapest first, with which a plan of the same server starts. Tried, not guessed."""
    for words, changes in _changes(setting.options, setting):
        try:
            tried = find_setting(dataclasses.replace(setting.options, **changes))
            if all(_starts(tried, memory, longest) for memory in stage_memories(tried)):
                return f"{words} would start"
        except ValueError:  # a split that is not even
            continue
    held = min(memory.pool.longest(longest - 1) for memory in stage_memories(setting))
    return f"--max-model-len {held} would start" if held and held < longest - 1 else ""


def _changes(options: PlanOptions, setting: Setting) -> Iterator[tuple[str, dict[str, Any]]]:
    for utilization in (0.92, 0.95):
        if utilization > options.gpu_memory_utilization:
            yield f"--gpu-memory-utilization {utilization}", {"gpu_memory_utilization": utilization}
    for seqs in (256, 64):
        if seqs < setting.max_num_seqs:
            yield f"--max-num-seqs {seqs}", {"max_num_seqs": seqs}
    if options.kv_cache_dtype == "auto":
        yield "--kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}
    for gpus in (2, 4, 8, 16):
        if gpus > options.tensor_parallel_size:
            yield f"--tensor-parallel-size {gpus}", {"tensor_parallel_size": gpus}


def running_verdict(setting: Setting, row: Concurrency) -> Verdict:
    """Which limit keeps a server that has started from running more sequences of such a length."""
    if row.limit != KV:
        given = setting.max_num_seqs if row.limit == SEQS else setting.max_num_batched_tokens
        why = f"the KV pool holds {row.held:,} sequences of {row.tokens:,.0f} tokens, {row.limit} lets {given:,} run"
        option = f"--{row.limit.replace('_', '-')}"
        return Verdict(True, row.limit, why, f"{option} {row.held} would use the pool; activations grow with it")
    held = f"the KV pool holds {row.held:,} sequences of {row.tokens:,.0f} tokens"
    why = f"{held}; {SEQS} {setting.max_num_seqs:,} is not met"
    return Verdict(True, KV, why, _more_held(setting))


def _more_held(setting: Setting) -> str:
    if setting.options.kv_cache_dtype != "auto":
        return ""
    before, after = (_pool_tokens(stage_memories(tried)) for tried in (setting, _with_fp8(setting)))
    return f"--kv-cache-dtype fp8 would hold {after / before:.1f} times as many" if before and after > before else ""


def _with_fp8(setting: Setting) -> Setting:
    return find_setting(dataclasses.replace(setting.options, kv_cache_dtype="fp8"))


def _pool_tokens(memories: Sequence[StageMemory]) -> float:
    return min(memory.pool.budget / memory.pool.token_bytes for memory in memories)
