"""Finding: a cause, and the figures of the log that say so."""

from __future__ import annotations

import dataclasses

MEMORY_CAUSES = (
    "weights",
    "activations",
    "KV cache",
    "workspace",
    "graph pools",
    "other processes",
    "fragmentation",
)
"""Why memory ran out. The last two are no part of the server: others hold the memory, or it lies in pieces."""

THROUGHPUT_CAUSES = (
    "long requests",
    "batch limit",
    "bandwidth",
    "compute",
    "launch and scheduling overhead",
    "undecided",
)
"""Why throughput stopped growing with the batch."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """``cause`` is one of those above, ``kind`` "memory" or "throughput"; ``figures`` are sentences with numbers.

    ``line`` is that of the log that shows it first (None if it is worked out of many); ``short`` is how many bytes of
    one GPU were lacking, as far as the log says; ``estimate`` says that the cause rests on a figure worked out here.
    """

    cause: str
    kind: str
    figures: tuple[str, ...]
    line: int | None = None
    short: int | None = None
    estimate: bool = False
