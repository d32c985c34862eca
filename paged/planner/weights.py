"""Bytes of weights on one GPU."""

from __future__ import annotations

import dataclasses

from .architecture import Architecture
from .parallel import Stage
from .quantization import Quantization

_PADDING = 64
"""vLLM's ``DEFAULT_VOCAB_PADDING_SIZE``: rows of embedding and output come in multiples of it."""


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of one GPU: those of its ``layers`` and of its ``ends`` (embedding, output, last norm), in bytes."""

    layers: int
    ends: int

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.layers + self.ends


def stage_weights(model: Architecture, stage: Stage, tensor: int, quantization: Quantization) -> Weights:
    """Weights that one of ``tensor`` GPUs holds of a stage.

        layers = (P + R) / tensor * bytes a weight,  ends = ceil64(V) / tensor * h * bytes of the type

    P are the weights of the stage's layers (``count_parameters``), R what the GPUs hold of them more than once: K and
    V projections where there are fewer KV heads than GPUs, and the projections to the latents of latent attention.
    Norms and routers, whole on every GPU too, are counted as split: below 0.1 %. Embedding and output are held in rows
    (``VocabParallelEmbedding``); a tied output is the embedding, unless they lie in different stages.
    """
    part = model.part(stage.first, stage.last)
    weights = part.spec.parameters - model.ends + stage.layers * _repeated(model, tensor)
    rows = -(-model.vocabulary // _PADDING) * _PADDING
    tables = 1 if model.is_tied and stage.begins and stage.ends else stage.begins + stage.ends
    ends = tables * rows * model.hidden / tensor + (model.hidden if stage.ends else 0)
    return Weights(quantization.bytes_of(weights / tensor, model.element_bytes), round(ends * model.element_bytes))


def _repeated(model: Architecture, tensor: int) -> int:
    """Weights of one layer that ``tensor`` GPUs together hold beyond one copy of it."""
    config, hidden = model.config, model.hidden
    if not model.is_latent:
        return 2 * hidden * config.head_dim * (max(config.kv_heads, tensor) - config.kv_heads)
    latents = config.count("kv_lora_rank") + config.count("qk_rope_head_dim") + (config.optional("q_lora_rank") or 0)
    return hidden * latents * (tensor - 1)
