"""CUDA graphs: which batch sizes are captured (exact), and what the captured graphs keep (a rough estimate)."""

from __future__ import annotations

import dataclasses

LAYER_BYTES = 150 << 10
"""Bytes a captured layer; see ``estimate_graphs``."""

_MOST = 512


@dataclasses.dataclass(frozen=True)
class Graphs:
    """Graphs captured ``piecewise`` (any batch) and ``full`` (decode only), and the estimated bytes of their pool."""

    piecewise: int
    full: int
    bytes: int


def capture_sizes(max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, ...]:
    """Batch sizes that vLLM captures: 1, 2, 4, every 8th below 256, every 16th from there, up to 2 * max_num_seqs.

    At most 512, and no more than a step may hold. Source: ``VllmConfig._set_cudagraph_sizes``.
    """
    most = min(2 * max_num_seqs, _MOST)
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, _MOST + 1, 16))
    return tuple(size for size in sizes if size <= min(most, max_num_batched_tokens))


def estimate_graphs(layers: int, max_num_seqs: int, max_num_batched_tokens: int, eager: bool = False) -> Graphs:
    """Graphs of a stage of ``layers`` layers: bytes = layers * (piecewise + full) * 150 KiB; none if ``eager``.

    Each size is captured piecewise, those up to max_num_seqs once more as a whole (vLLM's default, FULL_AND_PIECEWISE).
    The 150 KiB are the middle of what four logs say, which range from 37 to 393 KiB; in four others free memory even
    rose while graphs were captured. Take it as an order of magnitude.
    """
    if eager:
        return Graphs(0, 0, 0)
    sizes = capture_sizes(max_num_seqs, max_num_batched_tokens)
    full = sum(size <= max_num_seqs for size in sizes)
    return Graphs(len(sizes), full, layers * (len(sizes) + full) * LAYER_BYTES)
