"""The model of CuPy's pool does what CuPy documents of its own, and Heap is better than that on three sequences."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

import vmm

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
UNIT = 512


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def pool():
    from cupy_pool_model import CupyPool

    with vmm.Device(driver=vmm.HostDriver(memory="1 GiB", granularity=1 << 16, backing="none")) as device:
        made = CupyPool(device)
        yield made
        for piece in list(made._in_use):
            made.free(piece)
        with device.current():
            made.free_all_blocks()
        assert made.total_bytes == 0


def test_sizes_are_rounded_up_to_512(pool):
    assert [pool.malloc(size).size for size in (1, 511, 512, 513)] == [512, 512, 512, 1024]


def test_no_bytes_are_no_memory(pool):
    memory = pool.malloc(0)
    assert (memory.address, memory.size, pool.used_bytes) == (0, 0, 0)
    memory.free()


def test_the_second_free_does_nothing(pool):
    memory = pool.malloc(1)
    memory.free()
    memory.free()
    assert pool.free_blocks == 1
    with pytest.raises(RuntimeError, match="not allocated"):
        pool.free(12345)


def test_a_freed_block_of_the_same_size_is_had_again(pool):
    first = pool.malloc(UNIT * 4)
    address = first.address
    first.free()
    assert pool.malloc(UNIT * 4).address == address


def test_a_larger_block_is_split_and_merges_again(pool):
    first = pool.malloc(UNIT * 4)
    address = first.address
    first.free()
    head, tail = pool.malloc(UNIT * 2), pool.malloc(UNIT * 2)
    assert (head.address, tail.address) == (address, address + UNIT * 2)
    assert pool.total_bytes == UNIT * 4
    head.free()
    tail.free()
    assert pool.free_blocks == 1
    assert pool.malloc(UNIT * 4).address == address


def test_the_smallest_that_fits_serves(pool):
    sizes = (8, 4, 6)
    blocks = [pool.malloc(UNIT * size) for size in sizes]
    places = dict(zip(sizes, (block.address for block in blocks), strict=True))
    for block in blocks:
        block.free()
    assert pool.malloc(UNIT * 3).address == places[4]
    assert pool.malloc(UNIT * 5).address == places[6]


def test_bytes_used_free_and_in_all(pool):
    first = pool.malloc(UNIT * 2)
    second = pool.malloc(UNIT * 4)
    assert (pool.used_bytes, pool.free_bytes, pool.total_bytes) == (UNIT * 6, 0, UNIT * 6)
    first.free()
    second.free()
    assert (pool.used_bytes, pool.free_bytes, pool.total_bytes) == (0, UNIT * 6, UNIT * 6)
    pool.malloc(UNIT)
    assert (pool.used_bytes, pool.free_bytes, pool.total_bytes) == (UNIT, UNIT * 5, UNIT * 6)


def test_a_stream_does_not_get_what_another_freed(pool):
    first = pool.malloc(UNIT * 4, stream=0)
    first.free()
    second = pool.malloc(UNIT * 2, stream=7)
    assert (pool.total_bytes, pool.free_bytes) == (UNIT * 6, UNIT * 4)
    second.free()


def test_free_all_blocks_keeps_what_is_split_and_in_use(pool):
    whole, split = pool.malloc(UNIT * 2), pool.malloc(UNIT * 4)
    whole.free()
    split.free()
    kept = pool.malloc(UNIT * 3)  # of the second, which is split now
    with pool._device.current():
        pool.free_all_blocks()
        assert (pool.total_bytes, pool.free_blocks) == (UNIT * 4, 1)
        kept.free()
        pool.free_all_blocks()
    assert (pool.total_bytes, pool.free_blocks) == (0, 0)


def test_a_full_device_has_the_cache_released_first(pool):
    first = pool.malloc(600 << 20)
    first.free()
    second = pool.malloc(700 << 20)
    assert pool.total_bytes == 700 << 20
    with pytest.raises(MemoryError):
        pool.malloc(400 << 20)
    assert pool.total_bytes == pool.used_bytes == 700 << 20
    second.free()


def test_bins_that_went_in_a_compaction_can_be_filled_again(pool):
    """cupy#1165: free a block whose bin was compacted away meanwhile."""
    for block in [pool.malloc(UNIT * (index + 1)) for index in range(1024)]:
        block.free()
    garbage = [pool.malloc(UNIT * (index + 1)) for index in range(1024)]  # every bin is empty now
    large = pool.malloc(UNIT * 2048)
    large.free()
    held = [pool.malloc(UNIT * 1024), pool.malloc(UNIT * 2)]
    for block in held:
        block.free()
    for block in garbage:
        block.free()
    assert pool.used_bytes == 0


def test_random_calls_keep_the_books(pool):
    rng, held = random.Random(4), []
    for _ in range(2000):
        if held and rng.random() < 0.5:
            held.pop(rng.randrange(len(held))).free()
        else:
            held.append(pool.malloc(rng.randrange(1, 60_000), stream=rng.randrange(2)))
        assert pool.used_bytes + pool.free_bytes == pool.total_bytes
        spans = sorted((block.address, block.size) for block in held)
        assert all(low + size <= high for (low, size), (high, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("name", ["growing decode", "training", "adversary"])
def test_a_heap_never_takes_more_from_the_device(name):
    import heap as benchmark
    import heap_sequences as sequences

    short = {
        "growing decode": lambda: sequences.growing_decode(layers=4, tokens=60),
        "training": lambda: sequences.training(layers=12, steps=6),
        "adversary": lambda: sequences.adversary(rounds=25),
    }
    with vmm.Device(driver=vmm.HostDriver(memory="80 GiB", backing="none")) as device:
        row = benchmark.measure(device, short[name](), 1)
    assert row["heap_peak"] >= row["live"] - (32 << 20)  # blocks that are rounded up to chunks; a sanity check
    assert row["peak_ratio"] <= (0.8 if name == "growing decode" else 1.05)


def test_sequences_free_only_what_they_allocated():
    from heap_sequences import SEQUENCES

    for make in SEQUENCES.values():
        alive = set()
        for name, size in make():
            if size:
                assert name not in alive
                alive.add(name)
            else:
                alive.remove(name)


@pytest.mark.exhaustive
def test_the_benchmark_runs_and_writes_its_figures(tmp_path):
    path = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARKS / "heap.py"), "--rounds", "1", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "growing decode" in done.stdout
    assert path.read_text().startswith('{\n "schema": 1')
