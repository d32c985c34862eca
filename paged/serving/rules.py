"""Serving: how a scheduler treats those that wait and those that it preempts, by vLLM's names."""

from __future__ import annotations

import dataclasses
import math

from .host_space import PCIE_BANDWIDTH, HostSpace
from .waiting import SCHEDULING, Waiting, make_waiting

PREEMPTION = ("recompute", "swap")
"""What becomes of the tokens of a preempted sequence."""


@dataclasses.dataclass(frozen=True)
class Serving:
    """``scheduling``: who goes first; ``preemption``: "swap" copies to ``swap_space`` bytes of host memory, as far as
    there is room, over a bus of ``pcie_bandwidth`` bytes a second. Raises ValueError for what cannot be meant.
    """

    scheduling: str = "fcfs"
    preemption: str = "recompute"
    swap_space: int = 4 << 30
    pcie_bandwidth: float = PCIE_BANDWIDTH

    def __post_init__(self) -> None:
        for name, known in (("scheduling", SCHEDULING), ("preemption", PREEMPTION)):
            if getattr(self, name) not in known:
                allowed = ", ".join(map(repr, known))
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        if not (math.isfinite(self.pcie_bandwidth) and self.pcie_bandwidth > 0):
            raise ValueError(f"the PCIe bandwidth must be a number above 0, not {self.pcie_bandwidth}")

    def waiting(self) -> Waiting:
        """An empty queue."""
        return make_waiting(self.scheduling)

    def host_space(self, token_bytes: int) -> HostSpace | None:
        """The empty room for preempted sequences; None where they are computed again."""
        return HostSpace(self.swap_space, token_bytes) if self.preemption == "swap" else None
