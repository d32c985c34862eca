"""Limits: how much may run at once, by vLLM's names."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a batch, by vLLM's names, in tokens and sequences. Raises ValueError for what vLLM refuses too.

    ``watermark`` is the fraction of the budget that stays free when a sequence is admitted, so that those which run
    have room to grow.
    """

    max_model_len: int
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    watermark: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark must be 0 or more and below 1, not {self.watermark}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}): every running sequence gets a token in each step"
            )
