"""Decode over an AttachedKV: the tokens that another process has computed, where they lie.

Tokens that were generated here since lie in a pool of this process. Attention over both is attention over each, with
``lse``, joined by ``kernels_cu.launch.merge_states``: the softmax over all tokens is that of the parts, weighed by
their sums (as FlashInfer's cascades do). Options are those of ``attention.decode``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels_cu import Scoring
from vmm import Stream, stream_handle

from ..attached_kv import AttachedKV
from .decode_kernel import decode_step
from .options import AttentionOptions, window_of

__all__ = ["decode"]

Array = Any
"""A numpy.ndarray on the host driver, a cupy.ndarray on a GPU."""


def decode(
    kv: AttachedKV,
    layer: int,
    query: Array,
    rows: Sequence[int] | None = None,
    *,
    scoring: Scoring | None = None,
    window: int | None = None,
    lse: Array | None = None,
    kernel: str | None = None,
    stream: Stream = 0,
) -> Array:
    """Attention of one query token of each sequence over all that is attached of it: ``query``, result [B, Hq, D].

    ``rows`` are the sequences of the query's rows, by their number in the handoff; None is all of them. A window counts
    back from the last attached token: with n newer ones elsewhere give ``window`` less n. Raises RangeError for a row,
    a layer or a window that is not there, ClosedError once the memory was let go, ValueError for a ``query`` with other
    rows than sequences, a window that sees dropped tokens or an unknown kernel, kernels_cu.LaunchError for arrays that
    do not fit, or a cache or option that the kernel does not have.
    """
    place, step = kv.kv(layer), kv.step_tables(rows, query)
    if len(query) != len(step.lengths):
        raise ValueError(f"query has {len(query)} rows for {len(step.lengths)} sequences; give one row a sequence")
    seen = window_of(kv.layout.spec.window, window, int(step.lengths.max(initial=0)))
    options = AttentionOptions(scoring or Scoring(), seen, lse, stream_handle(stream))
    return decode_step(kv, place, query, step, options, kernel)
