"""What others reach on the same shapes in the same run: torch's scaled_dot_product_attention, and FlashInfer.

torch gets packed K and V [B, Hkv, L, D], without a block table; FlashInfer pages of 16 tokens in shuffled order.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .bench import Bench
from .cases import Case, decode_cases
from .side import Call, Side
from .timer import COLD

LIBRARIES = {"sdpa": "torch", "flashinfer": "flashinfer"}
MOST_CASES = 32
WORKSPACE_BYTES = 128 << 20


def names() -> list[str]:
    """An item a case and library, those of one case together; a library that is not installed is one item."""
    there = {name: importlib.util.find_spec(package) is not None for name, package in LIBRARIES.items()}
    found = [f"{name}: {case.name}" for case in comparable() for name in LIBRARIES if there[name]]
    return [*found, *(name for name in LIBRARIES if not there[name])]


def comparable() -> list[Case]:
    """The cases that both libraries can do."""
    same = {"shuffled": True, "order": "block", "chunk_mib": 2, "layout": "hnd", "block_size": 16, "kv_heads": 8}
    cases = [
        case
        for case in decode_cases()
        if all(getattr(case, axis) == value for axis, value in same.items())
        and (case.dtype, case.kernel, case.head_dim) in (("float16", *_OURS), ("bfloat16", *_OURS))
    ]
    return cases[:MOST_CASES]


_OURS = ("paged_decode", 128)


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Time one case in one library."""
    library, _, case_name = name.partition(": ")
    if not case_name:
        return {"absent": f"{LIBRARIES[library]} is not installed"}
    case = next(case for case in comparable() if case.name == case_name)
    case = case.small() if bench.side.dry else case
    make = {"sdpa": _sdpa, "flashinfer": _flashinfer}[library]
    graphs = TorchGraphs(bench.side)
    count = max(1, math.ceil(COLD * bench.side.l2_bytes / case.kv_bytes))
    calls = make(case, count, graphs)
    calls *= bench.timer.repeats(case.kv_bytes, len(calls))
    timing = bench.timer.time(calls, capture=graphs.capture)
    del calls
    graphs.close()
    return {**timing.row(), "bytes": case.moved_bytes(), "kv_bytes": case.kv_bytes}


class TorchGraphs:
    """Graphs in torch's own way, whose allocator has to know of them, on the stream that is timed."""

    def __init__(self, side: Side) -> None:
        import torch

        self.torch, self._side = torch, side
        self.device = torch.device("cpu" if side.dry else "cuda:0")
        self._stream = None if side.dry else torch.cuda.ExternalStream(side.stream)

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Normal numbers."""
        return self.torch.randn(shape, dtype=getattr(self.torch, dtype), device=self.device)

    def on_stream(self, work: Callable[[], Any]) -> Call:
        """A call that does ``work`` on the stream."""

        def call(stream: int) -> None:  # noqa: ARG001 - torch's own stream is the same one
            if self._stream is None:
                work()
                return
            with self.torch.cuda.stream(self._stream):
                work()

        return call

    def close(self) -> None:
        """Wait, and give torch's spare memory back."""
        self._side.device.synchronize()
        if self._stream is not None:
            self.torch.cuda.empty_cache()

    def capture(self, calls: Sequence[Call]) -> Callable[[], None]:
        """Capture ``calls`` in one graph, and return what starts it."""
        if self._stream is None:
            return self._side.capture(calls)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self._stream):
            for call in calls:
                call(self._side.stream)
        replay = self.on_stream(graph.replay)
        return lambda: replay(self._side.stream)


def _sdpa(case: Case, count: int, graphs: TorchGraphs) -> list[Call]:
    """One query of each sequence over ``count`` different sets of K and V."""
    attention = graphs.torch.nn.functional.scaled_dot_product_attention
    query = graphs.random((case.batch, case.query_heads, 1, case.head_dim), case.dtype)
    shape = (2, case.batch, case.kv_heads, case.context, case.head_dim)
    sets = [graphs.random(shape, case.dtype) for _ in range(count)]

    gqa = case.group > 1
    return [graphs.on_stream(partial(attention, query, key, value, enable_gqa=gqa)) for key, value in sets]


def _flashinfer(case: Case, count: int, graphs: TorchGraphs) -> list[Call]:
    """Batch decode on tensor cores, planned once, over ``count`` different caches in our own layout."""
    import flashinfer

    torch, size = graphs.torch, case.block_size
    pages = np.array([-(-length // size) for length in case.lengths])
    starts = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)
    indices = np.random.default_rng(1).permutation(starts[-1]).astype(np.int32)
    last = (np.array(case.lengths) - (pages - 1) * size).astype(np.int32)
    query = graphs.random((case.batch, case.query_heads, case.head_dim), case.dtype)
    out, kind = torch.empty_like(query), getattr(torch, case.dtype)
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=graphs.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
    moved = [torch.from_numpy(array).to(graphs.device) for array in (starts, indices, last)]
    wrapper.plan(*moved, case.query_heads, case.kv_heads, case.head_dim, size, q_data_type=kind, kv_data_type=kind)
    shape = (len(indices), 2, case.kv_heads, size, case.head_dim)
    caches = [graphs.random(shape, case.dtype) for _ in range(count)]
    return [graphs.on_stream(partial(wrapper.run, query, cache, out=out)) for cache in caches]
