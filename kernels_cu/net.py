"""A net under the fast kernels: on a GPU where they were never proven, the first use of each compares it with the
simple kernel on a small case. One that disagrees is not used, and a warning says so.

The small case has three sequences whose blocks lie in no order, NaN in every slot without a token, scores with a few
high peaks, and a plan that cuts. It takes less than a second, and waits for the device: not while a graph is captured.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from . import launch
from .arrays import DTYPES, Array, view
from .errors import KernelError
from .paged_kv import ELEMENT_BYTES, NARROW, PagedKV
from .plan import plan_decode
from .plan_prefill import plan_prefill
from .proven import DEVICES
from .scoring import Scoring
from .target import Target

KERNELS = ("paged_decode", "contiguous_decode", "paged_prefill")
LENGTHS, NEW = (1, 47, 300), (1, 20, 47)
KV_HEADS = 2
SHARES = 5
SCALE = 2.0**-5
"""Of a narrow cache: a power of 2, so that what it holds are numbers of the query's type too."""
LARGEST = 4.0
"""No number of the case is larger; a narrow cache of int8 holds no more."""
ALLOWED = {"float16": 2 * LARGEST * 2e-3, "bfloat16": 2 * LARGEST * 1.6e-2}
"""Two kernels that are right may differ by as much: each may be off by half of it."""

Move = Callable[[Any], Array]
"""Takes a NumPy array to where kernels run."""
_right: dict[tuple[object, ...], bool] = {}
_one_at_a_time = threading.Lock()


def holds(
    target: Target,
    device: str,
    kernel: str,
    kv: PagedKV,
    query_dtype: str,
    group: int,
    *,
    move: Move,
    wait: Callable[[], None],
) -> bool:
    """Whether ``kernel`` may be used on the GPU named ``device`` for caches like ``kv`` with ``group`` heads a KV head.

    True without a look where it was proven (see ``proven``), else what a comparison gives, made once a process, kernel
    and shape. ``move`` takes arrays to the device, ``wait`` waits for it. A kernel that is wrong, or that does not
    compile, is a RuntimeWarning. Raises ValueError for a kernel that the net does not know, target.fault(...) where
    the kernel touches memory that it must not.
    """
    if kernel not in KERNELS:
        raise ValueError(f"the net compares {', '.join(KERNELS)}, not {kernel!r}")
    if device in DEVICES:
        return True
    key = (device, target.arch, kernel, kv.dtype, query_dtype, kv.layout, kv.head_dim, kv.block_size, group)
    with _one_at_a_time:
        if key not in _right:
            _right[key] = _agrees(target, device, kernel, SmallCase(kv, query_dtype, group, move, wait))
        return _right[key]


def _agrees(target: Target, device: str, kernel: str, case: SmallCase) -> bool:
    try:
        error = case.difference(target, kernel)
    except KernelError as refused:
        reason = str(refused)
    else:
        if error <= case.allowed:  # False for NaN
            return True
        reason = f"its results differ by {error:.2g}, where {case.allowed:.2g} is allowed"
    warnings.warn(
        f"{kernel} does not agree with the simple kernel on {device}: {reason}; the simple kernel is used instead "
        "(kernel='fast' forces the other)",
        RuntimeWarning,
        stacklevel=4,
    )
    return False


