"""The Llama 2 architecture: everything but attention over the cache, which the caller brings.

The same code runs on NumPy and, because CuPy answers NumPy's functions for its own arrays, on a GPU.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .checkpoint import Array, Config, Weights

EPSILON = np.float32(1e-5)
BASE = 10000.0
_OVERFLOW = "the model's numbers overflow float32: its weights are those of no trained model"


class Attend(Protocol):
    """Keeps K and V of N new tokens of one layer and attends over all that their sequences have.

    ``query`` [N, heads, head_dim]; ``key`` and ``value`` [N, kv_heads, head_dim]; the result is of the query's shape.
    """

    def __call__(self, layer: int, query: Array, key: Array, value: Array, /) -> Array: ...


class Llama:
    """A model whose weights lie where the array ``like`` does."""

    def __init__(self, config: Config, weights: Weights, like: Array) -> None:
        self.config = config
        moved = {name: np.asarray(weight, like=like) for name, weight in weights.items()}
        self.embedding = moved["embedding"]
        self.classifier = moved.get("classifier", self.embedding)
        self.attention_norm, self.ffn_norm, self.final_norm = (
            moved[name] for name in ("attention_norm", "ffn_norm", "final_norm")
        )
        self.wqkv = np.concatenate([moved["wq"], moved["wk"], moved["wv"]], axis=1)  # one product instead of three
        self.w13 = np.concatenate([moved["w1"], moved["w3"]], axis=1)
        self.wo, self.w2 = moved["wo"], moved["w2"]
        self.turns = np.asarray(turns(config.seq_len, config.head_dim), like=like)

    def forward(self, tokens: Array, positions: Array, last: Array, attend: Attend) -> Array:
        """Logits, float32 [B, vocab], of the token after each of the rows ``last`` [B] of ``tokens`` int64 [N].

        ``positions`` [N] is where in its sequence each token stands. Raises ValueError where a number overflows.
        """
        try:
            with np.errstate(over="raise", invalid="raise"):
                logits = self._forward(tokens, positions, last, attend)
        except FloatingPointError:
            raise ValueError(_OVERFLOW) from None
        if not np.isfinite(logits).all():  # inside a kernel, or on a GPU, nobody is told
            raise ValueError(_OVERFLOW)
        return logits

    def _forward(self, tokens: Array, positions: Array, last: Array, attend: Attend) -> Array:
        size, heads = self.config.head_dim, self.config.heads
        turn = self.turns[positions][:, None]
        x = self.embedding[tokens]
        for layer in range(self.config.layers):
            projected = norm(x, self.attention_norm[layer]) @ self.wqkv[layer].T
            projected = projected.reshape(len(tokens), -1, size)  # the heads of queries, of keys, and of values
            turned = (projected[:, : -self.config.kv_heads].view(np.complex64) * turn).view(np.float32)
            out = attend(layer, turned[:, :heads], turned[:, heads:], projected[:, -self.config.kv_heads :])
            x = x + out.reshape(len(tokens), -1) @ self.wo[layer].T
            gate, up = np.split(norm(x, self.ffn_norm[layer]) @ self.w13[layer].T, 2, axis=1)
            x = x + (silu(gate) * up) @ self.w2[layer].T
        return norm(x[last], self.final_norm) @ self.classifier.T


def norm(x: Array, weight: Array) -> Array:
    """Root mean square norm (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def silu(x: Array) -> Array:
    """X times its sigmoid, which is written with tanh so that no x is too large for exp."""
    return x * (0.5 * (1 + np.tanh(0.5 * x)))


def turns(positions: int, head_dim: int) -> Array:
    """Rotary position embedding (arXiv 2104.09864) as complex64 [positions, head_dim / 2].

    Numbers 2 i and 2 i + 1 of a head are a complex number, and position p turns it by p / 10000^(2 i / head_dim).
    """
    angles = np.arange(positions)[:, None] * BASE ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.exp(1j * angles).astype(np.complex64)
