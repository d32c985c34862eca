"""Moments of pools: every kind of block and chunk, in either order, with blocks that fit, straddle and span chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import paged
import vmm
from paged.picture import Picture, picture_of
from paged.picture.made_up import blocks_needed, make_up

CHUNK = 2 << 20


def layout_of(order: str, block_kib: int, layers: int = 3) -> paged.KVLayout:
    """Blocks of 4 tokens that take ``block_kib`` KiB a plane."""
    head_dim = block_kib * 1024 // (4 * 2 * 4 * (layers if order == "block" else 1))
    return paged.KVLayout(paged.KVSpec(layers, 1, head_dim, "float32"), 4, order, chunk=CHUNK)


@pytest.fixture
def device() -> Iterator[vmm.Device]:
    """Rules without bytes, and streams that run nothing before somebody waits: rows retire until then."""
    driver = vmm.HostDriver(memory="1 TiB", backing="none", streams="deferred")
    with vmm.Device(0, driver=driver) as found:
        yield found


@contextmanager
def full_scene(device: vmm.Device, order: str, block_kib: int) -> Iterator[paged.KVPool]:
    """Own, shared and dropped blocks, a shared tail, idle and named ones, retiring rows, empty ones, and free ones."""
    with paged.KVPool(device, layout_of(order, block_kib), blocks=200, prefix_cache=True, name="kv") as pool:
        prompt = np.arange(23, dtype=np.int32)
        first, ended = pool.sequence(prompt), pool.sequence(prompt[::-1])
        for sequence, ids in ((first, prompt), (ended, prompt[::-1])):
            sequence.append(ids)
            sequence.publish()
        hit = pool.sequence(prompt)
        hit.append(prompt[hit.length :])
        child = first.fork()
        parted = first.fork()
        parted.append(6)
        window = pool.sequence()
        window.append(41)
        window.drop_before(20)
        pool.fork(child.held[:1])
        pool.allocate(2)
        going = [pool.sequence() for _ in range(2)]
        for sequence in going:
            sequence.append(180)
        with device.current():
            device.driver.fill_async(pool.range.base, 1, 16)  # work that has not run
        pool.reserve_rows = 1
        for sequence in (ended, going[0], going[1]):
            sequence.free()
        yield pool


@contextmanager
def made_up(device: vmm.Device, sequences: int, order: str = "layer", longest: int = 160) -> Iterator[paged.KVPool]:
    """The command's made-up moment."""
    layout = paged.KVLayout(paged.model("llama-3-8b").groups[0], 16, order)
    blocks = 2 * blocks_needed(sequences, longest, layout)
    with paged.KVPool(device, layout, blocks=blocks, prefix_cache=True, name="kv") as pool:
        make_up(pool, sequences, longest=longest)
        yield pool


@contextmanager
def many(device: vmm.Device, sequences: int, order: str = "layer") -> Iterator[paged.KVPool]:
    """Many plain sequences, quickly."""
    layout = paged.KVLayout(paged.model("llama-3-8b").groups[0], 16, order)
    with paged.KVPool(device, layout, blocks=20 * sequences, name="kv") as pool:
        for number in range(sequences):
            pool.sequence().append(1 + number * 37 % 160)
        yield pool


@pytest.fixture(scope="session")
def ten_thousand() -> tuple[Picture, int, int]:
    """The picture of 10,000 sequences, their tokens, and the blocks in use; the pool is gone."""
    with vmm.Device(0, driver=vmm.HostDriver(memory="1 TiB", backing="none")) as found, many(found, 10_000) as pool:
        return picture_of(pool), pool.tokens, pool.block_pool.used


@pytest.fixture
def scenes() -> dict[str, object]:
    """The makers of moments, by name."""
    return {"full": full_scene, "made_up": made_up, "many": many}
