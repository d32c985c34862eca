"""HostSpace: pinned host memory to which preempted sequences are copied, as a count. Integers only.

A sequence is copied whole, its tokens and no more, and takes as much room until it is copied back.
"""

from __future__ import annotations

PCIE_BANDWIDTH = 64e9
"""Bytes a second of PCIe 5.0 x16 in one direction (NVIDIA H100 data sheet: 128 GB/s in both)."""


class HostSpace:
    """Room for ``budget`` bytes of tokens of ``token_bytes`` each, by request.

    ``copied_out`` and ``copied_in`` are bytes so far, ``peak`` is the most that was used at a time.
    """

    def __init__(self, budget: int, token_bytes: int) -> None:
        self.budget, self.token_bytes = budget, token_bytes
        self.used = self.peak = self.copied_out = self.copied_in = 0
        self._held: dict[int, int] = {}

    def __contains__(self, request: int) -> bool:
        return request in self._held

    @property
    def copied(self) -> int:
        """Bytes that went over the bus, out and back."""
        return self.copied_out + self.copied_in

    def can_hold(self, tokens: int) -> bool:
        """Whether so many more tokens have room."""
        return self.used + tokens * self.token_bytes <= self.budget

    def put(self, request: int, tokens: int) -> None:
        """Copy a sequence of ``tokens`` out; ``can_hold`` has said that it has room."""
        size = self._held[request] = tokens * self.token_bytes
        self.used += size
        assert self.used <= self.budget, f"{self.used} bytes swapped out, room for {self.budget}"
        self.peak = max(self.peak, self.used)
        self.copied_out += size

    def take(self, request: int) -> None:
        """Copy a sequence back: its room is free again."""
        size = self._held.pop(request)
        self.used -= size
        self.copied_in += size
