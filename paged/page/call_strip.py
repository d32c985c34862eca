"""The strip of driver calls under a page: how many of each kind between two moments, and the time in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..recording import Recording

SHOWN = ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")
"""The calls that move memory, in the order of their colours; the others are one more kind."""

OTHER = "other"


def call_strip(recording: Recording, edges: npt.NDArray[np.int64]) -> dict[str, Any]:
    """``names``, ``counts`` [names][edges - 1] and ``ns``, from the exact totals at the marks.

    A mark may lie between two edges: what was counted between two marks is shared out evenly over the time between.
    """
    names = [*SHOWN, OTHER]
    marks = recording.marks
    if not marks:
        return {"names": [], "counts": [], "ns": []}
    moments = np.array([mark.moment for mark in marks], np.float64)
    counts: list[list[float]] = []
    spent: list[list[float]] = []
    for name in names:
        number = np.array([_sum(mark.counts, name) for mark in marks], np.float64)
        time = np.array([_sum(mark.durations, name) for mark in marks], np.float64)
        for values, kept in ((number, counts), (time, spent)):
            kept.append(np.diff(np.interp(edges, moments, values)).round(2).tolist())
    return {"names": names, "counts": counts, "ns": spent}


def _sum(totals: Any, name: str) -> int:
    if name != OTHER:
        return int(totals.get(name, 0))
    return sum(count for call, count in totals.items() if call not in SHOWN)


def latest_calls(recording: Recording, start: int, stop: int, most: int = 4000) -> list[list[Any]]:
    """The calls that are kept one by one between two moments, the latest: [moment, name, address, size, us, result]."""
    found = [
        [moment, call.call, f"{call.address:#x}", call.size, round(call.duration_ns / 1e3, 3), call.result]
        for moment, call in zip(recording.call_moments().tolist(), recording.calls, strict=True)
        if start <= moment <= stop
    ]
    return found[-most:]
