"""The requests that a diagnosis works with: those of a file, or those that the log itself tells of.

Only lengths are taken from a file, unless its own times are asked for: arrivals are the log's, all at once where its
sequences waited (a server with a queue computes what it can, whenever they came), else at the rate at which it served.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from ..serving.workload import DEFAULT_RATE, Integers, Workload, poisson_arrivals
from .length_counts import LengthCounts
from .lengths_file import read_lengths
from .server_run import ServerRun

AT_ONCE = 1e6
"""Requests a second that stand for all at once."""

_QUEUED = 0.05
_NO_TIMES = "has no arrival times"


def given_lengths(
    run: ServerRun,
    path: str | Path | None,
    *,
    rate: float | None = None,
    keep_times: bool = False,
    limit: int | None = None,
    seed: int = 0,
) -> Workload | None:
    """The first ``limit`` requests of the file, else of the log; None if neither has lengths.

    ``rate`` (requests a second) stands in for the log's; ``keep_times`` leaves a trace its own times. Raises TraceError
    for a file that cannot be used.
    """
    if path is None:
        found = _of_log(run, seed)
        if found is None:
            return None
    else:
        found = read_lengths(path, rate=DEFAULT_RATE, seed=seed)
    if limit is not None:
        found = found.first(limit)
    if keep_times and not any(_NO_TIMES in note for note in found.notes):
        return found
    wanted, why = (rate, "as --rate says") if rate is not None else _served_rate(run, found)
    notes = tuple(note for note in found.notes if _NO_TIMES not in note)
    shown = "all at once" if wanted >= AT_ONCE else f"{wanted:.3g} requests/s (Poisson, seed {seed})"
    arrival = poisson_arrivals(len(found), wanted, seed)
    return dataclasses.replace(found, arrival_s=arrival, notes=(*notes, f"requests arrive {shown}, {why}"))


def _served_rate(run: ServerRun, requests: Workload) -> tuple[float, str]:
    """Requests a second, and why: outputs a second of the busy time / mean output."""
    whole = run.serving.total()
    if not whole.seconds or not whole.output_tokens:
        return AT_ONCE, "the log has no line of throughput"
    if whole.waiting_s > _QUEUED * whole.seconds:
        return AT_ONCE, f"as in the log sequences waited for {whole.waiting_s / whole.seconds:.0%} of the busy time"
    rate = whole.output_tokens / whole.seconds / float(requests.output.mean())
    return rate, "the log's outputs a second over the mean output (estimate)"


def _of_log(run: ServerRun, seed: int) -> Workload | None:
    """Requests drawn from the log's lengths of prompts and from max_tokens, which is what an output has at most."""
    if not run.prompts.total or not run.max_tokens.total:
        return None
    generator = np.random.default_rng([seed, 2])
    count = min(run.prompts.total, 2_000)
    note = "lengths are drawn from the log's requests; outputs are their max_tokens, an upper bound"
    return Workload(
        "the log's requests",
        poisson_arrivals(count, DEFAULT_RATE, seed),
        _draw(run.prompts, count, generator),
        _draw(run.max_tokens, count, generator),
        (note, f"the log {_NO_TIMES}"),
    )


def _draw(counts: LengthCounts, count: int, generator: np.random.Generator) -> Integers:
    lengths = np.fromiter(counts.counts, np.int64)
    weights = np.fromiter(counts.counts.values(), float)
    drawn: Integers = np.maximum(generator.choice(lengths, count, p=weights / weights.sum()), 1)
    return drawn
