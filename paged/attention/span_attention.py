"""Append, decode and gather on a ContiguousKV: the same attention without a block table, where the driver pages.

Beside ``attention`` it shows what a block table costs and what it saves. Options are those of ``attention.decode``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np

from kernels_cu import PagedKV, Rotary, Scoring, launch
from kernels_cu.paged_kv import NARROW
from vmm import Stream, stream_handle

from ..contiguous import ContiguousKV
from ..span import Span
from ..tables.block_table import Slots, Tables, batch_lengths
from .kernel_choice import choose_kernel
from .last_plans import decode_work
from .options import AttentionOptions, window_of
from .span_places import span_kv, span_slots, span_starts

__all__ = ["append", "decode", "gather"]

Array = Any
"""A numpy.ndarray on the host driver, a cupy.ndarray on a GPU."""
_TOKENS = 16
"""In a block, where the simple kernel sees a span as blocks in order."""


def append(
    kv: ContiguousKV,
    layer: int,
    key: Array,
    value: Array,
    spans: Sequences[Span],
    new_lengths: Sequences[int],
    *,
    key_scale: Array | None = None,
    value_scale: Array | None = None,
    rotary: Rotary | None = None,
    stream: Stream = 0,
) -> None:
    """Write K and V of the last ``new_lengths`` tokens of each span, for which ``Span.append`` has made room.

    ``key`` and ``value`` [T, Hkv, D] hold the tokens of all spans one after the other; scales and ``rotary`` are those
    of ``attention.append``. Raises RangeError for a layer or tokens that are not there, ClosedError for a closed span,
    StateError for another's, kernels_cu.LaunchError for arrays that do not fit.
    """
    kv.range.check_awake()
    slots = np.asarray(span_slots(kv, spans, new_lengths), like=key)
    launch.append_kv(
        kv.device,
        span_kv(kv, layer),
        key,
        value,
        slots,
        key_scale=key_scale,
        value_scale=value_scale,
        rotary=rotary,
        stream=stream_handle(stream),
    )


def decode(
    kv: ContiguousKV,
    layer: int,
    query: Array,
    spans: Sequences[Span],
    *,
    scoring: Scoring | None = None,
    window: int | None = None,
    lse: Array | None = None,
    kernel: str | None = None,
    stream: Stream = 0,
) -> Array:
    """Attention of one query token of each span over all its tokens: ``query`` and the result [B, Hq, D].

    The fast kernel is contiguous_decode. Raises what ``append`` does, and ValueError for a ``query`` with other rows
    than spans or an unknown kernel.
    """
    kv.range.check_awake()
    place, starts = span_kv(kv, layer), span_starts(kv, spans)
    if len(query) != len(spans):
        raise ValueError(f"query has {len(query)} rows for {len(spans)} spans; give one row a span")
    lengths = batch_lengths([span.length for span in spans])
    effective = window_of(kv.spec.window, window, int(lengths.max(initial=0)))
    options = AttentionOptions(scoring or Scoring(), effective, lse, stream_handle(stream))
    out = np.empty_like(query)
    chosen = choose_kernel(kv.device, "contiguous_decode", place, query, options, kernel)
    run = _decode_fast if chosen == "fast" else _decode_simple
    run(kv, place, query, starts, lengths, out, options)
    return out


def gather(
    kv: ContiguousKV, layer: int, span: Span, *, key_scale: Array | None = None, value_scale: Array | None = None
) -> tuple[Array, Array]:
    """Copies of a span's K and V of one layer, [L, Hkv, D] each, when the device's work is done.

    Those of e4m3 or int8 are float32, multiplied by the scales. Raises what ``append`` does.
    """
    kv.range.check_awake()
    kv.check_mine(span)
    dtype = "float32" if kv.spec.dtype in NARROW else kv.spec.dtype
    side = kv.range.array(dtype, 0)
    slots = np.asarray(span_slots(kv, [span], [span.length]), like=side)
    shape = (span.length, kv.spec.kv_heads, kv.spec.head_dim)
    key, value = np.empty_like(side, shape=shape), np.empty_like(side, shape=shape)
    place = span_kv(kv, layer)
    launch.gather_kv(kv.device, place, slots, key, value, key_scale=key_scale, value_scale=value_scale)
    kv.device.synchronize()
    return key, value


def _decode_fast(
    kv: ContiguousKV,
    place: PagedKV,
    query: Array,
    starts: Slots,
    lengths: Tables,
    out: Array,
    options: AttentionOptions,
) -> None:
    plan, partials = decode_work(kv, kv.device, "contiguous_decode", place, query, lengths, options)
    launch.contiguous_decode(
        kv.device,
        place,
        plan,
        query,
        np.asarray(starts, like=query),
        np.asarray(lengths, like=query),
        out,
        lse=options.lse,
        scoring=options.scoring,
        stream=options.stream,
        **partials,
    )


def _decode_simple(
    kv: ContiguousKV,
    place: PagedKV,
    query: Array,
    starts: Slots,
    lengths: Tables,
    out: Array,
    options: AttentionOptions,
) -> None:
    """A launch a span: to the simple kernel it is a sequence whose blocks lie in order."""
    blocks = -(-int(lengths.max(initial=1)) // _TOKENS)
    table = np.asarray(np.arange(max(blocks, 1), dtype=np.int32)[None], like=query)
    counts = np.asarray(lengths, like=query)
    for row, start in enumerate(starts.tolist()):
        behind = start * place.element_bytes
        span = dataclasses.replace(
            place,
            key=place.key + behind,
            value=place.value + behind,
            block_size=_TOKENS,
            block_stride=_TOKENS * place.slot_stride,
            blocks=None,
        )
        rows, scale = slice(row, row + 1), options.scoring.scale
        launch.paged_attention_simple(
            kv.device, span, query[rows], table, counts[rows], out[rows], scale=scale, stream=options.stream
        )
