"""The cases of decode: a base case, each axis varied alone, and corners. Plain data, the most telling first."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "e4m3": 1}
MOST_KV_BYTES = 16 * 10**9
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """One shape of decode. ``chunk_mib`` is in MiB; ``kernel`` is the function of kernels_cu.launch."""

    batch: int = 32
    context: int = 8192
    group: int = 4
    dtype: str = "bfloat16"
    shuffled: bool = True
    order: str = "block"
    chunk_mib: int = 2
    layout: str = "hnd"
    block_size: int = 16
    head_dim: int = 128
    kv_heads: int = 8
    kernel: str = "paged_decode"

    @property
    def name(self) -> str:
        """What differs from the base case."""
        found = [
            f"{field.name.removesuffix('_mib')} {getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return ", ".join(found).replace("shuffled False", "in order").replace("kernel paged_attention_", "") or "base"

    @property
    def query_dtype(self) -> str:
        """The type of queries and outputs."""
        return "bfloat16" if self.dtype == "e4m3" else self.dtype

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence: the context, less a few so that blocks end within."""
        return [max(1, self.context - 7 * row % self.block_size) for row in range(self.batch)]

    @property
    def token_bytes(self) -> int:
        """K and V of one token in one layer."""
        return 2 * self.kv_heads * self.head_dim * ELEMENT_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> int:
        """K and V of all tokens in one layer: what one call reads."""
        return self.token_bytes * sum(self.lengths)

    @property
    def query_heads(self) -> int:
        """Hq."""
        return self.kv_heads * self.group

    def blocks(self) -> int:
        """Blocks of one batch."""
        return sum(-(-length // self.block_size) for length in self.lengths)

    def moved_bytes(self, partial_rows: int = 0) -> int:
        """What a call must move: KV, query and output, block tables, partial results written and read.

        bytes = e 2 D Hkv sum(L) + 2 T D Hq B + 4 sum(ceil(L / block_size)) + 2 (4 D + 4) partial_rows, where each
        partial result has a row for each of its query heads.
        """
        query = 2 * 2 * self.head_dim * self.query_heads * self.batch
        return self.kv_bytes + query + 4 * self.blocks() + 2 * (4 * self.head_dim + 4) * partial_rows

    def small(self) -> Case:
        """The same case in a size for a CPU that plays a GPU."""
        return dataclasses.replace(
            self, batch=min(self.batch, 3), context=min(self.context, 130), kv_heads=min(self.kv_heads, 2)
        )


BASE = Case()
AXES: dict[str, tuple[object, ...]] = {
    "group": (1, 8),
    "dtype": ("float16", "e4m3"),
    "shuffled": (False,),
    "order": ("layer",),
    "batch": (1, 2, 4, 8, 16, 64, 128),
    "context": (128, 256, 512, 1024, 2048, 4096, 16384, 32768),
    "layout": ("nhd",),
    "chunk_mib": (4, 8, 16, 32, 64),
    "head_dim": (64, 256),
    "block_size": (8, 32, 64),
}


def decode_cases() -> list[Case]:
    """All cases, each once, no more than 120: the base, acceptance by bytes, latency, the axes, the corners."""
    cases = [BASE, *_by_bytes(), *_latency()]
    cases += [vary(**{axis: value}) for axis, values in AXES.items() for value in values]
    return list(dict.fromkeys([*cases, *_large(), *_corners(), *_simple()]))


def vary(**fields: object) -> Case:
    """The base case with other fields."""
    return dataclasses.replace(BASE, **fields)  # type: ignore[arg-type]


def _by_bytes() -> list[Case]:
    """200, 400 and over 800 MB of KV a layer, in each type and group: what the bandwidth is judged by."""
    contexts = {"float16": (8192, 1536), "bfloat16": (8192, 1536), "e4m3": (8192, 6144)}
    return [
        vary(dtype=dtype, context=context, group=group)
        for dtype, sizes in contexts.items()
        for context in sizes
        for group in (1, 4, 8)
    ]


def _latency() -> list[Case]:
    """One sequence: what a step costs when there is next to nothing to read, and when one sequence is all there is."""
    contexts = (128, 1024, 8192, 32768, 131072)
    return [vary(batch=1, context=context, group=group) for context in contexts for group in (4, 1, 8)]


def _large() -> list[Case]:
    """The ends of the axes that need the most memory, with as many sequences as it holds."""
    return [
        vary(batch=256),
        vary(batch=256, context=2048),
        vary(batch=256, context=128),
        vary(context=65536),
        vary(batch=29, context=131072),
        vary(batch=29, context=131072, order="layer", chunk_mib=32),
        vary(batch=58, context=131072, dtype="e4m3"),
    ]


def _corners() -> list[Case]:
    """Axes varied together where one may hide the other."""
    return [
        vary(shuffled=False, order="layer"),
        vary(order="layer", chunk_mib=32),
        vary(chunk_mib=32, shuffled=False),
        vary(layout="nhd", order="layer"),
        vary(layout="nhd", shuffled=False),
        vary(layout="nhd", dtype="e4m3"),
        vary(layout="nhd", group=1),
        vary(dtype="e4m3", shuffled=False),
        vary(dtype="e4m3", order="layer"),
        vary(dtype="e4m3", batch=1, context=128),
        vary(dtype="e4m3", batch=1, context=131072),
        vary(dtype="e4m3", head_dim=64),
        vary(dtype="float16", head_dim=64),
        vary(dtype="float16", head_dim=256, group=8),
        vary(dtype="float16", batch=1, context=128),
        vary(group=2),
        vary(group=7),
        vary(group=16),
        vary(group=8, block_size=32, layout="nhd"),
        vary(block_size=1, batch=8),
        vary(block_size=256),
        vary(kv_heads=1, group=8, batch=128),
        vary(kv_heads=32, group=1, context=2048),
        vary(batch=7, context=5000),
        vary(batch=200, context=1000, group=5),
    ]


def _simple() -> list[Case]:
    """The kernel that teaches, in each layout: what the fast one gains."""
    name = "paged_attention_simple"
    return [vary(kernel=name), vary(kernel=name, group=1), *(vary(kernel=name, layout=x) for x in ("nhd", "vllm"))]
