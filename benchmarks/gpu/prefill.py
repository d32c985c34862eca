"""paged_prefill: whole prompts, and a chunk of long ones; single rows are compared with the simple decode kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels_cu import launch, plan_prefill

from .bench import Bench
from .cases import Case, vary
from .decode import ALLOWED, largest, peaked
from .kv_memory import KVMemory
from .side import Side

CHECKED_ROWS = 64
_SHAPES = {
    "prefill 1 x 8192": (vary(batch=1), 8192),
    "prefill 8 x 1024": (vary(batch=8, context=1024), 1024),
    "prefill 8 x 512 of 8192": (vary(batch=8), 512),
    "prefill 1 x 8192, group 1, float16": (vary(batch=1, group=1, dtype="float16"), 8192),
}


def names() -> list[str]:
    """One item a shape."""
    return list(_SHAPES)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Check and time one shape; operations are 4 D Hq for each pair of a query and a token that it sees."""
    case, new = _SHAPES[name]
    case = case.small() if bench.side.dry else case
    memory, side = KVMemory(bench.side, case), bench.side
    try:
        lengths = np.array(case.lengths)
        plan = plan_prefill(np.minimum(lengths, new), lengths, case.query_heads, case.kv_heads)
        query = peaked((plan.tokens, case.query_heads, case.head_dim), case.dtype, 0)
        queries, out = side.array(query), side.poisoned(query.shape, case.dtype)
        tables, moved = side.array(np.ascontiguousarray(memory.tables[0])), plan.on(side.array)

        def call(stream: int) -> None:
            launch.paged_prefill(side, memory.kv(0), moved, queries, tables, out, stream=stream)

        call(side.stream)
        errors = _errors(side, case, memory, plan, query, side.host(out).astype(np.float64))
        timing = bench.timer.time([call])
        seen = sum(int(length) * count - count * (count - 1) // 2 for length, count in _counts(lengths, new))
        return {**errors, **timing.row(), "flops": 4 * case.head_dim * case.query_heads * seen, "tokens": plan.tokens}
    finally:
        memory.close()


def _counts(lengths: Any, new: int) -> list[tuple[int, int]]:
    return [(int(length), int(min(length, new))) for length in lengths]


def _errors(side: Side, case: Case, memory: KVMemory, plan: Any, query: Any, out: Any) -> dict[str, Any]:
    """A query that stands at position p sees what decode of a sequence of p + 1 tokens sees."""
    rows = np.unique(np.linspace(0, plan.tokens - 1, CHECKED_ROWS).astype(np.int64))
    sequence = np.searchsorted(plan.query_starts, rows, "right") - 1
    visible = plan.lengths[sequence] - (plan.query_starts[sequence + 1] - rows) + 1
    found = side.poisoned((len(rows), *query.shape[1:]), case.dtype)
    launch.paged_attention_simple(
        side,
        memory.kv(0),
        side.array(np.ascontiguousarray(query[rows])),
        side.array(np.ascontiguousarray(memory.tables[0][sequence])),
        side.array(visible.astype(np.int32)),
        found,
        stream=side.stream,
    )
    error, allowed = largest(out[rows] - side.host(found).astype(np.float64)), ALLOWED[case.dtype]
    finite = bool(np.isfinite(out).all())
    return {"error_simple": error, "allowed": allowed, "ok": bool(error <= 2 * allowed) and finite}
