"""A pool's shortage by the requests that have its blocks, where the pool knows no sequences."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vmm import Shortage
from vmm.shortage import Held, Remedy

if TYPE_CHECKING:
    from ..pool import KVPool


def by_request(found: Shortage, held: Mapping[int, int], pool: KVPool) -> Shortage:
    """``found`` with the blocks of each request, none of which is shared, and the smallest that would be enough."""
    if not held or found.cause not in ("budget", "virtual range"):
        return found
    block = pool.layout.block_stride * pool.layout.planes
    holders = tuple(Held(f"request {request}", blocks * block) for request, blocks in held.items())
    granted, remedies = found.granted or 0, found.remedies
    enough = [request for request, blocks in held.items() if granted + blocks >= found.asked]
    if enough:
        chosen = min(enough, key=lambda request: held[request])
        cost = f"{held[chosen]} blocks of tokens to compute again, or to swap"
        text = f"preempt request {chosen}"
        remedies += (Remedy("free", (chosen,), granted + held[chosen], text, cost),)
    return dataclasses.replace(found, holders=holders, remedies=remedies)
