"""Decode: each case is compared with the simple kernel and with float64, then timed in a graph over rotating inputs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels_cu import PagedKV, Scoring, launch, plan_decode, reference
from kernels_cu.launches.decode_build import decode_build

from .bench import Bench
from .cases import Case, decode_cases
from .contents import LARGEST, normal
from .kv_memory import KVMemory
from .side import DTYPES, Call, Side

REFERENCE_TOKENS = 4096
ALLOWED = {"float16": LARGEST / 1024 + 1e-3, "bfloat16": 8 * (LARGEST / 1024 + 1e-3)}
"""Largest error against float64."""
PEAK = 3.0
"""Deviation of the scores: few tokens have most of the weight, so that one that is missed shows."""


def names() -> list[str]:
    """The names of all cases, the most telling first."""
    return [case.name for case in decode_cases()]


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Check and time the case of that name."""
    case = next(case for case in decode_cases() if case.name == name)
    if not bench.dry:
        return _run(case, bench)
    if case.small() not in bench.dry_results:  # many cases differ in size alone
        bench.dry_results[case.small()] = {**_run(case.small(), bench), "done_as": name}
    return dict(bench.dry_results[case.small()])


def _run(case: Case, bench: Bench) -> dict[str, Any]:
    memory = KVMemory(bench.side, case)
    try:
        return {**measure(bench, case, memory), "layers": memory.layers, "batches": memory.batches}
    finally:
        memory.close()


def measure(bench: Bench, case: Case, memory: KVMemory) -> dict[str, Any]:
    """The errors of a case, and its time."""
    decode = PagedRun(bench.side, case, memory)
    errors = check(bench.side, case, memory)
    calls = [decode.call(batch, layer) for batch in range(memory.batches) for layer in range(memory.layers)]
    calls *= bench.timer.repeats(case.kv_bytes, len(calls))
    timing = bench.timer.time(calls)
    bytes_moved = case.moved_bytes(decode.plan.partials * min(case.group, decode.plan.heads))
    return {
        **errors,
        **timing.row(),
        "bytes": bytes_moved,
        "kv_bytes": case.kv_bytes,
        "shares": decode.plan.shares,
        "partials": decode.plan.partials,
    }


def check(side: Side, case: Case, memory: KVMemory) -> dict[str, Any]:
    """Errors of the last batch in the last layer: of all its sequences, and of one against float64."""
    batch, layer = memory.batches - 1, memory.layers - 1
    every = PagedRun(side, case, memory, rows=min(case.batch, _MOST_ROWS[case.dtype]))
    out = every.result(batch, layer)
    other = every.simple(batch, layer)
    row = case.batch - 1
    one = PagedRun(side, case, memory, rows=1, first=row, most_tokens=REFERENCE_TOKENS)
    found = one.result(batch, layer)
    key, value = memory.rows(batch, row, layer, one.lengths[0])
    wanted = reference.paged_attention(one.query_values(batch), [key], [value])
    allowed = ALLOWED[case.query_dtype]
    errors = {"error_simple": largest(out - other), "error_float64": largest(found - wanted)}
    ok = errors["error_simple"] <= 2 * allowed and errors["error_float64"] <= allowed  # False for NaN too
    return {**errors, "allowed": allowed, "ok": bool(ok)}


_MOST_ROWS = {"float16": 1 << 16, "bfloat16": 1 << 16, "e4m3": 4}
"""Sequences that are compared with the simple kernel; those of e4m3 are copied to bfloat16 for it."""


