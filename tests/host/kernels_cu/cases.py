"""Pools of blocks for the kernel tests: NaN everywhere, tokens in shuffled blocks, and what attention should give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from kernels_cu import (
    PagedKV,
    Scoring,
    launch,
    plan_decode,
    plan_prefill,
    reference,
    reference_append,
    reference_attention,
)

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
NARROW = {"e4m3": ml_dtypes.float8_e4m3fn, "int8": np.int8}
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Largest error over largest |V|."""
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 257, 1000)
"""Every edge of a pass of 32 tokens, and lengths that no block size divides."""
NO_BLOCK = 1 << 30
"""What stands in a block table behind the last block. Nobody may follow it."""


def empty_pools(layout: str, dtype: str, blocks: int, block_size: int, heads: int, head_dim: int) -> tuple[Any, Any]:
    """K and V of one layer, every bit of them set: NaN in each type."""
    x = 16 // np.dtype(_type_of(dtype)).itemsize
    flat = {
        "hnd": (blocks, heads, block_size, head_dim),
        "nhd": (blocks, block_size, heads, head_dim),
        "vllm": (blocks, heads, head_dim, block_size),
    }[layout]
    key = (blocks, heads, head_dim // x, block_size, x) if layout == "vllm" else flat
    return _all_bits_set(key, dtype), _all_bits_set(flat, dtype)


def _type_of(dtype: str) -> Any:
    return DTYPES.get(dtype) or NARROW[dtype]


def _all_bits_set(shape: tuple[int, ...], dtype: str) -> Any:
    pool = np.empty(shape, _type_of(dtype))
    pool.view(np.uint8)[...] = 0xFF
    return pool


def paged_kv(layout: str, dtype: str, key_pool: Any, value_pool: Any) -> PagedKV:
    """The PagedKV of two pools, NumPy or CuPy, with the strides that their arrays have."""
    strides = [stride // key_pool.itemsize for stride in key_pool.strides]
    head, slot = {"hnd": (1, 2), "nhd": (2, 1), "vllm": (1, 3)}[layout]
    return PagedKV(
        key=address(key_pool),
        value=address(value_pool),
        dtype=dtype,
        layout=layout,
        block_size=reference.block_size(layout, value_pool),
        kv_heads=key_pool.shape[head],
        head_dim=value_pool.shape[2] if layout == "vllm" else value_pool.shape[3],
        block_stride=strides[0],
        head_stride=strides[head],
        slot_stride=strides[slot],
    )


def address(array: Any) -> int:
    """Where an array of either kind begins."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


@dataclass
class Case:
    """A batch of sequences in a pool. ``array`` moves NumPy arrays to where the kernels run."""

    dtype: str
    layout: str = "hnd"
    head_dim: int = 64
    block_size: int = 16
    group: int = 1
    kv_heads: int = 2
    lengths: tuple[int, ...] = LENGTHS
    seed: int = 0
    array: Any = np.asarray
    blocks_apart: int = 0
    """Elements between the end of a block and the next one."""
    query_dtype: str | None = None
    """Of query, keys and values, where a narrow cache has another."""
    scales: dict[str, Any] = field(default_factory=dict)
    """key_scale and value_scale of a narrow cache."""
    queries: tuple[int, ...] = ()
    """Query tokens of each sequence, after a prefill."""
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        needed = [-(-length // self.block_size) for length in self.lengths]
        blocks = sum(needed) + 3
        shuffled = self.rng.permutation(blocks)
        self.tables = np.full((len(needed), max(needed) + 2), NO_BLOCK, np.int32)
        for row, count, end in zip(self.tables, needed, np.cumsum(needed), strict=True):
            row[:count] = shuffled[end - count : end]
        self.keys = [self.random(length, self.kv_heads, self.head_dim) for length in self.lengths]
        self.values = [self.random(length, self.kv_heads, self.head_dim) for length in self.lengths]
        self.query = self.random(len(needed), self.kv_heads * self.group, self.head_dim)
        pools = empty_pools(self.layout, self.dtype, blocks, self.block_size, self.kv_heads, self.head_dim)
        self.key_pool, self.value_pool = (self._apart(self.array(pool)) for pool in pools)

    def _apart(self, pool: Any) -> Any:
        """The pool as a view of a larger one, whose blocks lie further apart."""
        if not self.blocks_apart:
            return pool
        size = int(np.prod(pool.shape[1:]))
        wide = np.full((len(pool), size + self.blocks_apart), np.nan, pool.dtype)
        apart = wide[:, :size].reshape(pool.shape)
        assert apart.base is not None  # a view
        return apart

    def random(self, *shape: int) -> Any:
        """Normal values of the case's type."""
        return self.rng.standard_normal(shape, np.float32).astype(DTYPES[self.query_dtype or self.dtype])

    @property
    def kv(self) -> PagedKV:
        """Where the pools lie."""
        return paged_kv(self.layout, self.dtype, self.key_pool, self.value_pool)

    def slots(self) -> Any:
        """Slot indices of all tokens, sequence after sequence."""
        tokens = [np.arange(length) for length in self.lengths]
        size = self.block_size
        slots = [row[t // size].astype(np.int64) * size + t % size for row, t in zip(self.tables, tokens, strict=True)]
        return np.concatenate(slots)

    def append(self, target: Any) -> None:
        """Write all tokens into the pools with the kernel."""
        key, value = np.concatenate(self.keys), np.concatenate(self.values)
        scales = {name: self.array(scale) for name, scale in self.scales.items()}
        launch.append_kv(target, self.kv, self.array(key), self.array(value), self.array(self.slots()), **scales)

    def attend(self, target: Any, **options: Any) -> Any:
        """The kernel's output, as NumPy."""
        out = self.array(_all_bits_set(self.query.shape, self.dtype))
        lengths = self.array(np.array(self.lengths, np.int32))
        launch.paged_attention_simple(
            target, self.kv, self.array(self.query), self.array(self.tables), lengths, out, **options
        )
        return out if isinstance(out, np.ndarray) else out.get()

    def decode(
        self,
        target: Any,
        *,
        shares: int = 5,
        least_tiles: int = 1,
        window: int | None = None,
        fixed_tiles: int | None = None,
        **scoring: Any,
    ) -> tuple[Any, Any]:
        """Output and LSE of paged_decode, as NumPy; options of the plan and of Scoring."""
        options = {"shares": shares, "least_tiles": least_tiles, "window": window, "fixed_tiles": fixed_tiles}
        plan = plan_decode(self.lengths, self.kv_heads * self.group, self.kv_heads, **options)
        out, lse, *partials = (
            self.array(array)
            for array in (
                _all_bits_set(self.query.shape, str(self.query.dtype)),
                np.full(self.query.shape[:2], np.nan, np.float32),
                *(np.full(shape, np.nan, np.float32) for shape in plan.partial_shapes(self.head_dim)),
            )
        )
        scoring = {**scoring, **self.scales}
        scoring = {name: self.array(x) if isinstance(x, np.ndarray) else x for name, x in scoring.items()}
        launch.paged_decode(
            target,
            self.kv,
            plan.on(self.array),
            self.array(self.query),
            self.array(self.tables),
            self.array(np.array(self.lengths, np.int32)),
            out,
            lse=lse,
            partial_out=partials[0],
            partial_lse=partials[1],
            scoring=Scoring(**scoring),
        )
        return tuple(array if isinstance(array, np.ndarray) else array.get() for array in (out, lse))

    def prefill(
        self, target: Any, queries: tuple[int, ...], *, causal: bool = True, window: int | None = None, **scoring: Any
    ) -> tuple[Any, Any]:
        """Output and LSE of paged_prefill for the last ``queries`` tokens of each sequence, and the query, as NumPy."""
        plan = plan_prefill(queries, self.lengths, self.kv_heads * self.group, self.kv_heads)
        query = self.random(plan.tokens, plan.query_heads, self.head_dim)
        out = self.array(_all_bits_set(query.shape, str(query.dtype)))
        lse = self.array(np.full(query.shape[:2], np.nan, np.float32))
        scoring = {**scoring, **self.scales}
        scoring = {name: self.array(x) if isinstance(x, np.ndarray) else x for name, x in scoring.items()}
        launch.paged_prefill(
            target,
            self.kv,
            plan.on(self.array),
            self.array(query),
            self.array(self.tables),
            out,
            lse=lse,
            causal=causal,
            window=window,
            scoring=Scoring(**scoring),
        )
        self.query, self.queries = query, queries
        return tuple(array if isinstance(array, np.ndarray) else array.get() for array in (out, lse))

    def cached(self, b: int) -> tuple[Any, Any]:
        """K and V of a sequence as the cache holds them, rounded if it is narrow."""
        if not self.scales:
            return self.keys[b], self.values[b]
        pairs = zip((self.keys[b], self.values[b]), self.scales.values(), strict=True)
        key, value = (
            reference_append.dequantised(reference_append.quantised(rows, self.dtype, scale), scale)
            for rows, scale in pairs
        )
        return key, value

    def wanted(self, **options: Any) -> tuple[Any, Any]:
        """Output and LSE in float64, from the values as they are in the cache."""
        counts = self.queries or (1,) * len(self.lengths)
        ends = np.cumsum(counts)
        rows = [
            reference_attention.attention(self.query[end - count : end], *self.cached(b), **options)
            for b, (end, count) in enumerate(zip(ends, counts, strict=True))
        ]
        return np.concatenate([out for out, _ in rows]), np.concatenate([lse for _, lse in rows])

    def check(self, found: tuple[Any, Any], **options: Any) -> None:
        """Output and LSE within what the types allow, and nothing that is not a number.

        Half a step of float16, 2^-11 of the largest |V|, is lost when weights are rounded, and once more with the
        output; a step of bfloat16 is 8 times as large. The LSE is summed in float32 from exact products.
        """
        out, lse = self.wanted(**options)
        largest = max(abs(self.cached(b)[1].astype(np.float64)).max(initial=0) for b in range(len(self.lengths)))
        steps = {"float16": 1, "bfloat16": 8}[str(self.query.dtype)]
        error = abs(found[0].astype(np.float64) - out).max(initial=0)
        assert error <= steps * (2**-10 * largest + 1e-3), error
        finite = np.isfinite(lse)
        assert (np.isneginf(found[1]) == ~finite).all()
        assert np.allclose(found[1][finite], lse[finite], rtol=1e-5, atol=2e-5)

    def error(self, out: Any, scale: float | None = None) -> float:
        """Largest difference from the float64 reference, over the largest |V|; infinite if anything is not a number."""
        wanted = reference.paged_attention(self.query, self.keys, self.values, scale)
        largest = max(abs(value.astype(np.float64)).max(initial=0) for value in self.values)
        difference = abs(out.astype(np.float64) - wanted).max()
        return float(difference / largest) if np.isfinite(difference) else float("inf")
