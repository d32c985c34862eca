"""Waste and driver calls of layouts: by hand, and against a real pool on the host driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import vmm
from paged import KVPool
from paged.planner import Plan, make_plan, read_options
from paged.serving.driver_calls import DriverCalls

MIB = 1 << 20
BLOCK = 16 * 131072
"""Bytes of 16 tokens of llama-3-8b: 2 MiB, one chunk."""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """One kind of request: 33, 34 and 35 tokens while it decodes, 3 blocks of 16."""
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n32,3\n32,3\n")
    return str(path)


def plan_of(trace: str, blocks: int = 90, **options: str) -> Plan:
    sizes = {"kv_cache_memory_bytes": str(blocks * BLOCK), "max_num_seqs": "20", "max_num_batched_tokens": "2048"}
    return make_plan(read_options(sizes | options), trace)


def test_the_chosen_layout_by_hand(trace: str) -> None:
    """90 blocks hold 30 sequences of 3 blocks; 20 run, with 34 of 48 tokens live on average."""
    row = plan_of(trace).layouts[0]
    assert (row.changed, row.block_size, row.chunk, row.order, row.kv_dtype) == (
        "chosen",
        16,
        2 * MIB,
        "block",
        "bfloat16",
    )
    assert (row.held, row.running) == (30, 20)
    assert row.live == 20 * 34 * 131072
    assert row.tail_waste == 20 * 14 * 131072
    assert (row.row_waste, row.unusable, row.tokens_a_step) == (0, 0, 16)
    assert row.calls == {"cuMemCreate": 90, "cuMemMap": 90, "cuMemSetAccess": 90}
    assert row.seconds == pytest.approx(90 * (29 + 2 + 38) / 1e6)
    assert row.waste_share == pytest.approx(14 / 48)


def test_part_of_a_block_is_a_whole_one(tmp_path: Path) -> None:
    """16, 17 and 18 tokens lie in 1, 2 and 2 blocks: 20 sequences have 33 and a third, that is 34."""
    path = tmp_path / "odd.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n15,3\n")
    row = plan_of(str(path)).layouts[0]
    assert (row.live, row.tail_waste) == (20 * 17 * 131072, (34 * 16 - 20 * 17) * 131072)


def test_each_other_row_changes_one_thing(trace: str) -> None:
    chosen, *others = plan_of(trace).layouts
    for row in others:
        differs = [
            name for name in ("block_size", "chunk", "order", "kv_dtype") if getattr(row, name) != getattr(chosen, name)
        ]
        assert len(differs) == 1, row.changed
    assert {row.changed for row in others} == {
        "block size 8",
        "block size 32",
        "block size 64",
        "block size 128",
        "chunk 8 MiB",
        "chunk 32 MiB",
        "order layer",
        "KV dtype fp8",
    }


def test_what_the_others_waste_by_hand(trace: str) -> None:
    rows = {row.changed: row for row in plan_of(trace).layouts}
    narrow, wide = rows["block size 8"], rows["block size 64"]
    assert narrow.tail_waste == 20 * 6 * 131072  # 34 of 40 tokens
    assert wide.tail_waste == 20 * 30 * 131072  # 34 of 64
    assert (wide.tokens_a_step, wide.calls["cuMemSetAccess"]) == (64, 22)  # blocks of 4 chunks: 22, and half a one
    chunky = rows["chunk 32 MiB"]  # 16 blocks a chunk: 60 live blocks lie in 4 chunks, 90 have 5
    assert (chunky.row_waste, chunky.unusable) == (4 * 32 * MIB - 60 * BLOCK, 90 * BLOCK - 5 * 32 * MIB)
    assert (chunky.tokens_a_step, chunky.held) == (256, 80 // 3)
    layer = rows[
        "order layer"
    ]  # a row has a chunk in 32 planes and 32 blocks: two rows for 60 blocks, 2 fit the budget
    assert (layer.row_waste, layer.unusable) == (4 * BLOCK, 26 * BLOCK)
    assert layer.calls == {"cuMemCreate": 64, "cuMemMap": 64, "cuMemSetAccess": 64}
    assert (layer.held, layer.tokens_a_step) == (64 // 3, 512)
    half = rows["KV dtype fp8"]
    assert (half.held, half.live, half.calls["cuMemSetAccess"]) == (60, 20 * 34 * 65536, 90)


def test_a_pool_with_no_row_holds_nothing_and_calls_nothing(trace: str) -> None:
    rows = {row.changed: row for row in plan_of(trace, blocks=3, max_model_len="48").layouts}
    assert rows["chosen"].held == 1
    layer = rows["order layer"]
    assert (layer.held, layer.running, layer.live, layer.row_waste, layer.waste_share) == (0, 0, 0, 0, 0.0)
    assert set(layer.calls.values()) == {0}


@pytest.mark.parametrize("index", range(9))
@pytest.mark.parametrize(("model", "budget"), [("stories260k", 64 * MIB), ("llama-3-8b", 640 * MIB)])
def test_a_real_pool_makes_the_very_calls(trace: str, model: str, budget: int, index: int) -> None:
    """A pool that takes one block after the other until nothing is left, each call counted."""
    options = {"model": model, "kv_cache_memory_bytes": str(budget), "max_model_len": "64"}
    found = make_plan(read_options(options), trace)
    row = found.layouts[index]
    layout = found.layout_of(row)
    calls = DriverCalls(vmm.HostDriver(memory="1 GiB", backing="none"))
    with vmm.Device(driver=calls.api) as device, KVPool(device, layout, budget=budget) as pool:
        calls.clear()
        while pool.can_allocate(1):
            pool.allocate(1)
        counted = calls.counts()
        assert {name: counted.get(name, 0) for name in row.calls} == row.calls


def test_layers_with_windows_have_pools_of_their_own(config_file: Callable[..., str], trace: str) -> None:
    """Two groups of 2 layers, 4,096 bytes a token each: 16 tokens take 64 KiB of either."""
    options = {"model": config_file("windows", sliding_window=16), "kv_cache_memory_bytes": str(64 * MIB)}
    found = make_plan(read_options({**options, "max_num_seqs": "10"}), trace)
    row = found.layouts[0]
    assert found.memory.pool.blocks is None
    assert row.live == 10 * (34 + 16) * 4096  # the window's layers see 16 tokens, in at most 2 blocks
    assert row.tail_waste == 10 * (48 + 32 - 34 - 16) * 4096
    rows = 19, 12  # of 2 MiB in 3/5 and 2/5 of the budget: the means are 3 and 2 blocks, 32 blocks a row
    assert row.held == min(19 * 32 // 3, 12 * 32 // 2)
    assert row.calls == dict.fromkeys(("cuMemCreate", "cuMemMap", "cuMemSetAccess"), sum(rows))


def test_a_latent_is_laid_out_too(config_file: Callable[..., str], trace: str) -> None:
    options = {"model": config_file("deepseek-v2-lite"), "kv_cache_memory_bytes": str(1024 * MIB)}
    row = make_plan(read_options({**options, "max_num_seqs": "10"}), trace).layouts[0]
    assert row.live == 10 * 34 * 27 * 576 * 2
