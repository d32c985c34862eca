"""Lengths: how long sequences are, from a trace or from published quantiles."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..serving.trace_reader import read_trace
from ..serving.workload import GENERATED_REQUESTS, Integers, Workload, generate

PERCENTILES = (50, 90, 99)


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """Prompts and outputs in tokens, int64 [n] each; ``left_out`` requests were longer than a sequence may be."""

    name: str
    prompt: Integers
    output: Integers
    left_out: int = 0

    @property
    def total(self) -> Integers:
        """Tokens of each sequence when it ends."""
        return self.prompt + self.output

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(self.total.mean())

    def percentile(self, percent: int) -> int:
        """The least length that so many percent of the sequences do not pass."""
        return int(np.percentile(self.total, percent, method="inverted_cdf"))

    @property
    def steps(self) -> int:
        """Decode steps of all: in step t of its output a sequence has prompt + t tokens."""
        return int(self.output.sum())


def read_lengths(trace: str | None, longest: int) -> Lengths:
    """The lengths of a trace, as ``replay`` reads it; without one, of azure_conv 2023 by its published quantiles.

    Requests of more than ``longest`` tokens are left out, as a server refuses them. Raises TraceError for a trace that
    cannot be read, and ValueError if no request is left.
    """
    if trace is None:
        name = f"{GENERATED_REQUESTS:,} requests with the published quantiles of azure_conv 2023"
        return _kept(generate(), name, longest)
    return _kept(read_trace(trace), trace, longest)


def _kept(load: Workload, name: str, longest: int) -> Lengths:
    fits = load.prompt + load.output <= longest
    if not fits.any():
        raise ValueError(
            f"{name}: every request is longer than the {longest:,} tokens of a sequence; "
            "give a longer --max-model-len or another trace"
        )
    return Lengths(name, load.prompt[fits], load.output[fits], int((~fits).sum()))
