"""What joining attention over parts means, in NumPy with float64. Every LSE is in base 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def merge(outs: NDArray[Any], lses: NDArray[Any], sinks: NDArray[Any] | None = None) -> tuple[Floats, Floats]:
    """Attention over all of n parts: ``outs`` [n, ..., D] and ``lses`` [n, ...] give out [..., D] and lse [...].

    A part whose LSE is minus infinity counts nothing, whatever its output holds. ``sinks`` [...], logits in base e,
    count in the denominator alone. Without anything at all, out is 0 and lse minus infinity.
    """
    lses = lses.astype(np.float64)
    scores = lses if sinks is None else np.concatenate([lses, sinks.astype(np.float64)[None] * np.log2(np.e)])
    highest = scores.max(axis=0)
    base = np.where(np.isneginf(highest), 0, highest)
    total = np.exp2(scores - base).sum(axis=0)
    counted = ~np.isneginf(lses)[..., None]
    weighted = np.exp2(lses - base)[..., None] * np.where(counted, outs.astype(np.float64), 0)
    with np.errstate(divide="ignore"):
        lse = base + np.log2(total)
    return weighted.sum(axis=0) / np.where(total > 0, total, 1)[..., None], lse
