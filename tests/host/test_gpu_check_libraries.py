"""benchmarks/gpu_check.py with NumPy in the place of the libraries of a GPU: CuPy, torch and FlashInfer."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import vmm

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


class _Stream:
    """A stream of CuPy's kind on the host driver: what is called between begin and end of a capture is counted."""

    def __init__(self, non_blocking):
        assert non_blocking
        self.ptr, self.device, self.steps = 0, None, []

    def __enter__(self):
        self.steps.append("enter")
        return self

    def __exit__(self, *exc):
        self.steps.append("exit")

    def begin_capture(self):
        self.steps.append("begin")

    def end_capture(self):
        self.steps.append("end")
        return SimpleNamespace(launch=lambda stream: self.steps.append("launch" if stream is self else "astray"))


@pytest.mark.usefixtures("compiler")
def test_the_way_of_a_gpu_with_numpy_in_the_place_of_cupy(monkeypatch):
    """Everything that a run on a GPU does and a dry run does not, as far as it can be done without one."""
    from gpu import decode, side
    from gpu.bench import Bench
    from gpu.cases import vary
    from gpu.kv_memory import KVMemory
    from gpu.timer import FEWEST_REPLAYS, FLUSHES, MOST_REPLAYS

    freed = []
    pool = SimpleNamespace(free_all_blocks=lambda: freed.append(1))
    stand_in = SimpleNamespace(
        array=np.array, full=np.full, cuda=SimpleNamespace(Stream=_Stream), get_default_memory_pool=lambda: pool
    )
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    with vmm.Device(driver=vmm.HostDriver(memory="256 MiB")) as device:
        monkeypatch.setattr(side.vmm, "Device", lambda *_, **__: contextlib.nullcontext(device))
        bench = Bench(dry=False, deadline=0)
        case = vary(batch=2, context=40, kv_heads=2, group=2)
        memory = KVMemory(bench.side, case)
        try:
            row = decode.measure(bench, case, memory)
        finally:
            memory.close()
        bench.trim()
        steps = bench.side._stream.steps
        bench.close()
    assert row["ok"]
    assert FEWEST_REPLAYS <= row["replays"] <= MOST_REPLAYS
    assert row["calls"] > memory.layers
    assert steps[:4] == ["enter", "begin", "end", "exit"]
    flush = ["enter", "exit"]
    assert steps[4:] == [*flush, "launch"] * (row["replays"] + 1)
    assert FLUSHES > 1
    assert freed == [1]


class _Tensors:
    """The part of torch that is used, on NumPy arrays."""

    float16, bfloat16, uint8 = "float16", "bfloat16", "uint8"

    def __init__(self):
        self.calls = []
        self.nn = SimpleNamespace(functional=SimpleNamespace(scaled_dot_product_attention=self._attention))

    def device(self, name):
        assert name == "cpu"
        return name

    def randn(self, shape, dtype, device):
        assert (dtype, device) in {("bfloat16", "cpu"), ("float16", "cpu")}
        return np.zeros(shape, np.float16)

    def empty(self, size, dtype, device):
        assert (dtype, device) == ("uint8", "cpu")
        return np.empty(size, np.uint8)

    def empty_like(self, array):
        return np.empty_like(array)

    def from_numpy(self, array):
        assert array.dtype == np.int32
        return SimpleNamespace(to=lambda device: array if device == "cpu" else None)

    def _attention(self, query, key, value, enable_gqa):
        self.calls.append((query.shape, key.shape, value.shape, enable_gqa))


class _Wrapper:
    """FlashInfer's decode wrapper: it checks that the page table is whole, and what it is given to read."""

    def __init__(self, workspace, layout, use_tensor_cores):
        assert (layout, use_tensor_cores, workspace.dtype) == ("HND", True, np.uint8)
        self.calls = []

    def plan(self, starts, indices, last, query_heads, kv_heads, head_dim, page_size, q_data_type, kv_data_type):
        assert sorted(indices) == list(range(starts[-1]))
        self.lengths = ((np.diff(starts) - 1) * page_size + last).tolist()
        assert all(1 <= count <= page_size for count in last)
        self.shapes = (len(last), query_heads, head_dim), (len(indices), 2, kv_heads, page_size, head_dim)
        assert q_data_type == kv_data_type

    def run(self, query, cache, out):
        assert (query.shape, cache.shape) == self.shapes
        assert out.shape == query.shape
        self.calls.append(cache)


def test_torch_and_flashinfer_get_the_same_shapes(monkeypatch):
    from gpu import rivals
    from gpu.bench import Bench
    from gpu.cases import vary

    torch, wrappers = _Tensors(), []

    def make(*arguments, **options):
        wrappers.append(_Wrapper(*arguments, **options))
        return wrappers[-1]

    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=make))
    case = vary(group=8).small()
    bench = Bench(dry=True, deadline=0)
    try:
        rows = [rivals.run(f"{library}: group 8", bench) for library in ("sdpa", "flashinfer")]
    finally:
        bench.close()
    assert all(row["kv_bytes"] == case.kv_bytes and row["us"] > 0 for row in rows)
    query, kv = (case.batch, case.query_heads, 1, 128), (case.batch, case.kv_heads, case.context, 128)
    assert set(torch.calls) == {(query, kv, kv, True)}
    (wrapper,) = wrappers
    assert wrapper.lengths == case.lengths
    assert wrapper.calls


def test_a_library_that_is_not_there_is_said_to_be_absent(monkeypatch):
    from gpu import rivals

    monkeypatch.setattr(rivals, "LIBRARIES", {"sdpa": "no_such_library"})
    assert rivals.names() == ["sdpa"]
    assert rivals.run("sdpa", None) == {"absent": "no_such_library is not installed"}
