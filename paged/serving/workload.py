"""A workload: when requests arrive, how long their prompts are, and how many tokens they generate.

Read one from a file with ``trace_reader.read_trace`` or make one here from published quantiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DEFAULT_RATE = 19_366 / 3_502
"""Requests a second for a trace without arrival times: the mean rate of azure_conv 2023."""

GENERATED_RATE = 30.0
"""Requests a second of a generated workload: what one H100 can serve of it if memory is used well."""

HASH_BLOCK = 512
"""Tokens that one of a trace's hash ids stands for; the last of a prompt stands for what is left (Mooncake)."""

MAX_REQUESTS = 10_000_000
"""More requests than this are taken for a mistake."""

GENERATED_REQUESTS = 2_000
"""How many requests a generated workload has if no number is given."""

PROMPT_QUANTILES = {0.0: 2, 0.25: 396, 0.5: 1020, 0.75: 1189, 0.9: 2734, 0.99: 4142, 1.0: 14_050}
OUTPUT_QUANTILES = {0.0: 7, 0.25: 85, 0.5: 129, 0.75: 395, 0.9: 424, 0.99: 601, 1.0: 1_000}
"""Tokens a request in AzureLLMInferenceTrace_conv of 2023, counted over its 19,366 rows (CC-BY-4.0, Azure; Splitwise,
ISCA 2024)."""


class TraceError(ValueError):
    """A trace or a workload that cannot be used; the message names the file, the line, the value and the remedy."""


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """Requests in the order of their arrival, one entry a request in each array.

    ``arrival_s`` float64 [n] counts seconds from the first arrival; ``prompt`` and ``output`` int64 [n] count tokens.
    ``hash_ids`` names each prompt's blocks of HASH_BLOCK tokens where the trace has them; equal ids stand for equal
    tokens after equal tokens. ``priority`` int64 [n] says who goes first, the lower the sooner. ``notes`` say what was
    changed.
    """

    name: str
    arrival_s: Floats
    prompt: Integers
    output: Integers
    notes: tuple[str, ...] = ()
    hash_ids: tuple[tuple[int, ...], ...] | None = None
    priority: Integers | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def first(self, count: int) -> Workload:
        """The first ``count`` requests, or all if there are fewer. Raises TraceError if ``count`` is not positive."""
        if count < 1:
            raise TraceError(f"the number of requests must be at least 1, not {count}")
        return dataclasses.replace(
            self,
            arrival_s=self.arrival_s[:count],
            prompt=self.prompt[:count],
            output=self.output[:count],
            hash_ids=self.hash_ids[:count] if self.hash_ids is not None else None,
            priority=self.priority[:count] if self.priority is not None else None,
        )

    def scaled(self, rate_scale: float) -> Workload:
        """The same requests, arriving ``rate_scale`` times as fast: every gap is divided by it.

        Raises TraceError for a scale that is not above 0.
        """
        if not (np.isfinite(rate_scale) and rate_scale > 0):
            raise TraceError(f"the rate scale must be a number above 0, not {rate_scale}")
        return dataclasses.replace(self, arrival_s=self.arrival_s / rate_scale)

    def lengths(self) -> dict[str, dict[str, int]]:
        """Quantiles, greatest value and sum of prompt and output lengths, in tokens."""
        return {"prompt": _summary(self.prompt), "output": _summary(self.output)}


def together(workloads: Sequence[Workload]) -> Workload:
    """All requests of several workloads in the order of their arrival, for their lengths and their number."""
    if len(workloads) == 1:
        return workloads[0]
    order = np.argsort(np.concatenate([one.arrival_s for one in workloads]), kind="stable")
    arrival, prompt, output = (
        np.concatenate([getattr(one, name) for one in workloads])[order] for name in ("arrival_s", "prompt", "output")
    )
    notes = tuple(dict.fromkeys(note for one in workloads for note in one.notes))
    return Workload(" + ".join(one.name for one in workloads), arrival, prompt, output, notes)


def _summary(tokens: Integers) -> dict[str, int]:
    p50, p90, p99 = (round(float(q)) for q in np.quantile(tokens, (0.5, 0.9, 0.99)))
    return {"p50": p50, "p90": p90, "p99": p99, "max": int(tokens.max()), "sum": int(tokens.sum())}


def poisson_arrivals(count: int, rate: float, seed: int) -> Floats:
    """``count`` arrival times in seconds, the first at 0: gaps are exponential with mean 1/``rate``."""
    if not (np.isfinite(rate) and rate > 0):
        raise TraceError(f"the arrival rate must be a number of requests a second above 0, not {rate}")
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    gaps[:1] = 0.0
    return np.cumsum(gaps)


def draw(quantiles: Mapping[float, int], count: int, generator: np.random.Generator) -> Integers:
    """``count`` lengths whose distribution has these quantiles; between two of them the logarithm is linear."""
    at = np.fromiter(quantiles, float)
    logs = np.log(np.fromiter(quantiles.values(), float))
    lengths: Integers = np.rint(np.exp(np.interp(generator.random(count), at, logs))).astype(np.int64)
    return lengths


def generate(count: int = GENERATED_REQUESTS, *, rate: float = GENERATED_RATE, seed: int = 0) -> Workload:
    """A workload of ``count`` requests with the lengths of azure_conv 2023 and Poisson arrivals of ``rate`` a second.

    Prompts and outputs are drawn independently. The same arguments give the same workload. Raises TraceError.
    """
    if count < 1:
        raise TraceError(f"the number of requests must be at least 1, not {count}")
    if count > MAX_REQUESTS:
        raise TraceError(f"the number of requests must be at most {MAX_REQUESTS:,}, not {count:,}")
    generator = np.random.default_rng([seed, 1])
    return Workload(
        name=f"generated from azure_conv 2023 quantiles, {rate:.3g} requests/s, seed {seed}",
        arrival_s=poisson_arrivals(count, rate, seed),
        prompt=draw(PROMPT_QUANTILES, count, generator),
        output=draw(OUTPUT_QUANTILES, count, generator),
    )
