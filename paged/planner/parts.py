"""Parts: a GPU's memory by what it is spent on, in bytes that add up to the whole."""

from __future__ import annotations

import dataclasses

from .memory import Setting, StageMemory


@dataclasses.dataclass(frozen=True)
class Part:
    """``bytes`` of one GPU, whether they are an ``estimate``, and the formula that they come from."""

    name: str
    bytes: int
    estimate: bool
    formula: str


def parts_of(setting: Setting, memory: StageMemory) -> tuple[Part, ...]:
    """Weights, activations, workspace, CUDA graphs, KV pool, and what stays free (below 0 where it is overspent)."""
    spent = memory.fixed + max(0, memory.pool.budget)
    loose = spent > setting.utilized or setting.pool_is_given  # else the pool takes what the estimates leave
    return (
        Part("weights", memory.weights, False, _weights(setting, memory)),
        Part("activations", memory.activations.peak, True, _activations(setting, memory)),
        Part("workspace", memory.workspace, True, "context, libraries, NCCL: as vLLM logs non-torch memory on an H100"),
        Part("CUDA graphs", memory.graphs.bytes, True, _graphs(setting, memory)),
        Part("KV pool", max(0, memory.pool.budget), not setting.pool_is_given, _pool(setting, memory)),
        Part("left free", setting.gpu.memory - spent, loose, f"{setting.gpu.memory:,} less the above"),
    )


def _weights(setting: Setting, memory: StageMemory) -> str:
    method = setting.quantization
    bits = "" if method.bits is None else f", {method.name} at {method.bits:.3g} bits in the layers"
    split = f", 1/{setting.tensor} of {memory.stage.layers} layers" if setting.gpus > 1 else ""
    return f"{setting.model.spec.parameters:,} weights in {setting.model.dtype}{bits}{split}"


def _activations(setting: Setting, memory: StageMemory) -> str:
    tokens, found = setting.max_num_batched_tokens, memory.activations
    if found.sampling > found.forward:
        seqs, vocabulary = min(setting.max_num_seqs, tokens), setting.model.vocabulary
        logit = setting.model.element_bytes + 36
        return f"sampling: {seqs:,} sequences x {vocabulary:,} logits x {logit} bytes + {tokens:,} hidden states"
    return f"forward: {tokens:,} tokens x (2 h + the widest layer) x {setting.model.element_bytes} bytes"


def _graphs(setting: Setting, memory: StageMemory) -> str:
    found = memory.graphs
    if not found.piecewise:
        return "none: --enforce-eager"
    where = "" if setting.options.count_graphs else "; on top of the utilization"
    return f"rough: {memory.stage.layers} layers x ({found.piecewise} + {found.full} graphs) x 150 KiB{where}"


def _pool(setting: Setting, memory: StageMemory) -> str:
    pool, options = memory.pool, setting.options
    if options.num_gpu_blocks_override is not None:
        return f"--num-gpu-blocks-override {options.num_gpu_blocks_override:,}"
    if options.kv_cache_memory_bytes is not None:
        return "--kv-cache-memory-bytes"
    less = "" if options.count_graphs else " but the graphs"
    rest = f"{options.gpu_memory_utilization:g} x {setting.gpu.memory:,} less the above{less}"
    if pool.blocks is None:
        return rest
    return f"{rest}: {pool.blocks:,} blocks of {options.block_size} = {pool.tokens or 0:,} tokens"
