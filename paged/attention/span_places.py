"""Where kernels find the tokens of a ContiguousKV: one layer's K and V, and the slots and starts of spans.

Token t of span i lies i x span_stride + t x unit bytes behind the first token of its plane. To kernels that take slots
that is a pool of blocks of one token, which lie one step apart: the largest length that both numbers are multiples of.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from kernels_cu import PagedKV
from vmm import RangeError

from ..contiguous import ContiguousKV
from ..layout import K, V, check_place
from ..span import Span
from ..tables.block_table import Slots


def span_kv(kv: ContiguousKV, layer: int) -> PagedKV:
    """K and V of one layer. Raises RangeError for a layer that is not there, ValueError for a latent without V."""
    spec = kv.spec
    layer = check_place("layer", layer, spec.layers)
    if spec.components == 1:
        raise ValueError("attention over one latent component is not supported yet; K and V are needed")
    return PagedKV(
        key=kv.plane_address(layer, K),
        value=kv.plane_address(layer, V),
        dtype=spec.dtype,
        layout="nhd",
        block_size=1,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        block_stride=_step(kv) // spec.element_bytes,
        head_stride=spec.head_dim,
        slot_stride=kv.unit // spec.element_bytes,
        blocks=kv.max_sequences * (kv.span_stride // _step(kv)),
    )


def span_slots(kv: ContiguousKV, spans: Sequence[Span], new_lengths: Sequence[int]) -> Slots:
    """int64: the slots of the last ``new_lengths`` tokens of each span, span after span.

    Raises RangeError for more tokens than a span has, what ``ContiguousKV.check_mine`` raises for a span, and
    ValueError for other counts than spans.
    """
    if len(spans) != len(new_lengths):
        raise ValueError(f"new_lengths has {len(new_lengths)} counts for {len(spans)} spans; give one a span")
    step, places = _step(kv), [np.empty(0, np.int64)]
    for span, new in zip(spans, new_lengths, strict=True):
        kv.check_mine(span)
        new = operator.index(new)
        if not 0 <= new <= span.length:
            raise RangeError(f"span {span.index} has {span.length} tokens, {new} cannot be its last; append them first")
        tokens = np.arange(span.length - new, span.length, dtype=np.int64)
        places.append(span.index * (kv.span_stride // step) + tokens * (kv.unit // step))
    return np.concatenate(places)


def span_starts(kv: ContiguousKV, spans: Sequence[Span]) -> Slots:
    """int64 [B]: elements from the first token of a layer to token 0 of each span."""
    for span in spans:
        kv.check_mine(span)
    indices = np.array([span.index for span in spans], np.int64)
    starts: Slots = indices * (kv.span_stride // kv.spec.element_bytes)
    return starts


def _step(kv: ContiguousKV) -> int:
    return math.gcd(kv.span_stride, kv.unit)
