"""KV memory of a case on a KVPool, full of numbers: layers, batches that rotate, block tables in order or shuffled."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

import paged
from kernels_cu import PagedKV, launch, reference
from paged.layout import K, V

from .cases import MIB, MOST_KV_BYTES, Case
from .contents import SCALE, fill
from .side import Side
from .timer import COLD

LAYERS = 4


class TooLargeError(Exception):
    """A case that needs more memory than there is."""


class KVMemory:
    """A pool for ``batches`` times the sequences of ``case`` in each of ``layers`` layers; all of it is committed.

    ``tables`` int32 [batches, B, blocks] on the host. Enough batches that the cache cannot keep what they read.
    Raises TooLargeError.
    """

    def __init__(self, side: Side, case: Case) -> None:
        self.side, self.case = side, case
        limit = _limit(side)
        self.layers = max(1, min(LAYERS, limit // max(case.kv_bytes, 1)))
        wanted = math.ceil(COLD * side.l2_bytes / (self.layers * case.kv_bytes))
        self.batches = max(1, wanted)
        blocks = self.batches * case.blocks()
        needed = blocks * self.layers * case.token_bytes * case.block_size
        if needed > limit + 64 * MIB:
            raise TooLargeError(f"needs {needed / 1e9:.1f} GB of KV; {limit / 1e9:.1f} GB may be used")
        self._layout = _layout(case, self.layers)
        supply = side.supply(self._layout.chunk)
        self.pool = paged.KVPool(side.device, self._layout, blocks=blocks, prealloc=True, supply=supply)
        try:
            self.tables = self._tables(blocks)
            fill(side, self.pool.range, case.dtype)
            self._poison_tails()
        except BaseException:
            self.pool.close()
            raise

    def close(self) -> None:
        """Wait, and give the memory back."""
        self.side.device.synchronize()
        self.pool.close()

    @property
    def scales(self) -> dict[str, Any]:
        """key_scale and value_scale of a narrow cache, on the device."""
        if self.case.dtype != "e4m3":
            return {}
        return {name: self.side.array(np.full(1, SCALE, np.float32)) for name in ("key_scale", "value_scale")}

    def kv(self, layer: int) -> PagedKV:
        """Where the kernels find K and V of a layer."""
        found = self.pool.kv(layer)
        if self.case.dtype != "e4m3":
            return found
        strides = {
            name: 2 * getattr(found, name) for name in ("head_dim", "block_stride", "head_stride", "slot_stride")
        }
        return dataclasses.replace(found, dtype="e4m3", **strides)

    def slots(self, batch: int) -> Any:
        """int64: the slots of all tokens of one batch, sequence after sequence."""
        size = self.case.block_size
        tokens = [np.arange(length) for length in self.case.lengths]
        rows = zip(self.tables[batch], tokens, strict=True)
        return np.concatenate([row[t // size].astype(np.int64) * size + t % size for row, t in rows])

    def rows(self, batch: int, sequence: int, layer: int, length: int) -> tuple[Any, Any]:
        """K and V [length, Hkv, D] of one sequence in NumPy, scaled, read from where the layout says they lie."""
        case = self.case
        table = self.tables[batch, sequence, : -(-length // case.block_size)]
        key_pool, value_pool = (
            np.stack([self._block(int(block), layer, component) for block in table]) for component in (K, V)
        )
        key, value = reference.gather(case.layout, key_pool, value_pool, range(len(table)), length)
        if case.dtype == "e4m3":
            return key.astype(np.float32) * SCALE, value.astype(np.float32) * SCALE
        return key, value

    def _block(self, block: int, layer: int, component: int) -> Any:
        case, address = self.case, self.pool.address(block=block, layer=layer, component=component)
        shape = {
            "hnd": (case.kv_heads, case.block_size, case.head_dim),
            "nhd": (case.block_size, case.kv_heads, case.head_dim),
            "vllm": self._layout.component_shape(component),
        }[case.layout]
        return self.side.read(address, case.dtype, shape)

    def _tables(self, blocks: int) -> Any:
        """Every block of the pool once: in order, or in no order over the whole pool."""
        ids = np.random.default_rng(1).permutation(blocks) if self.case.shuffled else np.arange(blocks)
        counts = [-(-length // self.case.block_size) for length in self.case.lengths]
        tables = np.zeros((self.batches, self.case.batch, max(counts)), np.int32)
        at = 0
        for batch in range(self.batches):
            for row, count in enumerate(counts):
                tables[batch, row, :count] = ids[at : at + count]
                at += count
        return tables

    def _poison_tails(self) -> None:
        """NaN in the slots behind each sequence's last token, which no result may see."""
        case, size = self.case, self.case.block_size
        ends = [(row, length) for row, length in enumerate(case.lengths) if length % size]
        slots = [
            int(tables[row, length // size]) * size + slot
            for tables in self.tables
            for row, length in ends
            for slot in range(length % size, size)
        ]
        rows = self.side.poisoned((len(slots), case.kv_heads, case.head_dim), case.query_dtype)
        places = self.side.array(np.array(slots, np.int64))
        for layer in range(self.layers):
            launch.append_kv(self.side, self.kv(layer), rows, rows, places, stream=self.side.stream, **self.scales)
        self.side.device.synchronize()


def _limit(side: Side) -> int:
    """Bytes of KV that a case may have: 16 GB, and no more than most of what is free."""
    return int(min(MOST_KV_BYTES, 0.7 * side.free))


def _layout(case: Case, layers: int) -> paged.KVLayout:
    """The layout. A cache of e4m3 lies in memory as one of 2-byte numbers with half the head_dim."""
    narrow = case.dtype == "e4m3"
    head_dim, dtype = (case.head_dim // 2, "float16") if narrow else (case.head_dim, case.dtype)
    spec = paged.KVSpec(layers, case.kv_heads, head_dim, dtype)
    return paged.KVLayout(spec, case.block_size, case.order, case.layout, case.chunk_mib * MIB)
