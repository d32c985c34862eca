"""Pressure: the KV cache was too small for what ran and waited, although nothing failed.

It shows as preemptions, and as sequences that wait while the cache is full. Where few long sequences hold it, they are
the cause, not its size: then far fewer run than at other times, each with much more room.
"""

from __future__ import annotations

from vmm import format_size

from .capacity import Capacity
from .finding import Finding
from .server_run import ServerRun
from .serving_tally import FULL

LEAST_SHARE = 0.05
"""Of the busy time, from which on waiting before a full cache counts."""

_FEWER = 0.5
"""So many of the most that ran, in a full cache, have nearly twice the room of those at least."""

_LONG_SHARE = 0.10
_TAIL_RUNNING = 0.25
_TAIL_SHARE = 0.30


def pressure(run: ServerRun, cache: Capacity) -> Finding | None:
    """Long requests, or the KV cache, where sequences waited for it or lost their place in it."""
    whole = run.serving.total()
    waited = whole.full_waiting_s / whole.seconds if whole.seconds else 0.0
    if not run.preemptions and waited < LEAST_SHARE:
        return None
    return _holders(run, cache) or _too_small(run, cache, waited)


def _holders(run: ServerRun, cache: Capacity) -> Finding | None:
    """Few long requests, if for a good part of the time few ran in a full cache while others waited."""
    peak = run.serving.peak_running
    whole = run.serving.total()
    if peak is None or not peak.usage or not whole.seconds:
        return None
    few = {count: tally for count, tally in run.serving.by_running.items() if 0 < count <= peak.running * _FEWER}
    held_s = sum(tally.full_waiting_s for tally in few.values())
    if held_s < _LONG_SHARE * whole.seconds:
        return None
    running = sum(count * tally.full_waiting_s for count, tally in few.items()) / held_s
    ratio = (FULL / running) / (peak.usage / peak.running)
    figures = [
        f"for {held_s / whole.seconds:.0%} of the busy time {running:.0f} sequences filled the KV cache to {FULL:.0%} "
        f"or more while others waited; at other times {peak.running} ran in {peak.usage:.0%} of it",
        f"each of them held at least {ratio:.1f} times the room of those",
    ]
    room = cache.per_sequence(FULL, round(running))
    if room:
        figures.append(f"that is {room:,.0f} tokens or more a sequence (estimate: usage x capacity / running)")
    return Finding("long requests", "throughput", tuple(figures), peak.line, estimate=True)


def _too_small(run: ServerRun, cache: Capacity, waited: float) -> Finding:
    figures = []
    if run.preemptions:
        kinds = ", ".join(f"{count:,} by {kind}" for kind, count in sorted(run.preemptions_by_kind.items()))
        figures.append(f"running sequences lost their KV cache at least {run.preemptions:,} times ({kinds})")
    peak = run.serving.peak_usage
    if peak is not None and peak.usage is not None:
        figures.append(
            f"usage reached {peak.usage:.1%} with {peak.running} running and {peak.waiting} waiting; for {waited:.0%} "
            f"of the busy time sequences waited while it was {FULL:.0%} full or more"
        )
    if cache.tokens:
        size = f" in {format_size(cache.size)}" if cache.size else ""
        figures.append(f"it holds {cache.tokens:,} tokens{size} ({cache.source})")
    at = run.at_first_preemption or peak
    return Finding("KV cache", "memory", tuple(figures), at.line if at else None)


def tail(run: ServerRun) -> Finding | None:
    """Long requests that outlast a batch: for long few run, nothing waits, and nothing arrives."""
    peak = run.serving.peak_running
    whole = run.serving.total()
    if peak is None or not whole.seconds:
        return None
    few = {count: tally for count, tally in run.serving.by_running.items() if 0 < count <= peak.running * _TAIL_RUNNING}
    quiet_s = sum(tally.quiet_s for tally in few.values())
    if peak.running < 8 or quiet_s < _TAIL_SHARE * whole.seconds:
        return None
    running = sum(count * tally.quiet_s for count, tally in few.items()) / quiet_s
    figures = (
        f"for {quiet_s / whole.seconds:.0%} of the busy time {running:.1f} of {peak.running} sequences were left and "
        "no prompt came: the longest outputs of a batch held the rest of the GPU idle",
    )
    return Finding("long requests", "throughput", figures, peak.line)


def batch_limit(run: ServerRun) -> Finding | None:
    """``max_num_seqs``, where so many ran, others waited, and the KV cache had room."""
    named = run.number("max_num_seqs")
    whole = run.serving.total()
    if named is None or not whole.seconds:
        return None
    tally = run.serving.by_running.get(named)
    if tally is None:
        return None
    bound_s = tally.waiting_s - tally.full_waiting_s
    if bound_s < _LONG_SHARE * whole.seconds:
        return None
    figures = (
        f"for {bound_s / whole.seconds:.0%} of the busy time {named} ran, as many as max_num_seqs lets, and others "
        f"waited although {1 - tally.usage_s / tally.seconds:.0%} of the KV cache was free",
    )
    return Finding("batch limit", "throughput", figures)
