"""grow-copy: every sequence has one buffer that doubles when it is full. Its tokens are copied into the new one."""

from __future__ import annotations

from vmm import Device, Shortage, round_up

from ..shortage.buffers import buffer_shortage
from .buffer import Buffer
from .policy import Policy, Usage


class GrowCopy(Policy):
    """A buffer a sequence, first as large as its prompt, then twice as large each time it is full.

    No buffer is larger than ``max_model_len`` tokens need. While the copy runs both buffers exist: the old one retires,
    and is released when the work of that step is done.
    """

    def __init__(self, device: Device, budget: int, *, token_bytes: int, max_model_len: int) -> None:
        self.device = device
        self.budget = budget
        self.copied = 0
        self.token_bytes = token_bytes
        self.max_model_len = max_model_len
        self.buffers: dict[int, Buffer] = {}
        self.retiring: list[Buffer] = []
        self.held = self.leaving = 0

    def _size(self, tokens: int) -> int:
        """Bytes of a buffer for ``tokens`` tokens."""
        return round_up(tokens * self.token_bytes, self.device.granularity)

    def _doubled(self, size: int) -> int:
        return min(2 * size, self._size(self.max_model_len))

    def fits(self, tokens: int) -> bool:
        """Whether the last doubling on any way to ``tokens`` fits, with both buffers."""
        last = self._size(tokens)
        return tokens <= self.max_model_len and last + self._doubled(last) <= self.budget

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        """Whether the budget has room for a buffer of that size."""
        return self.held + self.leaving + self._size(tokens) + spare <= self.budget

    def shortage(self, tokens: int, spare: int = 0) -> Shortage | None:
        """Who has the buffers."""
        if self.can_admit(tokens, spare):
            return None
        sizes = {request: buffer.size for request, buffer in self.buffers.items()}
        return buffer_shortage(self._size(tokens), self.budget, sizes, self.leaving, spare)

    def admit(self, request: int, tokens: int, prompt: int) -> int:  # noqa: ARG002 - the prompt's length is known
        """Make a buffer for the whole prompt."""
        return self._give(request, self._size(prompt))

    def can_grow(self, request: int, tokens: int) -> bool:  # noqa: ARG002 - one more than its room
        """Whether the budget has room for a buffer of twice the size while the old one is still there."""
        return self.held + self.leaving + self._doubled(self.buffers[request].size) <= self.budget

    def grow(self, request: int, tokens: int) -> int:
        """Move the sequence to a buffer of twice the size and copy what it holds: all tokens but the new one."""
        old = self.buffers[request]
        room = self._give(request, self._doubled(old.size))
        self.held -= old.size
        self.leaving += old.size
        self.retiring.append(old)
        self._copy(old, self.buffers[request], (tokens - 1) * self.token_bytes)
        return room

    def _give(self, request: int, size: int) -> int:
        self.buffers[request] = Buffer(self.device, size)
        self.held += size
        return min(size // self.token_bytes, self.max_model_len)

    def _copy(self, old: Buffer, new: Buffer, size: int) -> None:
        with self.device.current():
            self.device.driver.copy_async(new.addresses.base, old.addresses.base, size)
        self.copied += size

    def finish(self, request: int) -> None:
        """Release the sequence's buffer."""
        buffer = self.buffers.pop(request)
        self.held -= buffer.size
        buffer.close()

    def settle(self) -> bool:
        """The copies are done: release the old buffers."""
        if not self.retiring:
            return False
        self.device.synchronize()
        while self.retiring:
            buffer = self.retiring.pop()
            self.leaving -= buffer.size
            buffer.close()
        return True

    def usage(self) -> Usage:
        """Buffers in use are held, those that were outgrown retire."""
        total = self.held + self.leaving
        return Usage(total, total, self.held, retiring=self.leaving)

    def close(self) -> None:
        """Release every buffer."""
        self.settle()
        for request in list(self.buffers):
            self.finish(request)
