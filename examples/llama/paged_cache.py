"""K and V in Pagewalk's pool: blocks behind a block table, and Pagewalk's kernels for attention.

This file is all that a model needs of Pagewalk.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids

import numpy as np

import paged
import vmm

from .checkpoint import Array, Config
from .model import Attend


def kv_layout(config: Config, device: vmm.Device, block_size: int, order: str) -> paged.KVLayout:
    """Where K and V of a model's tokens lie in a pool."""
    spec = paged.KVSpec(config.layers, config.kv_heads, config.head_dim, "float32")
    return paged.KVLayout(spec, block_size, order, chunk=device.granularity)


class PagedCache:
    """Texts are sequences of ``pool``. With ``prefix_cache=True`` a prompt's beginning is found where it is known."""

    def __init__(self, pool: paged.KVPool) -> None:
        self.pool = pool

    def begin(self, prompt: Ids[int]) -> paged.Sequence:
        """A new sequence, with the blocks that an earlier prompt has filled with the same tokens."""
        return self.pool.sequence(list(prompt) if self.pool.prefix else None)

    def can_hold(self, lengths: Ids[int]) -> bool:
        """Whether there are blocks for sequences of so many tokens, were none of them shared."""
        size = self.pool.layout.block_size
        return sum(-(-length // size) for length in lengths) <= self.pool.blocks_total

    def append(self, texts: Ids[paged.Sequence], new: Ids[Ids[int]]) -> Attend:
        """Take blocks for the new tokens; a last block that is shared with a fork is copied now."""
        pool, counts = self.pool, [len(ids) for ids in new]
        slots = np.concatenate([text.append(ids) for text, ids in zip(texts, new, strict=True)])

        def attend(layer: int, query: Array, key: Array, value: Array) -> Array:
            paged.attention.append(pool, layer, key, value, slots)
            if max(counts) == 1:
                return paged.attention.decode(pool, layer, query, texts)
            return paged.attention.prefill(pool, layer, query, texts, counts)

        return attend
