"""contiguous_decode on a ContiguousKV: decode without a block table, where the driver does the paging."""

from __future__ import annotations

from typing import Any

import numpy as np

import paged
from kernels_cu import PagedKV, launch, plan_decode, reference
from kernels_cu.launches.decode_build import decode_build
from paged.layout import K, V

from .bench import Bench
from .cases import Case, vary
from .contents import fill
from .decode import ALLOWED, REFERENCE_TOKENS, largest, peaked
from .side import Call, Side

LAYERS = 2
_CASES = {
    f"contiguous decode, {case.name}": case
    for case in (
        vary(),
        vary(group=1),
        vary(group=8),
        vary(dtype="float16"),
        vary(context=1536),
        vary(batch=1, context=131072),
    )
}


def names() -> list[str]:
    """One item a case."""
    return list(_CASES)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Check and time one case."""
    case = _CASES[name].small() if bench.side.dry else _CASES[name]
    spec = paged.KVSpec(LAYERS, case.kv_heads, case.head_dim, case.dtype)
    with paged.ContiguousKV(bench.side.device, spec, case.context, case.batch) as spans:
        for length in case.lengths:
            spans.open().append(length)
        fill(bench.side, spans.range, case.dtype)
        decode = SpanRun(bench.side, case, spans)
        errors = decode.errors()
        calls = [decode.call(layer) for layer in range(LAYERS)]
        calls *= bench.timer.repeats(case.kv_bytes, len(calls))
        timing = bench.timer.time(calls)
        bench.side.device.synchronize()
    moved = case.moved_bytes(decode.plan.partials * min(case.group, decode.plan.heads)) - 4 * case.blocks()
    return {**errors, **timing.row(), "bytes": moved, "kv_bytes": case.kv_bytes}


class SpanRun:
    """Launches over all spans of ``spans``, which are open in the order of the sequences."""

    def __init__(self, side: Side, case: Case, spans: paged.ContiguousKV) -> None:
        self._side, self._case, self._spans = side, case, spans
        build = decode_build(case.dtype, case.head_dim, "hnd", side.arch)
        shares = side.multiprocessors * build.thread_blocks
        self.plan = plan_decode(np.array(case.lengths), case.query_heads, case.kv_heads, shares=shares)
        self._plan = self.plan.on(side.array)
        self._counts = side.array(np.array(case.lengths, np.int32))
        stride = spans.span_stride // spec_bytes(spans)
        self._starts = side.array(np.arange(case.batch, dtype=np.int64) * stride)
        self._query = peaked((case.batch, case.query_heads, case.head_dim), case.dtype, 0)
        self._queries, self._out = side.array(self._query), side.poisoned(self._query.shape, case.dtype)
        partials = (self.plan.partials, self.plan.heads)
        self._partials = (side.poisoned((*partials, case.head_dim), "float32"), side.poisoned(partials, "float32"))

    def call(self, layer: int) -> Call:
        """What launches the kernel over one layer."""
        kv = self._kv(layer)

        def decode(stream: int) -> None:
            launch.contiguous_decode(
                self._side,
                kv,
                self._plan,
                self._queries,
                self._starts,
                self._counts,
                self._out,
                partial_out=self._partials[0],
                partial_lse=self._partials[1],
                stream=stream,
            )

        return decode

    def errors(self) -> dict[str, Any]:
        """Against the simple kernel, which sees the spans as blocks in order, and float64 for one sequence."""
        side, case, kv = self._side, self._case, self._kv(LAYERS - 1)
        self.call(LAYERS - 1)(side.stream)
        out = side.host(self._out).astype(np.float64)
        side.poison(self._out)
        blocks = -(-case.context // case.block_size)
        first = np.arange(case.batch) * (self._spans.span_stride // (case.block_size * self._spans.unit))
        tables = side.array((first[:, None] + np.arange(blocks)).astype(np.int32))
        launch.paged_attention_simple(side, kv, self._queries, tables, self._counts, self._out, stream=side.stream)
        simple = side.host(self._out).astype(np.float64)
        found = {"error_simple": largest(out - simple), "allowed": ALLOWED[case.dtype]}
        ok = found["error_simple"] <= 2 * found["allowed"]
        if case.context <= REFERENCE_TOKENS:
            found["error_float64"] = largest(out[-1:] - self._wanted(kv))
            ok &= found["error_float64"] <= found["allowed"]
        return {**found, "ok": bool(ok)}

    def _wanted(self, kv: PagedKV) -> Any:
        case, at = self._case, (self._case.batch - 1) * self._spans.span_stride
        shape = (case.lengths[-1], case.kv_heads, case.head_dim)
        key, value = (self._side.read(start + at, case.dtype, shape) for start in (kv.key, kv.value))
        return reference.paged_attention(self._query[-1:], [key], [value])

    def _kv(self, layer: int) -> PagedKV:
        case, spans = self._case, self._spans
        row = case.kv_heads * case.head_dim
        key, value = (spans.range.base + (layer * spans.spec.components + part) * spans.plane_stride for part in (K, V))
        return PagedKV(
            key, value, case.dtype, "nhd", case.block_size, case.kv_heads, case.head_dim,
            case.block_size * row, case.head_dim, row,
        )  # fmt: skip


def spec_bytes(spans: paged.ContiguousKV) -> int:
    """Bytes of one number."""
    return spans.spec.element_bytes
