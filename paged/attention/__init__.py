"""Append, decode, prefill and gather on a pool: the kernels, with the strides and tables that belong to it.

Arrays are NumPy where kernels run on the CPU and CuPy on a GPU; slots, tables and lengths are made on the host and
follow the caller's arrays to their side. ``span_attention`` has the same for a ContiguousKV,
``attached_attention`` decode for an AttachedKV.

What decode and prefill share. ``sequences`` are a list, a ``Batch``, or its ``DeviceTables``, whose tables stay where
they are. ``query`` is of the pool's dtype, or of float16 or bfloat16 over a pool of e4m3 or int8;
Hq is a multiple of Hkv. ``scoring`` has the scale (1 / sqrt(D) if None), soft cap, ALiBi slopes, attention sinks, and
the scales that a pool of e4m3 or int8 needs. ``window``: only the last so many tokens up to a query's own are seen,
those of the spec's window if None. ``lse``, float32 [B or N, Hq], receives log2 of the sum of exp of all scores, minus
infinity where there are none. ``kernel`` is "simple" (scale alone; any dtype, D and layout), "fast" (float16, bfloat16,
e4m3 or int8; D 64, 128 or 256; layout hnd or nhd) or None: the fast one where there is one on a GPU, or where only it
does what is asked for. On a GPU where it was never proven its first use compares it with the simple one, and waits for
the device; a difference is a RuntimeWarning, and the simple one is used.
"""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np

from kernels_cu import Rotary, Scoring, launch, plan_prefill
from vmm import RangeError, Stream, stream_handle
from vmm.views import is_view

from ..pool import KVPool
from ..tables.block_table import Slots, Tables
from ..tables.step_tables import Attended, step_tables
from .decode_kernel import decode_step
from .gather import gather
from .kernel_choice import choose_kernel
from .options import AttentionOptions, window_of
from .prefill_kernel import prefill_fast, prefill_simple

__all__ = ["append", "decode", "gather", "prefill"]

Array = Any
"""A numpy.ndarray on the host driver, a cupy.ndarray on a GPU."""


def append(
    pool: KVPool,
    layer: int,
    key: Array,
    value: Array,
    slots: Slots,
    *,
    key_scale: Array | None = None,
    value_scale: Array | None = None,
    rotary: Rotary | None = None,
    stream: Stream = 0,
) -> None:
    """Write K and V of T new tokens of one layer to the slots that ``Sequence.append`` returned.

    ``key`` and ``value`` [T, Hkv, D] of the pool's dtype, or of float32, float16 or bfloat16 for a pool of e4m3 or
    int8, which holds them divided by ``key_scale`` and ``value_scale``, float32 [Hkv] or [1]. ``slots`` int64 [T],
    those of several sequences one after the other; a token whose slot is negative is skipped. With ``rotary`` keys are
    turned by their positions first (``kernels_cu.launch.rotate_query`` turns queries).

    Raises RangeError for a layer that the pool does not have, or a slot, if the slots are on the host; a device's are
    not looked at. kernels_cu.LaunchError for arrays that do not fit.
    """
    pool.check_usable()
    end = pool.block_pool.rows.blocks * pool.layout.block_size
    if isinstance(slots, list | tuple):
        given = np.asarray(slots)
        if given.size and given.dtype.kind != "i":
            raise RangeError(f"slots must be whole numbers of 64 bits, not {given.dtype}")
        slots = given.astype(np.int64)
    if isinstance(slots, np.ndarray) and slots.size and not is_view(slots) and int(slots.max()) >= end:
        raise RangeError(f"slot {slots.max()} is not there; the pool has slots 0 to {end - 1}")
    launch.append_kv(
        pool.device,
        pool.kv(layer),
        key,
        value,
        np.asarray(slots, like=key),
        key_scale=key_scale,
        value_scale=value_scale,
        rotary=rotary,
        stream=stream_handle(stream),
    )


def decode(
    pool: KVPool,
    layer: int,
    query: Array,
    sequences: Attended,
    *,
    scoring: Scoring | None = None,
    window: int | None = None,
    lse: Array | None = None,
    kernel: str | None = None,
    stream: Stream = 0,
) -> Array:
    """Attention of one query token of each sequence over all its tokens: ``query`` and the result [B, Hq, D].

    The query's token is the last one of its sequence. A sequence without tokens gives zeros. For the options see above.

    Raises RangeError for a layer that the pool does not have or a window below 1, ClosedError for a freed sequence,
    ValueError for one of another pool, a ``query`` with other rows than sequences or an unknown kernel,
    kernels_cu.LaunchError for arrays that do not fit, or a cache or option that the kernel does not have.
    """
    step = step_tables(pool, sequences, query)
    if len(query) != len(sequences):
        raise ValueError(f"query has {len(query)} rows for {len(sequences)} sequences; give one row a sequence")
    options = _options(pool, step.lengths, scoring, window, lse, stream)
    return decode_step(pool, pool.kv(layer), query, step, options, kernel)


def prefill(
    pool: KVPool,
    layer: int,
    query: Array,
    sequences: Attended,
    query_lengths: Sequences[int],
    *,
    causal: bool = True,
    scoring: Scoring | None = None,
    window: int | None = None,
    lse: Array | None = None,
    kernel: str | None = None,
    stream: Stream = 0,
) -> Array:
    """Attention of the last ``query_lengths`` tokens of each sequence over all its tokens, those included.

    ``query`` and the result [N, Hq, D] hold the tokens of all sequences one after the other; their K and V were
    appended already. A whole prompt is a chunk like any other: with L tokens in a sequence and T of them in the query,
    query i stands at position L - T + i and sees what stands up to there (the causal mask is aligned at the end), or
    everything if not ``causal``. For the options see above.

    Raises what ``decode`` does, and ValueError for ``query_lengths`` that do not add up to the query's rows or are
    longer than their sequences.
    """
    step = step_tables(pool, sequences, query)
    kv = pool.kv(layer)
    heads = query.shape[1] if query.ndim == 3 else 0
    plan = plan_prefill(query_lengths, step.lengths, heads, kv.kv_heads)
    if len(query) != plan.tokens:
        raise ValueError(f"query has {len(query)} rows, query_lengths add up to {plan.tokens}; give one row a token")
    options = _options(pool, step.lengths, scoring, window, lse, stream)
    step.check_window(options.window, np.asarray(query_lengths))
    out = np.empty_like(query)
    chosen = choose_kernel(pool.device, "paged_prefill", kv, query, options, kernel)
    run = prefill_fast if chosen == "fast" else prefill_simple
    run(pool, kv, query, step.tables, plan, out, causal, options)
    return out


def _options(
    pool: KVPool, lengths: Tables, scoring: Scoring | None, window: int | None, lse: Array | None, stream: Stream
) -> AttentionOptions:
    effective = window_of(pool.layout.spec.window, window, int(lengths.max(initial=0)))
    return AttentionOptions(scoring or Scoring(), effective, lse, stream_handle(stream))
