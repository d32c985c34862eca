"""What the figures should be: shares of the copy bandwidth, and the time of the shortest decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .cases import Case, decode_cases
from .record import Record

_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Goal:
    """Every item that ``covers`` takes should reach ``share`` of the copy bandwidth, or take at most ``microseconds``.

    ``covers`` gets an item's name, and its case where it is one of decode.
    """

    name: str
    covers: Callable[[str, Case | None], bool]
    share: float = 0.0
    microseconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The worst of the items of a goal."""

    goal: Goal
    items: int
    worst: str
    value: float
    reached: bool

    def row(self) -> dict[str, Any]:
        """The same as plain data."""
        unit = "share" if self.goal.share else "us"
        wanted = self.goal.share or self.goal.microseconds
        found = {"items": self.items, "worst": self.worst, unit: self.value, "wanted": wanted}
        return {**found, "reached": self.reached}


def _reads(case: Case | None, dtypes: tuple[str, ...], least_bytes: float) -> bool:
    """Whether a case is the fast kernel over so many bytes in the shapes that the goals are set for."""
    if case is None or case.kernel != "paged_decode" or case.kv_bytes < least_bytes:
        return False
    shape = (case.layout, case.head_dim, case.block_size, case.kv_heads)
    return case.dtype in dtypes and case.group in (1, 4, 8) and shape == ("hnd", 128, 16, 8)


GOALS = (
    Goal("decode of 2-byte KV from 800 MB", lambda _, case: _reads(case, _HALVES, 800e6), share=0.90),
    Goal("decode of 2-byte KV from 200 MB", lambda _, case: _reads(case, _HALVES, 200e6), share=0.85),
    Goal("decode of e4m3 from 400 MB", lambda _, case: _reads(case, ("e4m3",), 400e6), share=0.80),
    Goal("append, gather, copies of blocks", lambda item, _: item.startswith(("append 65", "gather", "copy b")), 0.85),
    Goal("decode of one sequence of 128", lambda item, _: item == "batch 1, context 128", microseconds=10),
)


def outcomes(record: Record, best: float | None) -> Iterator[Outcome]:
    """How each goal stands that has an item; ``best`` is the copy bandwidth in bytes a second."""
    cases = {case.name: case for case in decode_cases()}
    rows = {item: row for step in ("decode", "kernels") for item, row in record.results(step).items() if "us" in row}
    for goal in GOALS:
        found = {item: row for item, row in rows.items() if goal.covers(item, cases.get(item))}
        if not found or not (best or goal.microseconds):
            continue
        if goal.microseconds:
            worst = max(found, key=lambda item: found[item]["us"])
            value = found[worst]["us"]
            yield Outcome(goal, len(found), worst, value, value <= goal.microseconds)
        elif best:
            shares = {item: row["bytes"] / row["us"] * 1e6 / best for item, row in found.items()}
            worst = min(shares, key=lambda item: shares[item])
            yield Outcome(goal, len(found), worst, shares[worst], shares[worst] >= goal.share)
