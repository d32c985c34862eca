"""The loss of a batch and its gradient by every weight, by hand: each forward step has its backward step below it.

Shapes: B rows of T tokens, N = B * T, C = dim, H heads and K KV heads of D numbers, G = H / K. A gradient
has the name of what it belongs to with a d before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llama.checkpoint import Array, Config, Weights
from llama.model import EPSILON, turns

LAYER_WEIGHTS = ("attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3")


def loss_and_gradient(config: Config, weights: Weights, tokens: Array, shares: Array) -> tuple[float, Weights]:
    """The cross entropy in nats of tokens after those before them, and its gradient by every weight.

    ``tokens`` [B, T + 1]; ``shares`` [B, T] is how much each token but the first counts, 1 in all.
    """
    rows, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
    x, kept = _layers(config, weights, rows)
    normed, final = _norm(x, weights["final_norm"])
    logits = normed @ weights["embedding"].T
    logits -= logits.max(axis=-1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    right = np.arange(len(targets)), targets
    share = shares.reshape(-1, 1)
    loss = -float(np.log(probabilities[right]) @ share[:, 0])

    probabilities[right] -= 1
    dlogits = probabilities * share
    gradient: Weights = {name: np.zeros_like(weight) for name, weight in weights.items()}
    dnormed, gradient["embedding"][...] = _product_back(dlogits, weights["embedding"], normed)
    dx, gradient["final_norm"][...] = _norm_back(dnormed, weights["final_norm"], final)
    for layer in reversed(range(config.layers)):
        own = {name: weights[name][layer] for name in LAYER_WEIGHTS}
        dx, dweights = _layer_back(config, own, dx, kept[layer])
        for name, dweight in dweights.items():
            gradient[name][layer] = dweight
    one_hot = np.zeros((config.vocab, rows.size), x.dtype)
    one_hot[rows.reshape(-1), np.arange(rows.size)] = 1
    gradient["embedding"] += one_hot @ dx
    return loss, gradient


def logits_of(config: Config, weights: Weights, rows: Array) -> Array:
    """What the model says of the token after each: [B, T, vocab]."""
    x, _ = _layers(config, weights, rows)
    logits = _norm(x, weights["final_norm"])[0] @ weights["embedding"].T
    return logits.reshape(*rows.shape, -1)


def _layers(config: Config, weights: Weights, rows: Array) -> tuple[Array, list[Any]]:
    x, kept = weights["embedding"][rows.reshape(-1)], []
    for layer in range(config.layers):
        x, keep = _layer(config, {name: weights[name][layer] for name in LAYER_WEIGHTS}, x, rows.shape[1])
        kept.append(keep)
    return x, kept


def _layer(config: Config, own: Weights, x: Array, length: int) -> tuple[Array, Any]:
    normed, attention_norm = _norm(x, own["attention_norm"])
    heads, attention = _attention(config, length, *(normed @ own[name].T for name in ("wq", "wk", "wv")))
    middle = x + heads @ own["wo"].T
    second, ffn_norm = _norm(middle, own["ffn_norm"])
    gate, up = second @ own["w1"].T, second @ own["w3"].T
    sigmoid = 0.5 * (1 + np.tanh(0.5 * gate))
    hidden = gate * sigmoid * up
    kept = (normed, attention_norm, heads, attention, second, ffn_norm, gate, up, sigmoid, hidden)
    return middle + hidden @ own["w2"].T, kept


def _layer_back(config: Config, own: Weights, dx: Array, kept: Any) -> tuple[Array, Weights]:
    normed, attention_norm, heads, attention, second, ffn_norm, gate, up, sigmoid, hidden = kept
    dweights: Weights = {}
    dhidden, dweights["w2"] = _product_back(dx, own["w2"], hidden)
    dup = dhidden * gate * sigmoid
    dgate = dhidden * up * sigmoid * (1 + gate * (1 - sigmoid))
    dsecond, dweights["w1"] = _product_back(dgate, own["w1"], second)
    by_up, dweights["w3"] = _product_back(dup, own["w3"], second)
    dmiddle, dweights["ffn_norm"] = _norm_back(dsecond + by_up, own["ffn_norm"], ffn_norm)
    dmiddle += dx

    dheads, dweights["wo"] = _product_back(dmiddle, own["wo"], heads)
    dnormed = np.zeros_like(normed)
    for name, dprojected in zip(("wq", "wk", "wv"), _attention_back(config, dheads, attention), strict=True):
        by_name, dweights[name] = _product_back(dprojected, own[name], normed)
        dnormed += by_name
    dx, dweights["attention_norm"] = _norm_back(dnormed, own["attention_norm"], attention_norm)
    return dx + dmiddle, dweights


def _attention(config: Config, length: int, query: Array, key: Array, value: Array) -> tuple[Array, Any]:
    """Causal attention of projections [N, ...]: [N, C]. The query heads of a KV head stand one below the other."""
    rows, size, kv_heads = len(query) // length, config.head_dim, config.kv_heads
    turn = turns(length, size).astype(np.result_type(query, np.complex64))
    query = _turned(query.reshape(rows, length, -1, size), turn).reshape(rows, length, kv_heads, -1, size)
    key = _turned(key.reshape(rows, length, kv_heads, size), turn).transpose(0, 2, 1, 3)  # [B, K, T, D]
    value = value.reshape(rows, length, kv_heads, size).transpose(0, 2, 1, 3)
    query = query.transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, size)  # [B, K, G * T, D]
    scores = query @ key.swapaxes(-1, -2) * np.asarray(size**-0.5, query.dtype)
    masked = np.triu(np.full((length, length), -np.inf, scores.dtype), 1)
    scores = scores.reshape(rows, kv_heads, -1, length, length) + masked
    scores -= scores.max(axis=-1, keepdims=True)
    weight = np.exp(scores)
    weight /= weight.sum(axis=-1, keepdims=True)
    weight = weight.reshape(rows, kv_heads, -1, length)
    return _side_by_side(weight @ value, length), (query, key, value, weight, turn)


def _attention_back(config: Config, dheads: Array, kept: Any) -> tuple[Array, Array, Array]:
    query, key, value, weight, turn = kept
    length, size, kv_heads = len(turn), config.head_dim, config.kv_heads
    rows = len(dheads) // length
    dout = dheads.reshape(rows, length, kv_heads, -1, size).transpose(0, 2, 3, 1, 4).reshape(query.shape)
    dvalue = weight.swapaxes(-1, -2) @ dout
    dweight = dout @ value.swapaxes(-1, -2)
    dscores = weight * (dweight - (dweight * weight).sum(axis=-1, keepdims=True))
    dscores *= np.asarray(size**-0.5, query.dtype)
    dquery = _side_by_side(dscores @ key, length).reshape(rows, length, -1, size)
    dkey = (dscores.swapaxes(-1, -2) @ query).transpose(0, 2, 1, 3)
    back = turn.conj()  # a turn's gradient turns the other way
    flat = (rows * length, -1)
    dquery, dkey = _turned(dquery, back).reshape(flat), _turned(dkey, back).reshape(flat)
    return dquery, dkey, dvalue.transpose(0, 2, 1, 3).reshape(flat)


def _side_by_side(heads: Array, length: int) -> Array:
    """[B, K, G * T, D] as [N, C]."""
    rows, kv_heads, _, size = heads.shape
    return heads.reshape(rows, kv_heads, -1, length, size).transpose(0, 3, 1, 2, 4).reshape(rows * length, -1)


def _turned(x: Array, turn: Array) -> Array:
    """[B, T, heads, D] with each pair of numbers turned by its token's position."""
    x = np.ascontiguousarray(x)
    return (x.view(turn.dtype) * turn[:, None]).view(x.dtype)


def _norm(x: Array, weight: Array) -> tuple[Array, Any]:
    inverse = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    return x * inverse * weight, (x, inverse)


def _norm_back(dy: Array, weight: Array, kept: Any) -> tuple[Array, Array]:
    x, inverse = kept
    scaled = x * inverse
    dscaled = dy * weight
    dx = inverse * (dscaled - scaled * np.mean(dscaled * scaled, axis=-1, keepdims=True))
    return dx, (dy * scaled).sum(axis=0)


def _product_back(dy: Array, matrix: Array, x: Array) -> tuple[Array, Array]:
    """The gradients of y = x @ matrix.T by x and by the matrix."""
    return dy @ matrix, dy.T @ x
