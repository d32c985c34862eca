"""Which devices reach each other's memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

Pairs = frozenset[tuple[int, int]]
"""(device, peer): the device may be given access to the peer's memory."""


def peer_pairs(peers: str | Iterable[tuple[int, int]], devices: int) -> Pairs:
    """The pairs that ``peers`` means: "all", "none", or pairs of ordinals, each of which counts in both directions.

    Raises ValueError for anything else, and for a device that is not there or is its own peer.
    """
    if peers == "none":
        return frozenset()
    if peers == "all":
        return frozenset(itertools.permutations(range(devices), 2))
    if isinstance(peers, str):
        raise ValueError(f"peers must be 'all', 'none' or pairs of devices, not {peers!r}")
    found = set()
    for first, second in peers:
        if first == second or not 0 <= min(first, second) <= max(first, second) < devices:
            raise ValueError(f"peers: ({first}, {second}) is no pair of the devices 0 to {devices - 1}")
        found |= {(first, second), (second, first)}
    return frozenset(found)
