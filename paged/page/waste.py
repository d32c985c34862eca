"""Waste by cause at one moment: committed bytes that are no tokens, under the names of ``policies.policy.CAUSES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..recording.figures import Figures
from ..recording.places import Places
from ..recording.state import State


def waste(about: Mapping[str, Any], state: State, places: Places, now: Figures) -> dict[str, int]:
    """Bytes by cause; together with ``live`` they are what is committed.

    tail: room of sequences without a token; row: what blocks leave over in rows that some block holds; prefix: blocks
    that only the cache keeps; retiring: memory given up whose work may still run; unused: rows in which nothing is.
    """
    held = set(state.counts) | state.cached
    blocks = np.fromiter(held, np.int64, len(held))
    stride, chunk = places.block_stride, places.chunk
    first, last = blocks * stride // chunk, ((blocks + 1) * stride - 1) // chunk
    used = np.zeros(places.rows.count, np.bool_)
    for step in range(int((last - first).max(initial=0)) + 1):
        used[np.minimum(first + step, last)] = True
    in_use = 0 if state.asleep else int(np.count_nonzero(used)) * about["row_bytes"]
    return {
        "tail": now.held - now.live,
        "row": max(0, in_use - len(held) * about["block_bytes"]),
        "prefix": now.cached,
        "retiring": now.retiring,
        "unused": max(0, now.committed - now.retiring - in_use),
    }
