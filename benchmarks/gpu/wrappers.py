"""paged.attention and paged.span_attention as a server calls them: every kernel is right, and a call costs the host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import paged
from kernels_cu import Scoring, reference_attention
from paged import attention, span_attention

from .bench import Bench
from .contents import normal
from .decode import ALLOWED, largest, peaked
from .side import Side

LENGTHS, NEW = (1, 47, 800, 3000), (1, 47, 100, 200)
KV_HEADS, GROUP, HEAD_DIM, DTYPE = 8, 4, 128, "bfloat16"
SOFT_CAP = 20.0
KERNELS = ("chosen", "simple", "fast", "soft cap")
"""Left to be chosen, each by name, and with an option that only one of them has."""
CALLS = 20

Attend = Callable[..., Any]


def names() -> list[str]:
    """One item a function."""
    return list(_ITEMS)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Call a function with each kernel, compare with float64, and time the calls of the one that is chosen."""
    side = bench.side
    lengths = tuple(min(length, 60) for length in LENGTHS) if side.dry else LENGTHS
    new = tuple(map(min, NEW, lengths)) if name == "attention.prefill" else (1,) * len(lengths)
    drawn = [[normal((length, KV_HEADS, HEAD_DIM), DTYPE, length + part) for part in (0, 1)] for length in lengths]
    query = peaked((sum(new), KV_HEADS * GROUP, HEAD_DIM), DTYPE, 0)
    with _ITEMS[name](side, drawn, side.array(query), new) as attend:
        errors = {f"error {kernel}": _error(side, attend, kernel, drawn, query, new) for kernel in KERNELS}
        started = time.perf_counter()
        for _ in range(CALLS):
            attend()
        host = (time.perf_counter() - started) / CALLS
        side.device.synchronize()
    worst = max(errors.values())
    ok = all(error <= ALLOWED[DTYPE] for error in errors.values())  # False for NaN
    return {"ok": ok, "error_float64": worst, "allowed": ALLOWED[DTYPE], "host_us": host * 1e6, **errors}


def _error(side: Side, attend: Attend, kernel: str, drawn: Any, query: Any, new: Any) -> float:
    cap = SOFT_CAP if kernel == "soft cap" else None
    asked = {"kernel": kernel} if kernel in ("simple", "fast") else {}
    out = side.host(attend(scoring=Scoring(soft_cap=cap), **asked)).astype(np.float64)
    rows = np.split(query, np.cumsum(new)[:-1])
    wanted = [reference_attention.attention(part, *kv, soft_cap=cap)[0] for part, kv in zip(rows, drawn, strict=True)]
    return largest(out - np.concatenate(wanted))


@contextlib.contextmanager
def _decode(side: Side, drawn: Any, query: Any, new: Any) -> Iterator[Attend]:  # noqa: ARG001
    with _filled_pool(side, drawn) as (pool, sequences):
        yield lambda **options: attention.decode(pool, 1, query, sequences, **options)


@contextlib.contextmanager
def _prefill(side: Side, drawn: Any, query: Any, new: Any) -> Iterator[Attend]:
    with _filled_pool(side, drawn) as (pool, sequences):
        yield lambda **options: attention.prefill(pool, 1, query, sequences, new, **options)


@contextlib.contextmanager
def _spans(side: Side, drawn: Any, query: Any, new: Any) -> Iterator[Attend]:  # noqa: ARG001
    spec, lengths = paged.KVSpec(2, KV_HEADS, HEAD_DIM, DTYPE), [len(key) for key, _ in drawn]
    with paged.ContiguousKV(side.device, spec, max(lengths), len(drawn)) as kv:
        spans = [kv.open() for _ in drawn]
        for span, length in zip(spans, lengths, strict=True):
            span.append(length)
        key, value = (side.array(np.concatenate(rows)) for rows in zip(*drawn, strict=True))
        span_attention.append(kv, 1, key, value, spans, lengths)
        yield lambda **options: span_attention.decode(kv, 1, query, spans, **options)


@contextlib.contextmanager
def _filled_pool(side: Side, drawn: Any) -> Iterator[tuple[paged.KVPool, list[paged.Sequence]]]:
    """A pool of two layers whose second has these K and V."""
    layout = paged.KVLayout(paged.KVSpec(2, KV_HEADS, HEAD_DIM, DTYPE))
    blocks = sum(-(-len(key) // layout.block_size) for key, _ in drawn)
    with paged.KVPool(side.device, layout, blocks=blocks) as pool:
        sequences = [pool.sequence() for _ in drawn]
        for sequence, (key, value) in zip(sequences, drawn, strict=True):
            slots = sequence.append(len(key))
            attention.append(pool, 1, side.array(key), side.array(value), slots)
        yield pool, sequences


_ITEMS = {"attention.decode": _decode, "attention.prefill": _prefill, "span_attention.decode": _spans}