class PagedRun:
    """Launches of a case's kernel over ``rows`` of its sequences from ``first`` on, cut off at ``most_tokens``."""

    def __init__(
        self, side: Side, case: Case, memory: KVMemory, rows: int = 0, first: int = 0, most_tokens: int = 1 << 30
    ) -> None:
        self.side, self.case, self.memory = side, case, memory
        self._rows = slice(first, first + (rows or case.batch))
        self.lengths = [min(length, most_tokens) for length in case.lengths[self._rows]]
        build = decode_build(case.dtype, case.head_dim, "hnd", side.arch)
        shares = side.multiprocessors * build.thread_blocks
        self.plan = plan_decode(np.array(self.lengths), case.query_heads, case.kv_heads, shares=shares)
        self._plan = self.plan.on(side.array)
        self._counts = side.array(np.array(self.lengths, np.int32))
        self._tables = [side.array(np.ascontiguousarray(tables[self._rows])) for tables in memory.tables]
        self._queries = [side.array(self.query_values(batch)) for batch in range(memory.batches)]
        self._outs = [side.poisoned(query.shape, case.query_dtype) for query in self._queries]
        partials = (self.plan.partials, self.plan.heads)
        self._partials = (side.poisoned((*partials, case.head_dim), "float32"), side.poisoned(partials, "float32"))
        self._scoring = Scoring(**memory.scales)

    def query_values(self, batch: int) -> Any:
        """The queries of a batch in NumPy."""
        shape = (self.case.batch, self.case.query_heads, self.case.head_dim)
        return peaked(shape, self.case.query_dtype, batch)[self._rows]

    def call(self, batch: int, layer: int) -> Call:
        """What launches the case's kernel."""
        kv = self.memory.kv(layer)
        if self.case.kernel == "paged_attention_simple":
            return functools.partial(self._simple, kv, self._tables[batch], batch)
        return functools.partial(self._fast, kv, batch)

    def result(self, batch: int, layer: int) -> Any:
        """The case's kernel's output, in float64 of NumPy, into memory that held NaN."""
        self.side.poison(self._outs[batch])
        self.call(batch, layer)(self.side.stream)
        return self.side.host(self._outs[batch]).astype(np.float64)

    def simple(self, batch: int, layer: int) -> Any:
        """The other kernel's output for the same: the simple one's, or the fast one's where the simple one is timed."""
        self.side.poison(self._outs[batch])
        kv, stream = self.memory.kv(layer), self.side.stream
        if self.case.kernel == "paged_attention_simple" and self.case.layout != "vllm":
            self._fast(kv, batch, stream)
        elif self.case.dtype == "e4m3":
            self._simple(*self._widened(kv, batch), batch, stream)
        else:
            self._simple(kv, self._tables[batch], batch, stream)
        return self.side.host(self._outs[batch]).astype(np.float64)

    def _fast(self, kv: PagedKV, batch: int, stream: int) -> None:
        launch.paged_decode(
            self.side,
            kv,
            self._plan,
            self._queries[batch],
            self._tables[batch],
            self._counts,
            self._outs[batch],
            partial_out=self._partials[0],
            partial_lse=self._partials[1],
            scoring=self._scoring,
            stream=stream,
        )

    def _simple(self, kv: PagedKV, tables: Any, batch: int, stream: int) -> None:
        query, out = self._queries[batch], self._outs[batch]
        launch.paged_attention_simple(self.side, kv, query, tables, self._counts, out, stream=stream)

    def _widened(self, kv: PagedKV, batch: int) -> tuple[PagedKV, Any]:
        """The cache of these sequences in bfloat16, which holds every number of e4m3, and its block tables."""
        case, size = self.case, self.case.block_size
        tables = self.memory.tables[batch][self._rows]
        slots = (tables.astype(np.int64)[:, :, None] * size + np.arange(size)).reshape(-1)
        shape = (len(slots), case.kv_heads, case.head_dim)
        self._wide = key, value = (self.side.poisoned(shape, "bfloat16"), self.side.poisoned(shape, "bfloat16"))
        launch.gather_kv(
            self.side, kv, self.side.array(slots), key, value, stream=self.side.stream, **self.memory.scales
        )
        row = case.kv_heads * case.head_dim
        wide = PagedKV(
            address(key), address(value), "bfloat16", "nhd", size, *shape[1:], size * row, case.head_dim, row
        )
        return wide, self.side.array(np.arange(tables.size, dtype=np.int32).reshape(tables.shape))


def peaked(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Queries in NumPy that give each row of scores a few high peaks."""
    return (normal(shape, "float32", 100 + seed) * PEAK).astype(DTYPES[dtype])


def address(array: Any) -> int:
    """Where an array of either library begins."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def largest(difference: Any) -> float:
    return float(np.abs(difference).max())
