"""Why a policy that gives every sequence one buffer has no room for another. Integers only."""

from __future__ import annotations

from collections.abc import Mapping

from vmm import Shortage, format_size
from vmm.shortage import Held, Limit, Portion, Remedy


def buffer_shortage(needed: int, budget: int, buffers: Mapping[int, int], leaving: int, spare: int) -> Shortage:
    """``needed`` bytes beside ``buffers`` (by request), ``leaving`` ones and ``spare`` bytes that stay free."""
    used = sum(buffers.values()) + leaving
    left = budget - used - spare
    kept = f", {format_size(spare)} are kept free" if spare else ""
    text = f"{format_size(used)} of {format_size(budget)} are in use{kept}"
    remedies = []
    enough = [request for request, size in buffers.items() if left + size >= needed]
    if enough:
        chosen = min(enough, key=lambda request: buffers[request])
        cost = f"{format_size(buffers[chosen])} to compute again"
        remedies.append(Remedy("free", (chosen,), left + buffers[chosen], f"preempt request {chosen}", cost))
    if used + needed <= budget:
        remedies.append(Remedy("lower watermark", 0, budget - used, "keep nothing free", "room to grow"))
    return Shortage(
        name="buffers",
        unit="bytes",
        asked=needed,
        granted=max(0, left),
        cause="budget" if used + needed > budget else "watermark",
        limits=(Limit("budget", max(0, left), text),),
        portions=(Portion("buffers", used - leaving), Portion("retiring", leaving)),
        holders=tuple(Held(f"request {request}", size) for request, size in buffers.items()),
        remedies=tuple(remedies),
    )
