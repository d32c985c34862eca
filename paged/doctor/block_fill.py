"""How full the blocks are: n tokens take ceil(n / B) blocks of B slots, and the last of them is partly empty.

With the lengths of requests: while a request of p prompt and o output tokens decodes it has p, p+1, ..., p+o-1 tokens
in memory, one step each, so over its life the fill is

    sum of n / sum of B x ceil(n / B)      over these n, over all requests

Without them: the last block is half full on average (any remainder as likely as any other), so that a sequence that has
room for r tokens leaves (B - 1) / 2 of them empty. Both are estimates. Source: the division itself; that only the last
block wastes is PagedAttention's (Kwon et al., SOSP 2023, section 4.3).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..serving.workload import Workload

Integers = npt.NDArray[np.int64]


def fill_of(workload: Workload, block_size: int) -> float:
    """The share of slots in taken blocks that hold a token, for a workload's lengths; 0 to 1."""
    start = workload.prompt
    stop = start + np.maximum(workload.output, 1)  # one past the last length
    used = _below(stop) - _below(start)
    taken = _room_below(stop, block_size) - _room_below(start, block_size)
    return float(used.sum() / taken.sum()) if taken.sum() else 1.0


def fill_of_room(room: float, block_size: int) -> float:
    """The same where only the mean room of a sequence is known, in tokens."""
    return max(0.0, 1 - (block_size - 1) / 2 / room) if room > 0 else 1.0


def _below(count: Integers) -> Integers:
    """0 + 1 + ... + (count - 1)."""
    return count * (count - 1) // 2


def _room_below(count: Integers, block: int) -> Integers:
    """The sum of block x ceil(n / block) for n from 0 to count - 1.

    n = 1 ... block take one block, the next block numbers two, and so on: with m = count - 1 = q x block + r the sum is
    block x (block x q (q + 1) / 2 + r (q + 1)).
    """
    most = np.maximum(count - 1, 0)
    whole, rest = most // block, most % block
    total: Integers = block * (block * whole * (whole + 1) // 2 + rest * (whole + 1))
    return total
