"""Conclusion: what the replays say of the remedies, in one or two sentences."""

from __future__ import annotations

from .rehearsal import Rehearsed
from .report import Report

_MORE = 1.02
"""So many times the tokens a second count as more."""

_LEFT = 0.1
"""A remedy mends preemptions if at most this share of them is left."""

Tried = tuple[int, Rehearsed]
"""The number of a remedy, from 1, and its replay."""


def conclusion(report: Report, before: Rehearsed) -> str:
    """The cheapest remedy that mends it, as far as a replay tells; empty where none was replayed."""
    done = [(n, t.after) for n, t in enumerate(report.treatments, 1) if t.after is not None and not t.after.why_not]
    if not done:
        return ""
    if before.why_not:
        number, after = done[0]
        return (
            f"Remedy {number} is the cheapest with which it starts: it then serves {after.tokens_per_s:,.0f} tokens/s."
        )
    if report.run.failures:
        enough = [found for found in done if report.treatments[found[0] - 1].remedy.enough]
        if not enough:
            return "No remedy alone makes up for what was lacking; take several."
        return f"Remedy {enough[0][0]} is the cheapest that mends it: {_served(before, enough[0][1])}."
    return _of_load(before, [found for found in done if _better(before, found[1])])


def _of_load(before: Rehearsed, better: list[Tried]) -> str:
    """For a server that runs: the cheapest of those that serve better, and the one that serves most."""
    if not better:
        return "On these lengths no remedy serves more; a larger load, or the log's own lengths, may tell more."
    most = max(better, key=lambda found: (found[1].tokens_per_s, -found[1].preemptions))
    mending = [found for found in better if not before.preemptions or _are_mended(before, found[1])]
    if not mending:
        return f"No remedy mends it; remedy {most[0]} does most: {_served(before, most[1])}."
    number, after = mending[0]
    what = "mends it" if before.preemptions else "serves more"
    first = f"Remedy {number} is the cheapest that {what}: {_served(before, after)}."
    if most[1].tokens_per_s <= _MORE * after.tokens_per_s:
        return first
    return f"{first} Remedy {most[0]} serves most: {_ratio(before, most[1]):.2f} times."


def _are_mended(before: Rehearsed, after: Rehearsed) -> bool:
    return after.preemptions <= _LEFT * before.preemptions


def _better(before: Rehearsed, after: Rehearsed) -> bool:
    """Whether a remedy serves more, or as much with fewer preemptions."""
    faster = after.tokens_per_s > _MORE * before.tokens_per_s
    return faster or (after.preemptions < before.preemptions and after.tokens_per_s >= before.tokens_per_s)


def _served(before: Rehearsed, after: Rehearsed) -> str:
    text = f"it serves {_ratio(before, after):.2f} times the tokens per second"
    if not before.preemptions and not after.preemptions:
        return text
    return f"{text}, and preemptions go from {before.preemptions:,} to {after.preemptions:,}"


def _ratio(before: Rehearsed, after: Rehearsed) -> float:
    return after.tokens_per_s / before.tokens_per_s if before.tokens_per_s else 0.0
