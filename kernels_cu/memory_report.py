"""What each kernel's requests to the cache cost, by layout, by order and by the place of the blocks; no GPU needed.

The kernels run on the CPU under the memory meter, on one layer of a pool of 32 layers and 8 KV heads: two sequences of
256 tokens in blocks of 16. In order "block" a block holds all layers, and one layer of it is a small piece far from the
next block's; in order "layer" each layer is a plane of its own, in which its blocks lie side by side.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import launch
from .blocks import Blocks
from .errors import LaunchError
from .host_run import HostRun
from .memory_meter import PAGE_BYTES, SUMS, MemoryMeter, MeterSite
from .paged_kv import LAYOUTS, VECTOR_BYTES, PagedKV
from .plan import plan_decode
from .plan_prefill import plan_prefill
from .scoring import Scoring
from .target import HostTarget

ORDERS = ("block", "layer")
PLACES = ("in order", "shuffled")
LAYERS, LAYER, KV_HEADS, BLOCK_SIZE, POOL_BLOCKS = 32, 7, 8, 16, 256
LENGTHS = (256, 256)
CHUNKS = (32, 32)
"""Query tokens of a prefill, at the end of each sequence."""


@dataclass(frozen=True)
class MemoryRow:
    """The loads, or the stores (``write``), of one kernel from the cache, all together.

    ``sectors_per_request``, ``used`` (bytes used over bytes fetched) and ``pages_per_request`` are means over the
    requests; ``pages`` of 2 MiB are all that the launch touched. ``conflicts``: turns of the banks of shared memory
    over the fewest possible, of all that the kernel does there; None if that is nothing.
    """

    kernel: str
    layout: str
    order: str
    place: str
    write: bool
    requests: int
    sectors_per_request: float
    used: float
    pages_per_request: float
    pages: int
    conflicts: float | None


class _Pool:
    """One layer of a pool that begins at a multiple of a page, and whose memory is there once it is written."""

    def __init__(self, address: int, dtype: str, head_dim: int, layout: str, order: str) -> None:
        self.address, self.dtype, self.head_dim, self.layout, self.order = address, dtype, head_dim, layout, order
        self.itemsize = 1 if dtype in ("e4m3", "int8") else 4 if dtype == "float32" else 2
        self.component = KV_HEADS * BLOCK_SIZE * head_dim * self.itemsize
        """Bytes of K, or of V, of a block in one layer."""

    @property
    def size(self) -> int:
        return POOL_BLOCKS * LAYERS * 2 * self.component

    @property
    def blocks(self) -> Blocks:
        """The layer's blocks as bytes."""
        piece = 2 * self.component
        if self.order == "block":
            return Blocks(self.address + LAYER * piece, piece, LAYERS * piece)
        return Blocks(self.address + LAYER * POOL_BLOCKS * piece, piece, piece)

    @property
    def kv(self) -> PagedKV:
        blocks = self.blocks
        row = self.head_dim if self.layout != "vllm" else VECTOR_BYTES // self.itemsize
        head, slot = BLOCK_SIZE * self.head_dim, row
        if self.layout == "nhd":
            head, slot = self.head_dim, KV_HEADS * self.head_dim
        return PagedKV(
            key=blocks.address,
            value=blocks.address + self.component,
            dtype=self.dtype,
            layout=self.layout,
            block_size=BLOCK_SIZE,
            kv_heads=KV_HEADS,
            head_dim=self.head_dim,
            block_stride=blocks.block_stride // self.itemsize,
            head_stride=head,
            slot_stride=slot,
        )

    def tables(self, place: str) -> Any:
        """Block tables of the sequences, side by side in the pool or anywhere in it."""
        needed = [-(-length // BLOCK_SIZE) for length in LENGTHS]
        order = np.arange(POOL_BLOCKS)
        if place == "shuffled":
            order = np.random.default_rng(0).permutation(POOL_BLOCKS)
        return order[: sum(needed)].reshape(len(LENGTHS), -1).astype(np.int32)

    def rows(self, count: int, heads: int) -> Any:
        """Zeros [count, heads, D] of the type in which a kernel is given values."""
        kind: Any = np.float32 if self.dtype == "float32" else np.float16
        if self.dtype in ("bfloat16", "e4m3", "int8"):
            import ml_dtypes

            kind = ml_dtypes.bfloat16
        return np.zeros((count, heads, self.head_dim), kind)

    def scales(self) -> dict[str, Any]:
        """The scales that a narrow cache has."""
        one = np.ones(1, np.float32)
        return {"key_scale": one, "value_scale": one} if self.itemsize == 1 else {}


Case = Callable[[HostTarget, _Pool, Any], None]


def _slots(tables: Any) -> Any:
    return (tables.astype(np.int64)[:, :, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE)).reshape(-1)


def _append(target: HostTarget, pool: _Pool, tables: Any) -> None:
    rows = pool.rows(tables.size * BLOCK_SIZE, KV_HEADS)
    launch.append_kv(target, pool.kv, rows, rows, _slots(tables), **pool.scales())


def _gather(target: HostTarget, pool: _Pool, tables: Any) -> None:
    rows = pool.rows(tables.size * BLOCK_SIZE, KV_HEADS)
    launch.gather_kv(target, pool.kv, _slots(tables), rows, rows.copy(), **pool.scales())


def _simple(target: HostTarget, pool: _Pool, tables: Any) -> None:
    query = pool.rows(len(LENGTHS), KV_HEADS)
    launch.paged_attention_simple(target, pool.kv, query, tables, np.array(LENGTHS, np.int32), query.copy())


def _decode(target: HostTarget, pool: _Pool, tables: Any) -> None:
    query = pool.rows(len(LENGTHS), KV_HEADS)
    plan = plan_decode(LENGTHS, KV_HEADS, KV_HEADS, shares=len(LENGTHS) * KV_HEADS)
    scoring = Scoring(**pool.scales())
    lengths = np.array(LENGTHS, np.int32)
    launch.paged_decode(target, pool.kv, plan, query, tables, lengths, query.copy(), scoring=scoring)


def _prefill(target: HostTarget, pool: _Pool, tables: Any) -> None:
    query = pool.rows(sum(CHUNKS), KV_HEADS)
    plan = plan_prefill(CHUNKS, LENGTHS, KV_HEADS, KV_HEADS)
    launch.paged_prefill(target, pool.kv, plan, query, tables, query.copy(), scoring=Scoring(**pool.scales()))


def _copy(target: HostTarget, pool: _Pool, tables: Any) -> None:
    first, second = tables
    launch.copy_blocks(target, pool.blocks, pool.blocks, np.stack([first, second], axis=1).astype(np.int64))


CASES: dict[str, Case] = {
    "append_kv": _append,
    "gather_kv": _gather,
    "copy_blocks": _copy,
    "paged_attention_simple": _simple,
    "paged_decode": _decode,
    "paged_prefill": _prefill,
}
"""Every kernel that walks a paged cache."""
NO_LAYOUT = ("copy_blocks",)
"""Kernels that move bytes whatever they mean: they are measured once."""


def memory_report(dtype: str, head_dim: int, kernels: Sequence[str]) -> Iterator[list[MemoryRow]]:
    """The rows of each kernel in each layout, order and place; none for a kernel that is not made for such a cache.

    Raises CompilerMissingError or CompileError.
    """
    for kernel in kernels:
        for layout in LAYOUTS:
            for order in ORDERS:
                for place in PLACES:
                    yield _measure(kernel, dtype, head_dim, layout, order, place)


def _measure(kernel: str, dtype: str, head_dim: int, layout: str, order: str, place: str) -> list[MemoryRow]:
    if kernel in NO_LAYOUT and layout != LAYOUTS[0]:
        return []
    try:
        size = _Pool(0, dtype, head_dim, layout, order).size
        with _reserved(size) as address:
            pool = _Pool(address, dtype, head_dim, layout, order)
            meter = MemoryMeter(address, size)
            CASES[kernel](HostTarget(HostRun(meter=meter)), pool, pool.tables(place))
    except LaunchError:
        return []
    found = [(write, [site for site in meter.cache_sites if site.write == write]) for write in (False, True)]
    return [_row((kernel, layout, order, place), write, sites, meter) for write, sites in found if sites]


def _row(what: tuple[str, str, str, str], write: bool, sites: Sequence[MeterSite], meter: MemoryMeter) -> MemoryRow:
    whole, shared = _total(sites), _total(meter.shared_sites)
    figures = (whole.sectors_per_request, whole.efficiency, whole.pages_per_request)
    conflicts = shared.conflicts if shared.requests else None
    return MemoryRow(*what, write, whole.requests, *figures, meter.pages_touched, conflicts)


def _total(sites: Sequence[MeterSite]) -> MeterSite:
    return MeterSite("", False, False, *(sum(getattr(site, name) for site in sites) for name in SUMS))


@contextmanager
def _reserved(size: int) -> Iterator[int]:
    """The address of ``size`` bytes from the beginning of a page on; what is only read takes no memory."""
    with mmap.mmap(-1, size + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        begin = np.frombuffer(memory, np.uint8).ctypes.data
        yield -(-begin // PAGE_BYTES) * PAGE_BYTES
