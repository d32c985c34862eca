"""static: every sequence gets a buffer for max_model_len tokens when it is admitted. No paging anywhere."""

from __future__ import annotations

from vmm import Device, Shortage, round_up

from ..shortage.buffers import buffer_shortage
from .buffer import Buffer
from .policy import Policy, Usage


class Static(Policy):
    """Buffers of ``max_model_len`` tokens of ``token_bytes`` each, within ``budget`` bytes."""

    def __init__(self, device: Device, budget: int, *, token_bytes: int, max_model_len: int) -> None:
        self.device = device
        self.budget = budget
        self.copied = 0
        self.room = max_model_len
        self.size = round_up(max_model_len * token_bytes, device.granularity)
        self.buffers: dict[int, Buffer] = {}

    def fits(self, tokens: int) -> bool:
        """Whether one buffer fits the budget."""
        return tokens <= self.room and self.size <= self.budget

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        """Whether the budget has one more buffer."""
        return tokens <= self.room and (len(self.buffers) + 1) * self.size + spare <= self.budget

    def shortage(self, tokens: int, spare: int = 0) -> Shortage | None:
        """Who has the buffers."""
        if self.can_admit(tokens, spare) or tokens > self.room:
            return None
        return buffer_shortage(self.size, self.budget, dict.fromkeys(self.buffers, self.size), 0, spare)

    def admit(self, request: int, tokens: int, prompt: int) -> int:  # noqa: ARG002 - the buffer holds any of them
        """Make the sequence's buffer."""
        self.buffers[request] = Buffer(self.device, self.size)
        return self.room

    def can_grow(self, request: int, tokens: int) -> bool:  # noqa: ARG002
        """Within its buffer a sequence always can."""
        return tokens <= self.room

    def grow(self, request: int, tokens: int) -> int:  # noqa: ARG002
        """There is nothing to do."""
        return self.room

    def finish(self, request: int) -> None:
        """Release the buffer."""
        self.buffers.pop(request).close()

    def usage(self) -> Usage:
        """All that is committed is held."""
        total = len(self.buffers) * self.size
        return Usage(total, total, total)

    def close(self) -> None:
        """Release every buffer."""
        for request in list(self.buffers):
            self.finish(request)
