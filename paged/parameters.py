"""How many weights a model has, counted from its architecture.

A decoder of the Llama family has, with h = hidden size, V = vocabulary, L layers, H query heads and K KV heads of
size D, and an inner size f:

    V*h (embedding) + V*h (output, unless tied) + h (last norm)
    + L * (norms*h + attention + network)
    attention = h*H*D + 2*h*K*D + H*D*h   (+ biases; + 2*D where q and k are normed)
    network   = 3*h*f                     (gate, up, down; + biases)

Multi-head latent attention (r = latent, p = rotary part, n = the rest of a query head, v = value head) has instead
    h*H*(n+p) + h*(r+p) + r + r*H*(n+v) + H*v*h; with a query latent q the first term is h*q + q + q*H*(n+p),
and a mixture of E experts has E networks of its own inner size, the shared ones, and a router of h*E.
Source of the terms: the architectures as published with the models; the sums are checked against published counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config

_QKV_BIAS = ("qwen2", "qwen2_moe")
_QK_NORM = ("qwen3", "qwen3_moe", "gemma3_text")
_FOUR_NORMS = ("gemma2", "gemma3_text")
_TIED = ("gemma", "gemma2", "gemma3_text")
_SCORE_BIAS = ("deepseek_v3",)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All weights of a model, and those that one token passes through."""

    total: int
    active: int


def count_parameters(config: Config) -> Parameters:
    """Count the weights of the architecture that a configuration describes (formula above)."""
    hidden, layers = config.count("hidden_size"), config.count("num_hidden_layers")
    tied = config.flag("tie_word_embeddings", config.model_type in _TIED)
    embedding = config.count("vocab_size") * hidden
    norms = 4 if config.model_type in _FOUR_NORMS else 2
    attention = _latent_attention(config) if config.has("kv_lora_rank") else _attention(config)
    ends = embedding * (1 if tied else 2) + hidden + layers * (norms * hidden + attention)
    networks, used = _networks(config, layers)
    return Parameters(ends + networks, ends + used)


def _attention(config: Config) -> int:
    """q, k, v and output projections of one layer, with their biases and norms."""
    hidden, head = config.count("hidden_size"), config.head_dim
    query, cached = config.query_heads * head, config.kv_heads * head
    total = hidden * (2 * query + 2 * cached)
    if config.flag("attention_bias", False):
        total += query + 2 * cached + hidden
    elif config.model_type in _QKV_BIAS:
        total += query + 2 * cached
    return total + (2 * head if config.model_type in _QK_NORM else 0)


def _latent_attention(config: Config) -> int:
    """One layer of multi-head latent attention."""
    hidden, heads = config.count("hidden_size"), config.query_heads
    latent, rotary = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
    rest, value = config.count("qk_nope_head_dim"), config.count("v_head_dim")
    query = heads * (rest + rotary)
    if config.has("q_lora_rank"):
        rank = config.count("q_lora_rank")
        first = hidden * rank + rank + rank * query
    else:
        first = hidden * query
    return first + hidden * (latent + rotary) + latent + latent * heads * (rest + value) + heads * value * hidden


def _networks(config: Config, layers: int) -> tuple[int, int]:
    """All feed-forward networks: (total, used by one token)."""
    experts = config.first_count("num_local_experts", "num_experts", "n_routed_experts")
    if not experts:
        dense = layers * _network(config, config.count("intermediate_size"))
        return dense, dense
    plain = config.optional("first_k_dense_replace") or 0
    dense = plain * _network(config, config.count("intermediate_size")) if plain else 0
    inner = config.optional("moe_intermediate_size") or config.count("intermediate_size")
    expert, mixed = _network(config, inner), layers - plain
    shared = _shared_experts(config, inner) + config.count("hidden_size") * experts
    shared += experts if config.model_type in _SCORE_BIAS else 0
    chosen = config.count("num_experts_per_tok")
    return dense + mixed * (shared + experts * expert), dense + mixed * (shared + chosen * expert)


def _shared_experts(config: Config, inner: int) -> int:
    """The experts that every token passes, and the gate that some models have on them."""
    wide = config.optional("shared_expert_intermediate_size")
    if wide:
        return _network(config, wide) + config.count("hidden_size")
    return _network(config, inner * (config.optional("n_shared_experts") or 0))


def _network(config: Config, inner: int) -> int:
    """Gate, up and down of one feed-forward network."""
    hidden = config.count("hidden_size")
    bias = 2 * inner + hidden if config.flag("mlp_bias", False) else 0
    return 3 * hidden * inner + bias
