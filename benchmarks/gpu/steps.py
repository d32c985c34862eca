"""The steps in the order in which they run, and the share of the time that each may have used up when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from . import about, allocators, copy_speed, costs, decode, kernels, libraries, programs, rivals


@dataclass(frozen=True)
class Step:
    """A module with ``names()`` and ``run(name, bench)``; ``weight`` is its share of the time, an item has a limit."""

    module: ModuleType
    weight: int
    item_timeout_s: int
    about: str


STEPS: dict[str, Step] = {
    "device": Step(about, 1, 60, "name, sizes, versions"),
    "copy": Step(copy_speed, 2, 40, "copy bandwidth on memory of our own range"),
    "programs": Step(programs, 42, programs.TIMEOUT_S + 15, "examples, demo, settle, conformance and device tests"),
    "decode": Step(decode, 32, 40, "decode: every case checked and timed"),
    "kernels": Step(
        kernels, 11, 40, "attention as paged calls it, contiguous decode, moves, prefill, address translation"
    ),
    "costs": Step(costs, 2, 40, "driver calls, and the costs for a replay"),
    "allocators": Step(allocators, 3, 60, "Heap against CuPy's memory pool"),
    "rivals": Step(rivals, 10, 40, "torch and FlashInfer on the same shapes"),
    "libraries": Step(libraries, 10, programs.TIMEOUT_S + 15, "CuPy, PyTorch and others on memory of ours"),
}


def deadlines(chosen: list[str], seconds: float) -> dict[str, float]:
    """Seconds after the start at which each step must end; what one leaves unused is the next one's."""
    total, used, found = sum(STEPS[name].weight for name in chosen), 0, {}
    for name in chosen:
        used += STEPS[name].weight
        found[name] = seconds * used / total
    return found
