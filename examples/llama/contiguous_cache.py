"""K and V as one array a text, and attention written out: what paged attention must agree with.

It knows nothing of blocks, pools and kernels. Every text has room for the longest from the start, and a fork
copies all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Ids

import numpy as np

from .checkpoint import Array, Config
from .model import Attend


class ContiguousText:
    """One text: ``key`` and ``value`` [layers, seq_len, kv_heads, head_dim], of which ``length`` tokens are filled."""

    def __init__(self, key: Array, value: Array, length: int = 0) -> None:
        self.key, self.value, self.length = key, value, length

    def fork(self) -> ContiguousText:
        """A copy."""
        return ContiguousText(self.key.copy(), self.value.copy(), self.length)

    def free(self) -> None:
        """Let the arrays go."""
        del self.key, self.value


class ContiguousCache:
    """Texts of up to ``config.seq_len`` tokens, on the side of the array ``like``."""

    def __init__(self, config: Config, like: Array) -> None:
        self.like = like
        self.shape = (config.layers, config.seq_len, config.kv_heads, config.head_dim)

    def begin(self, _prompt: Ids[int]) -> ContiguousText:
        """A text without tokens: no prompt is known."""
        key, value = (np.empty_like(self.like, np.float32, shape=self.shape) for _ in "kv")
        return ContiguousText(key, value)

    def can_hold(self, _lengths: Ids[int]) -> bool:
        """Always: the memory is the process's."""
        return True

    def append(self, texts: Ids[ContiguousText], new: Ids[Ids[int]]) -> Attend:
        """Lengthen the texts."""
        places = []
        for text, ids in zip(texts, new, strict=True):
            places.append((text, text.length, text.length + len(ids)))
            text.length += len(ids)

        def attend(layer: int, query: Array, key: Array, value: Array) -> Array:
            out, row = np.empty_like(query), 0
            for text, start, stop in places:
                rows = slice(row, row + stop - start)
                text.key[layer, start:stop], text.value[layer, start:stop] = key[rows], value[rows]
                out[rows] = attention(query[rows], text.key[layer, :stop], text.value[layer, :stop])
                row = rows.stop
            return out

        return attend


def attention(query: Array, key: Array, value: Array) -> Array:
    """Causal attention of the last T of L tokens: ``query`` [T, heads, D], ``key`` and ``value`` [L, kv_heads, D]."""
    tokens, heads, size = query.shape
    length, kv_heads, _ = key.shape
    grouped = query.reshape(tokens, kv_heads, heads // kv_heads, size).transpose(1, 2, 0, 3)  # [kv_heads, group, T, D]
    scores = grouped @ key.transpose(1, 2, 0)[:, None] * np.float32(1 / math.sqrt(size))
    own = np.asarray(np.arange(length - tokens, length)[:, None], like=query)
    later = np.asarray(np.arange(length), like=query) > own
    scores = np.where(later, np.float32(-np.inf), scores)
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    out = weight @ value.transpose(1, 0, 2)[:, None]
    return out.transpose(2, 0, 1, 3).reshape(query.shape)
