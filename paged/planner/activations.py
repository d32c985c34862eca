"""Activations: the peak of the profiling run with which vLLM finds out what is left for KV. An estimate."""

from __future__ import annotations

import dataclasses

from .architecture import Architecture

LOGIT_BYTES = 36
"""Bytes that sampling takes a logit besides the logit itself; see ``estimate_activations``."""


@dataclasses.dataclass(frozen=True)
class Activations:
    """Estimated bytes: of the layers' ``forward`` pass and of ``sampling`` (0 where no logits are computed)."""

    forward: int
    sampling: int

    @property
    def peak(self) -> int:
        """The greater of the two: sampling comes when the layers are done."""
        return max(self.forward, self.sampling)


def estimate_activations(model: Architecture, tokens: int, seqs: int, tensor: int, samples: bool) -> Activations:
    """The peak of one step of ``tokens`` tokens that samples for ``seqs`` sequences, on one of ``tensor`` GPUs.

        forward  = T * e * (2*h + max(attention, network))
        sampling = S * V * (e + 36) + (T + S) * h * e

    T tokens, S = min(seqs, T), h hidden size, e bytes of a number, V vocabulary. Forward is the tensors that live at
    once in one layer: hidden state and residual, and the wider of attention and network (below). Sampling keeps the
    hidden states, and for each logit of each sequence the logit as computed (e) and as float32 (4), the sorted values
    (4) and their indices (8), and what the sort itself works in (20: pairs of segment and index, keys, indices). The
    logits are gathered: every tensor parallel GPU holds all of them.

    Source: ``GPUModelRunner.profile_run`` and ``_dummy_sampler_run`` of vLLM (max_num_seqs sequences, top-k and top-p
    on). The 36 fits what logs of five models on an H100 report, 256 and 1024 sequences, to 1 to 3 %; a model with
    images has a peak of its own that is not in it.
    """
    size, hidden = model.element_bytes, model.hidden
    width = 2 * hidden + max(_attention(model, tensor), _network(model, tensor))
    sampled = min(seqs, tokens)
    logits = sampled * model.vocabulary * (size + LOGIT_BYTES) + (tokens + sampled) * hidden * size
    return Activations(tokens * size * width, logits if samples else 0)


def _attention(model: Architecture, tensor: int) -> int:
    """Numbers a token: q, k, v and the output before its projection, (2*H + 2*K) * D; a latent besides if there is."""
    config = model.config
    heads = config.query_heads // tensor
    if not model.is_latent:
        return (2 * heads + 2 * max(1, config.kv_heads // tensor)) * config.head_dim
    rotary, rest, value = (config.count(key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    return heads * (rotary + 2 * rest + 2 * value) + config.count("kv_lora_rank") + rotary


def _network(model: Architecture, tensor: int) -> int:
    """Numbers a token: gate, up and their product, 3*f.

    With k of several experts a token: the two buffers of a fused kernel, k * (max(2*f, h) + f), and the sum, h. Source:
    ``fused_experts`` of vLLM (intermediate_cache13 and intermediate_cache2).
    """
    config = model.config
    dense = 3 * (config.optional("intermediate_size") or 0) // tensor
    chosen = config.optional("num_experts_per_tok")
    if not chosen:
        return dense
    inner = (config.optional("moe_intermediate_size") or config.count("intermediate_size")) // tensor
    routed = chosen * (max(2 * inner, model.hidden) + inner) + model.hidden
    plain = dense if config.optional("first_k_dense_replace") else 0
    return max(routed, plain)
