"""Memory: what one GPU of each pipeline stage spends, and what is left for KV."""

from __future__ import annotations

import dataclasses

from .activations import Activations, estimate_activations
from .architecture import Architecture, find_architecture
from .gpus import Gpu, find_gpu
from .graphs import Graphs, estimate_graphs
from .kv_cache import BlockUse
from .kv_pool import PoolSize
from .options import PlanOptions
from .parallel import Stage, check_tensor_parallel, pipeline_stages, split_group
from .quantization import Quantization, find_quantization
from .weights import stage_weights
from .workspace import estimate_workspace


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """One GPU of a stage: bytes of each part; ``pool`` is what is left."""

    stage: Stage
    weights: int
    activations: Activations
    workspace: int
    graphs: Graphs
    pool: PoolSize

    @property
    def fixed(self) -> int:
        """Bytes that are there before any sequence."""
        return self.weights + self.activations.peak + self.workspace + self.graphs.bytes


@dataclasses.dataclass(frozen=True)
class Setting:
    """Options with every default filled in: the model, the GPU, the bounds of a batch."""

    options: PlanOptions
    model: Architecture
    gpu: Gpu
    quantization: Quantization
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def tensor(self) -> int:
        """GPUs that share each layer."""
        return self.options.tensor_parallel_size

    @property
    def gpus(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor * self.options.pipeline_parallel_size

    @property
    def utilized(self) -> int:
        """Bytes of a GPU that may be used: int(memory * utilization), as vLLM counts."""
        return int(self.gpu.memory * self.options.gpu_memory_utilization)

    @property
    def pool_is_given(self) -> bool:
        """Whether an option says how large the KV pool is, whatever is left for it."""
        return (self.options.kv_cache_memory_bytes or self.options.num_gpu_blocks_override) is not None

    @property
    def asked_len(self) -> int:
        """Tokens that a sequence may have by --max-model-len; the model's positions where that is open."""
        asked = self.options.max_model_len
        return self.model.spec.max_positions if asked is None or asked < 0 else asked


def find_setting(options: PlanOptions) -> Setting:
    """Fill in the defaults. Raises ValueError for what is not known and for splits that are not even.

    vLLM bounds its own default of batched tokens by max_num_seqs * max_model_len, and that of sequences by the batched
    tokens (``_set_default_max_num_seqs_and_batched_tokens_args``); what is given is taken as it is.
    """
    gpu = find_gpu(options.gpu)
    model = find_architecture(options.model, options.dtype, options.kv_cache_dtype)
    check_tensor_parallel(model, options.tensor_parallel_size)
    seqs, tokens = options.max_num_seqs or gpu.max_num_seqs, options.max_num_batched_tokens
    longest = options.max_model_len if (options.max_model_len or -1) > 0 else model.spec.max_positions
    if tokens is None:
        tokens = min(seqs * (longest or 1), gpu.max_num_batched_tokens)
    if options.max_num_seqs is None:
        seqs = min(seqs, tokens)
    if tokens < seqs:
        raise ValueError(
            f"--max-num-batched-tokens {tokens} is less than --max-num-seqs {seqs}, which vLLM refuses: "
            "every running sequence gets a token in each step; raise the one or lower the other"
        )
    return Setting(options, model, gpu, find_quantization(options.quantization, model.config), seqs, tokens)


def stage_memories(setting: Setting) -> tuple[StageMemory, ...]:
    """What one GPU of each pipeline stage holds.

        KV pool = int(utilization * memory) - weights - activations - workspace - CUDA graphs

    Source: ``Worker.determine_available_memory`` of vllm/v1/worker/gpu_worker.py; the graphs are taken off since vLLM
    0.21 (``count_graphs``). --kv-cache-memory-bytes and --num-gpu-blocks-override take the pool's place.
    """
    stages = pipeline_stages(setting.model.spec.layers, setting.options.pipeline_parallel_size)
    return tuple(_stage_memory(setting, stage) for stage in stages)


def _stage_memory(setting: Setting, stage: Stage) -> StageMemory:
    options, model = setting.options, setting.model
    offloaded = int(options.cpu_offload_gb * (1 << 30))
    weights = max(0, stage_weights(model, stage, setting.tensor, setting.quantization).total - offloaded)
    batch = setting.max_num_seqs, setting.max_num_batched_tokens
    activations = estimate_activations(model, batch[1], batch[0], setting.tensor, samples=stage.ends)
    graphs = estimate_graphs(stage.layers, *batch, eager=options.enforce_eager)
    workspace = estimate_workspace(setting.gpus)
    groups = model.part(stage.first, stage.last).spec.groups
    uses = tuple(BlockUse(split_group(group, setting.tensor), options.block_size) for group in groups)
    left = setting.utilized - weights - activations.peak - workspace
    left -= graphs.bytes if options.count_graphs else 0
    return StageMemory(stage, weights, activations, workspace, graphs, PoolSize(_budget(options, left, uses), uses))


def _budget(options: PlanOptions, left: int, uses: tuple[BlockUse, ...]) -> int:
    if options.num_gpu_blocks_override is not None:
        if len(uses) > 1:
            raise ValueError(
                "--num-gpu-blocks-override counts blocks of one kind; this model keeps several, leave it out"
            )
        return options.num_gpu_blocks_override * uses[0].block_bytes
    return left if options.kv_cache_memory_bytes is None else options.kv_cache_memory_bytes
