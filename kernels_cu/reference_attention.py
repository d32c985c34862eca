"""What attention means with all its options, in NumPy with float64: decode and prefill are two uses of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Floats = NDArray[np.float64]


def attention(
    query: Values,
    key: Values,
    value: Values,
    *,
    causal: bool = True,
    scale: float | None = None,
    window: int | None = None,
    soft_cap: float | None = None,
    alibi: Values | None = None,
    sinks: Values | None = None,
) -> tuple[Floats, Floats]:
    """Attention of T query tokens over L tokens: out float64 [T, Hq, D] and LSE float64 [T, Hq] in base 2.

    ``query`` [T, Hq, D], ``key`` and ``value`` [L, Hkv, D]. The queries are the last T of the L tokens: query i stands
    at position L - T + i, and if ``causal`` it sees no token behind that. ``window``: it sees the last so many tokens
    up to its position. ``soft_cap`` c makes c tanh(x / c) of a score x; ``alibi`` [Hq] adds slope * (token - position);
    ``sinks`` [Hq] add exp(sink) to the denominator. A query that sees nothing has out 0 and LSE minus infinity.
    """
    scores = scores_of(query, key, scale, soft_cap)
    tokens, positions = np.arange(len(key)), len(key) - len(query) + np.arange(len(query))
    ahead = tokens[None, :] - positions[:, None]
    if alibi is not None:
        scores += alibi.astype(np.float64)[None, :, None] * ahead[:, None, :]
    hidden = (ahead > 0) & causal
    if window is not None:
        hidden |= ahead <= -window
    scores = np.where(hidden[:, None, :], -np.inf, scores)
    if sinks is not None:
        column = np.broadcast_to(sinks.astype(np.float64)[None, :, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, column], axis=2)
    weights, lse = softmax(scores)
    return np.einsum("thl,lhd->thd", weights[:, :, : len(key)], _for_each_head(value, query.shape[1])), lse


def scores_of(query: Values, key: Values, scale: float | None, soft_cap: float | None) -> Floats:
    """[T, Hq, L] scale * q . k, capped."""
    factor = 1 / math.sqrt(query.shape[2]) if scale is None else scale
    keys = _for_each_head(key, query.shape[1])
    scores: Floats = factor * np.einsum("thd,lhd->thl", query.astype(np.float64), keys)
    return scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)


def softmax(scores: Floats) -> tuple[Floats, Floats]:
    """Weights of the last axis, and log2 of the denominator; without a finite score 0 and minus infinity."""
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    base = np.where(np.isneginf(highest), 0, highest)
    powers = np.exp(scores - base)
    total = powers.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (base + np.log(total))[..., 0] / math.log(2)
    return powers / np.where(total > 0, total, 1), lse


def _for_each_head(rows: Values, query_heads: int) -> Floats:
    """K or V [L, Hkv, D] repeated for the query heads of each KV head."""
    return np.repeat(rows.astype(np.float64), query_heads // rows.shape[1], axis=1)
