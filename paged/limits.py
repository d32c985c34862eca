"""Limits: how much may run at once, by vLLM's names."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a batch, by vLLM's names, in tokens and sequences. Raises ValueError for what vLLM refuses too."""

    max_model_len: int
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1, not {getattr(self, field.name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}): every running sequence gets a token in each step"
            )
