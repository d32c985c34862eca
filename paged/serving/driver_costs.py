"""What driver calls cost on a GPU, from published measurements: the time of a replay on the host driver.

The cost of a call follows the number of handles, not their bytes (PyTorch, CUDA semantics, note on expandable
segments), so that one figure a call stands for chunks of any size.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class DriverCosts:
    """A named set of costs: microseconds a call, by the driver's names, and where they were published."""

    name: str
    source: str
    microseconds: Mapping[str, float]

    def seconds(self, calls: Mapping[str, int]) -> float:
        """The time that so many calls of each name take; a call without a published cost counts as 0."""
        return sum(self.microseconds.get(call, 0.0) * count for call, count in calls.items()) / 1e6

    def missing(self, calls: Mapping[str, int]) -> list[str]:
        """The calls of which no cost was published."""
        return [call for call in calls if call not in self.microseconds]


SETS = {
    "vattention": DriverCosts(
        "vattention",
        "A100, 2 MiB; vAttention (Prabhu et al., ASPLOS 2025), table of API costs, as it is commonly quoted",
        {
            "cuMemAddressReserve": 2,
            "cuMemCreate": 29,
            "cuMemMap": 2,
            "cuMemSetAccess": 38,
            "cuMemUnmap": 34,
            "cuMemRelease": 23,
            "cuMemAddressFree": 1,
        },
    ),
    "kvcached": DriverCosts(
        "kvcached",
        "A100, 2 MiB, mean over 4,096 handles; kvcached benchmarks/bench_vmm/README.md; release and free not published",
        {
            "cuMemAddressReserve": 19,
            "cuMemCreate": 193.32,
            "cuMemMap": 1.45,
            "cuMemSetAccess": 35.99,
            "cuMemUnmap": 25.63,
        },
    ),
}
"""The sets that ``driver_costs`` knows by name."""


def driver_costs(name_or_path: str) -> DriverCosts:
    """The costs of that name, or those of a JSON file: {"source": TEXT, "microseconds": {CALL: NUMBER}}.

    Raises ValueError for an unknown name and for a file that does not hold that.
    """
    if name_or_path in SETS:
        return SETS[name_or_path]
    path = Path(name_or_path)
    if not path.is_file():
        raise ValueError(f"unknown driver costs {name_or_path!r}; use {', '.join(SETS)}, or the path of a JSON file")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        source, costs = str(found["source"]), {str(call): float(us) for call, us in found["microseconds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        example = '{"source": "where from", "microseconds": {"cuMemCreate": 29}}'
        raise ValueError(f"{path}: not a set of driver costs; write {example}") from None
    wrong = [call for call, us in costs.items() if not (math.isfinite(us) and us >= 0)]
    if wrong:
        raise ValueError(f"{path}: the cost of {wrong[0]} is {costs[wrong[0]]}; a cost is 0 microseconds or more")
    return DriverCosts(name_or_path, source, costs)


class Lap:
    """Called, it returns the seconds of driver calls since it was last called, or made; ``total`` tells all so far."""

    def __init__(self, total: Callable[[], float]) -> None:
        self._total, self._before = total, total()

    def __call__(self) -> float:
        """The lap."""
        before, self._before = self._before, self._total()
        return self._before - before
