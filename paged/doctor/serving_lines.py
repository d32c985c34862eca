"""Lines that a server writes while it serves.

V0   Avg prompt throughput: 3541.9 tokens/s, Avg generation throughput: 245.9 tokens/s, Running: 100 reqs,
     Swapped: 0 reqs, Pending: 28 reqs, GPU KV cache usage: 99.6%, CPU KV cache usage: 0.0%.
V0   Prefix cache hit rate: GPU: 62.26%, CPU: 0.00%
V1   Engine 000: Avg prompt throughput: ..., Running: 100 reqs, Waiting: 28 reqs, GPU KV cache usage: 99.6%,
     Prefix cache hit rate: 0.0%
     and in later versions "Preemptions: 3" (of the interval) and "Deferred: 2 reqs" between, where there are any;
     with several engines "2 Engines Aggregated: ", all that run and wait, and the mean usage
V0   Sequence group cmpl-1-0 is preempted by PreemptionMode.RECOMPUTE mode because ... preemption=1
all  Received request cmpl-1: prompt: '...', params: SamplingParams(... max_tokens=128 ...), prompt_token_ids: [...]
"""

from __future__ import annotations

import re

from .line_format import Format, count_of
from .log_line import LogLine
from .server_run import ServerRun
from .serving_tally import MOST_RUNNING, Sample

_FIELDS = {
    "running": re.compile(r"Running: (\d{1,9}) reqs"),
    "waiting": re.compile(r"(?:Waiting|Pending): (\d{1,9}) reqs"),
    "swapped": re.compile(r"Swapped: (\d{1,9}) reqs"),
    "preempted": re.compile(r"Preemptions: (\d{1,9})\b"),
    "engine": re.compile(r"Engine (\d{1,4}):"),
    "engines": re.compile(r"(\d{1,4}) Engines Aggregated:"),
}
_USAGE = re.compile(r"GPU KV cache usage: ([\d.]{1,8})%")
_HITS = re.compile(r"Prefix cache hit rate: ([\d.]{1,8})%")
_MOST_PERCENT = 101
_MAX_TOKENS = re.compile(r"\bmax_tokens=(\d{1,9})\b")
_IDS = re.compile(r"prompt_token_ids: \[([\d, ]*)\]")


def _throughput(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    found = {name: pattern.search(line.text) for name, pattern in _FIELDS.items()}
    counts = {name: int(value[1]) if value else 0 for name, value in found.items()}
    usage, hits = _USAGE.search(line.text), _HITS.search(line.text)
    if not found["running"] or not found["waiting"]:
        raise ValueError("a line of throughput says how many run and wait")
    if counts["running"] > MOST_RUNNING or (usage and float(usage[1]) > _MOST_PERCENT):
        raise ValueError(f"{counts['running']} sequences in {usage and usage[1]} percent of a cache are none")
    sample = Sample(
        line.number,
        float(match[1]),
        float(match[2]),
        counts["running"],
        counts["waiting"],
        counts["swapped"],
        float(usage[1]) / 100 if usage else None,
        float(hits[1]) / 100 if hits else None,
    )
    run.enter("serving")
    if counts["engines"]:
        run.note("engines", counts["engines"], line.number)
    run.serving.add(sample, counts["engine"], line.time_s, run.generation)
    if counts["preempted"]:
        run.preempt("recompute", counts["preempted"])


def _hit_rate(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.note("prefix_hit_rate", float(match[1]) / 100, line.number)


def _preempted(run: ServerRun, _line: LogLine, match: re.Match[str]) -> None:
    """A server of V0 writes one such line for every fiftieth preemption; the running count tells the rest."""
    run.enter("serving")
    counted = count_of(match[2]) if match[2] else 0
    run.preempt(match[1].lower(), max(1, counted - run.preemptions))


def _request(run: ServerRun, line: LogLine, _match: re.Match[str]) -> None:
    run.requests += 1
    asked, ids = _MAX_TOKENS.search(line.text), _IDS.search(line.text)
    if asked:
        run.max_tokens.add(int(asked[1]))
    if ids and ids[1].strip():
        run.prompts.add(ids[1].count(",") + 1)


SERVING_LINES = (
    Format(
        "throughput",
        "Avg prompt throughput",
        re.compile(
            r"Avg prompt throughput: (\d[\d.]{0,14}) tokens/s, Avg generation throughput: (\d[\d.]{0,14}) tokens/s, "
            r"Running: \d+ reqs.{1,300}(?:GPU KV cache usage: [\d.]+%|(?:Waiting|Pending): \d+ reqs\s*$)"
        ),
        _throughput,
    ),
    Format(
        "prefix cache",
        "Prefix cache hit rate: GPU",
        re.compile(r"Prefix cache hit rate: GPU: ([\d.]{1,8})%"),
        _hit_rate,
    ),
    Format(
        "preemption",
        "is preempted ",
        re.compile(
            r"is preempted (?:by|in) PreemptionMode\.(RECOMPUTE|SWAP) mode"
            r"(?:.{1,400}total_(?:num_)?cumulative_preemption(?:_cnt)?=(\d{1,12}))?"
        ),
        _preempted,
    ),
    Format("request", "Received request ", re.compile(r"Received request [^:]{1,200}:"), _request, whole=True),
)