class SmallCase:
    """Three sequences in memory of their own, for caches like ``kv``, and the kernels over them."""

    def __init__(self, kv: PagedKV, query_dtype: str, group: int, move: Move, wait: Callable[[], None]) -> None:
        self.allowed = ALLOWED[query_dtype]
        self._kv, self._dtype, self._move, self._wait = kv, query_dtype, move, wait
        self._heads, self._rng = KV_HEADS * group, np.random.default_rng(0)
        needed = [-(-length // kv.block_size) for length in LENGTHS]
        ends = np.cumsum(needed)
        self._blocks, self._starts = int(ends[-1]), ends - needed
        self._tables = np.zeros((len(needed), max(needed)), np.int32)
        for row, start, count in zip(self._tables, self._starts, needed, strict=True):
            row[:count] = np.arange(start, start + count)

    def difference(self, target: Target, kernel: str) -> float:
        """The largest difference between the results of ``kernel`` and of the simple one; NaN where either is NaN."""
        contiguous = kernel == "contiguous_decode"
        layout = "nhd" if contiguous else self._kv.layout
        if not contiguous:
            self._tables = self._rng.permutation(self._blocks).astype(np.int32)[self._tables]
        numbers = self._numbers(layout)
        cache, wide = self._stored(numbers), numbers.astype(DTYPES[self._dtype])
        memories = [self._move(array.reshape(-1).view(np.int32)) for array in (cache, wide)]
        addresses = [view("memory", memory, target.arch, "int32", (None,)).address for memory in memories]
        narrow = self._described(layout, addresses[0], self._kv.dtype)
        plain = self._described(layout, addresses[1], self._dtype)
        run = {"paged_prefill": self._prefill, "paged_decode": self._paged, "contiguous_decode": self._contiguous}
        found, query, rows, lengths = run[kernel](target, narrow)
        simple = self._simple(target, plain, query, self._tables[rows], lengths)
        del memories
        return float(np.abs(found - simple).max())

    # -- kernels ------------------------------------------------------------------------------------------------

    def _paged(self, target: Target, kv: PagedKV) -> tuple[Any, Any, Any, Any]:
        return self._decode(target, kv, launch.paged_decode, self._tables)

    def _contiguous(self, target: Target, kv: PagedKV) -> tuple[Any, Any, Any, Any]:
        starts = self._starts.astype(np.int64) * kv.block_stride
        return self._decode(target, kv, launch.contiguous_decode, starts)

    def _decode(self, target: Target, kv: PagedKV, kernel: Any, walk: Any) -> tuple[Any, Any, Any, Any]:
        lengths = np.array(LENGTHS, np.int32)
        plan = plan_decode(lengths, self._heads, KV_HEADS, shares=SHARES, least_tiles=1)
        query = self._query(len(lengths))
        queries, out, walks, counts = map(self._move, (query, np.full_like(query, np.nan), walk, lengths))
        shape = (plan.partials, plan.heads)
        parts = [self._move(np.full(extents, np.nan, np.float32)) for extents in ((*shape, kv.head_dim), shape)]
        options = {"partial_out": parts[0], "partial_lse": parts[1], "scoring": self._scoring()}
        moved = plan.on(self._move)
        self._wait()
        kernel(target, kv, moved, queries, walks, counts, out, **options)
        return self._result(out), query, np.arange(len(lengths)), lengths

    def _prefill(self, target: Target, kv: PagedKV) -> tuple[Any, Any, Any, Any]:
        plan = plan_prefill(NEW, LENGTHS, self._heads, KV_HEADS)
        query = self._query(plan.tokens)
        queries, out, tables = map(self._move, (query, np.full_like(query, np.nan), self._tables))
        moved, scoring = plan.on(self._move), self._scoring()
        self._wait()
        launch.paged_prefill(target, kv, moved, queries, tables, out, scoring=scoring)
        seen = [np.arange(length - new, length) + 1 for new, length in zip(NEW, LENGTHS, strict=True)]
        return self._result(out), query, np.repeat(np.arange(len(NEW)), NEW), np.concatenate(seen).astype(np.int32)

    def _simple(self, target: Target, kv: PagedKV, query: Any, tables: Any, lengths: Any) -> Any:
        out = self._move(np.full_like(query, np.nan))
        queries, walks, counts = map(self._move, (query, np.ascontiguousarray(tables), lengths))
        self._wait()
        launch.paged_attention_simple(target, kv, queries, walks, counts, out)
        return self._result(out)

    def _result(self, out: Array) -> Any:
        self._wait()
        return np.asarray(out.get() if hasattr(out, "get") else out).astype(np.float64)

    # -- numbers ------------------------------------------------------------------------------------------------

    def _query(self, rows: int) -> Any:
        drawn = self._rng.standard_normal((rows, self._heads, self._kv.head_dim), np.float32)
        return (3 * drawn).astype(DTYPES[self._dtype])

    def _numbers(self, layout: str) -> Any:
        """K, then V, of all blocks in float32, rounded to what both caches hold; NaN where no token is."""
        size, inner = self._kv.block_size, (KV_HEADS, self._kv.block_size)
        shape = (2, self._blocks, *(inner if layout == "hnd" else inner[::-1]), self._kv.head_dim)
        drawn = np.clip(self._rng.standard_normal(shape, np.float32), -LARGEST + SCALE, LARGEST - SCALE)
        if self._kv.dtype in NARROW:
            drawn = self._narrow(drawn).astype(np.float32) * np.float32(SCALE)
        slots = np.moveaxis(drawn, -2 if layout == "hnd" else -3, 0)
        for table, length in zip(self._tables, LENGTHS, strict=True):
            if length % size:
                slots[length % size :, :, table[length // size]] = np.nan
        return drawn

    def _stored(self, numbers: Any) -> Any:
        if self._kv.dtype not in NARROW:
            return numbers.astype(DTYPES[self._kv.dtype])
        stored = self._narrow(np.nan_to_num(numbers))
        stored.view(np.uint8)[np.isnan(numbers)] = 0xFF  # NaN in e4m3
        return stored

    def _narrow(self, numbers: Any) -> Any:
        scaled = numbers / np.float32(SCALE)
        return np.rint(scaled).astype(np.int8) if self._kv.dtype == "int8" else scaled.astype(ml_dtypes.float8_e4m3fn)

    def _scoring(self) -> Scoring:
        if self._kv.dtype not in NARROW:
            return Scoring()
        key_scale, value_scale = (self._move(np.full(1, SCALE, np.float32)) for _ in range(2))
        return Scoring(key_scale=key_scale, value_scale=value_scale)

    def _described(self, layout: str, address: int, dtype: str) -> PagedKV:
        row, size = KV_HEADS * self._kv.head_dim, self._kv.block_size
        strides = (size * self._kv.head_dim, self._kv.head_dim) if layout == "hnd" else (self._kv.head_dim, row)
        return dataclasses.replace(
            self._kv,
            key=address,
            value=address + self._blocks * size * row * ELEMENT_BYTES[dtype],
            dtype=dtype,
            layout=layout,
            kv_heads=KV_HEADS,
            block_stride=size * row,
            head_stride=strides[0],
            slot_stride=strides[1],
            blocks=self._blocks,
        )
