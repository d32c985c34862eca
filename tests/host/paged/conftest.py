"""What the tests of pools share: small layouts, and a picture of everything that a refused operation must leave."""

from __future__ import annotations

from typing import Any

import pytest

import paged
import vmm

TWO_MIB = 2 << 20


def layout_of(block_kib: int, *, order: str = "block", layers: int = 1, chunk: int = TWO_MIB) -> paged.KVLayout:
    """Blocks of 16 tokens whose K and V take ``block_kib`` KiB a plane."""
    head_dim = block_kib * 1024 // (16 * 2 * 4 * (layers if order == "block" else 1))
    return paged.KVLayout(paged.KVSpec(layers, 1, head_dim, "float32"), 16, order, chunk=chunk)


def picture_of(pool: paged.KVPool) -> Any:
    """Ids, rows, chunks, handles and tokens of a pool, and everything alive in its driver."""
    blocks = pool.block_pool
    return (
        [blocks.count(block) for block in range(blocks.rows.blocks)],
        sorted(blocks.committed),
        (blocks.used, blocks.available, blocks.shared, pool.tokens, pool.committed),
        [(run.address, run.size, run.handle, run.access) for run in vmm.snapshot(pool.range).runs],
        {id(sequence): (sequence.length, list(sequence.table)) for sequence in pool.sequences},
        pool.device.memory_info(),
    )


@pytest.fixture
def make_layout() -> Any:
    """``layout_of``."""
    return layout_of


@pytest.fixture
def picture() -> Any:
    """``picture_of``."""
    return picture_of
