"""contiguous-vmm: one virtual span a sequence and no blocks. The driver does the paging, a chunk at a time."""

from __future__ import annotations

from vmm import Device, Shortage

from ..contiguous import ContiguousKV
from ..span import Span
from ..spec import KVSpec
from .policy import Policy, Usage


class ContiguousVmm(Policy):
    """Spans of ``max_model_len`` tokens for ``max_num_seqs`` sequences; their smallest step depends on ``order``."""

    def __init__(
        self,
        device: Device,
        budget: int,
        spec: KVSpec,
        *,
        max_model_len: int,
        max_num_seqs: int,
        order: str,
        chunk: int,
    ) -> None:
        self.budget = budget
        self.copied = 0
        self.kv = ContiguousKV(device, spec, max_model_len, max_num_seqs, order=order, chunk=chunk, budget=budget)
        self.spans: dict[int, Span] = {}

    def fits(self, tokens: int) -> bool:
        """Whether a span has so many tokens and the budget so many steps."""
        return tokens <= self.kv.max_length and self.kv.steps(tokens) <= self.budget // self.kv.step_bytes

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        """Whether a span is free and so many tokens have room in it."""
        if not self.kv.can_open(tokens):
            return False
        used = self.kv.committed - self.kv.retiring
        return not spare or used + self.kv.steps(tokens) * self.kv.step_bytes + spare <= self.budget

    def shortage(self, tokens: int, spare: int = 0) -> Shortage | None:
        """What the spans say; ``spare`` as if it were tokens of the same sequence."""
        if self.can_admit(tokens, spare):
            return None
        kept = -(-spare // self.kv.step_bytes) * self.kv.chunk // self.kv.unit
        return self.kv.shortage(tokens + kept)

    def admit(self, request: int, tokens: int, prompt: int) -> int:  # noqa: ARG002 - chunks come as they are filled
        """Open a span with ``tokens`` tokens."""
        span = self.spans[request] = self.kv.open()
        span.append(tokens)
        return span.room

    def can_grow(self, request: int, tokens: int) -> bool:
        """Whether the steps that are missing are to be had."""
        span = self.spans[request]
        return span.can_append(tokens - span.length)

    def grow(self, request: int, tokens: int) -> int:
        """Append up to ``tokens`` tokens."""
        span = self.spans[request]
        span.append(tokens - span.length)
        return span.room

    def finish(self, request: int) -> None:
        """Close the span: all of its chunks go back."""
        self.spans.pop(request).close()

    def settle(self) -> bool:
        """Chunks that no work uses any more are unmapped."""
        return bool(self.kv.retiring) and self.kv.collect(wait=True) > 0

    def usage(self) -> Usage:
        """All that is committed is held by spans, but for what retires."""
        held = self.kv.committed - self.kv.retiring
        return Usage(self.kv.reserved, self.kv.committed, held, retiring=self.kv.retiring)

    def close(self) -> None:
        """Unmap everything."""
        self.kv.close()
