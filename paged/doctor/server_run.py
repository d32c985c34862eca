"""ServerRun: what a log says of one start of a server, gathered line by line in bounded memory."""

from __future__ import annotations

import collections
import dataclasses

from .length_counts import LengthCounts
from .serving_tally import Sample, ServingTally

MOST_FAILURES = 50
"""Failures of one start that are kept; later ones are counted."""

PHASES = ("start", "weights", "profile", "cache", "graphs", "serving")
"""What a server does in turn: until the weights are read, while it measures a step's memory, while it takes the KV
cache, while it captures graphs, and while it serves."""


_BEFORE_V1 = tuple("01234567")
_DIGITS = 9
_LEAST = ("kv", "kv_tokens", "kv_blocks")


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A figure of the log and the line that has it."""

    value: float
    line: int


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A moment at which memory ran out. Sizes are bytes, None where the line does not have them.

    ``kind`` is "torch" (an allocation that PyTorch refused), "library" (one that a library refused), "sampler" (the
    warm-up of the sampler), "no cache" (nothing left for the KV cache), "model len" (less than one longest sequence) or
    "free memory" (others hold it). ``frames`` are the last functions of the traceback before it, ``sample`` what ran.
    """

    kind: str
    line: int
    phase: str
    text: str
    asked: int | None = None
    total: int | None = None
    free: int | None = None
    in_use: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    graph_pools: int | None = None
    others: int = 0
    needed: int | None = None
    available: int | None = None
    frames: tuple[str, ...] = ()
    sample: Sample | None = None


class ServerRun:
    """One start of a server. ``found`` has figures by name, ``options`` the engine's arguments as text."""

    def __init__(self, line: int = 1) -> None:
        self.line = line
        self.version: str | None = None
        self.engine: str | None = None
        self.options: dict[str, str] = {}
        self.found: dict[str, Found] = {}
        self.phase = PHASES[0]
        self.serving = ServingTally()
        self.preemptions = 0
        self.preemptions_by_kind: collections.Counter[str] = collections.Counter()
        self.at_first_preemption: Sample | None = None
        self.prompts = LengthCounts()
        self.max_tokens = LengthCounts()
        self.requests = 0
        self.failures: list[Failure] = []
        self.failure_count = 0
        self.frames: collections.deque[str] = collections.deque(maxlen=40)

    @property
    def generation(self) -> str:
        """V0 or V1: as the engine's line says, else by the version (V1 is the default since 0.8), else V1."""
        if self.engine:
            return self.engine
        parts = (self.version or "").split(".")
        return "V0" if len(parts) > 1 and parts[0] == "0" and parts[1] in _BEFORE_V1 else "V1"

    @property
    def begun(self) -> bool:
        """Whether the log says more of this start than its options."""
        return bool(self.found or self.serving.lines or self.failure_count)

    def note(self, name: str, value: float, line: int) -> None:
        """Write down a figure; of several ranks the greatest counts, of the KV cache the least, which binds all."""
        known = self.found.get(name)
        if known is None or (value <= known.value if name in _LEAST else value >= known.value):
            self.found[name] = Found(value, line)

    def value(self, name: str) -> float | None:
        """A figure by name, or None."""
        found = self.found.get(name)
        return None if found is None else found.value

    def number(self, option: str) -> int | None:
        """An option that is a whole number of at least 1, or None."""
        text = self.options.get(option, "")
        found = int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0
        return found or None

    def enter(self, phase: str) -> None:
        """The server has come so far; it never goes back."""
        if PHASES.index(phase) > PHASES.index(self.phase):
            self.phase = phase

    def fail(self, failure: Failure) -> None:
        """Keep a failure, unless it repeats the last one, as ranks and callers do."""
        self.failure_count += 1
        last = self.failures[-1] if self.failures else None
        if last and (last.kind, last.asked, last.phase) == (failure.kind, failure.asked, failure.phase):
            return
        if len(self.failures) < MOST_FAILURES:
            self.failures.append(failure)
        self.frames.clear()

    def preempt(self, kind: str, count: int) -> None:
        """``count`` sequences lost their memory, to be computed again ("recompute") or brought back ("swap")."""
        self.preemptions += count
        self.preemptions_by_kind[kind] += count
        if self.at_first_preemption is None:
            self.at_first_preemption = self.serving.last
