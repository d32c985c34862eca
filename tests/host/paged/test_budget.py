"""A budget that changes while the pool is in use."""

import numpy as np
import pytest

import paged
import vmm

MIB = 1 << 20
STREAMS = ("eager", "deferred")


@pytest.fixture
def pool(device, make_layout):
    """One block a row of 2 MiB; three empty rows are kept."""
    with paged.KVPool(device, make_layout(2048), budget=32 * MIB, reserve_rows=3, name="kv") as made:
        yield made


def test_case_13_a_lowered_limit_is_pending_and_completes_by_itself(pool):
    """kvcached#406: 3 in reserve, 5 in use, the limit lowered to 4."""
    blocks = pool.allocate(8)
    pool.free(blocks[5:])
    assert (pool.committed, pool.empty_rows) == (16 * MIB, 3)
    assert pool.set_budget(8 * MIB) is False
    pool.collect(wait=True)
    assert (pool.committed, pool.empty_rows, pool.blocks_free) == (10 * MIB, 0, 0)
    assert not pool.can_allocate(1)
    with pytest.raises(vmm.OutOfMemoryError, match="0 can be had"):
        pool.allocate(1)
    pool.check()
    pool.free(blocks[:1])
    pool.collect(wait=True)
    assert pool.committed == 8 * MIB
    assert not pool.can_allocate(1)
    pool.free(blocks[1:2])
    assert pool.can_allocate(1)
    assert not pool.can_allocate(2)
    assert len(pool.allocate(1)) == 1
    assert pool.set_budget(8 * MIB) is True
    pool.check()


def test_a_raised_limit_gives_more(pool):
    pool.allocate(pool.blocks_free)
    assert not pool.can_allocate(1)
    assert pool.set_budget(40 * MIB) is True
    assert pool.can_allocate(4)
    assert not pool.can_allocate(5)
    pool.check()


def test_a_limit_lowered_and_raised_again_is_not_pending(pool):
    blocks = pool.allocate(6)
    assert pool.set_budget(4 * MIB) is False
    assert pool.set_budget(16 * MIB) is True
    assert pool.can_allocate(2)
    pool.free(blocks)
    pool.check()


def test_idle_blocks_of_the_prefix_cache_go_for_it(device, make_layout):
    with paged.KVPool(device, make_layout(2048), budget=32 * MIB, prefix_cache=True) as pool:
        sequence = pool.sequence(np.arange(100, dtype=np.int32))
        sequence.append(100)
        sequence.free()
        assert pool.blocks_idle == 6
        assert pool.set_budget(4 * MIB) is True
        pool.collect(wait=True)
        assert (pool.blocks_idle, pool.committed) == (0, 4 * MIB)
        pool.check()


def test_a_pending_limit_completes_though_the_cache_would_keep_the_blocks(device, make_layout):
    with paged.KVPool(device, make_layout(2048), budget=32 * MIB, prefix_cache=True) as pool:
        sequences = [pool.sequence(np.arange(first, first + 40, dtype=np.int32)) for first in (0, 100)]
        sequences.append(pool.sequence(np.arange(40, dtype=np.int32)))
        for sequence in sequences:
            sequence.append(40)
        shared = sequences[0].fork()
        assert pool.set_budget(8 * MIB) is False
        for sequence in sequences:
            sequence.free()
            pool.check()
        pool.collect(wait=True)
        assert pool.committed <= 8 * MIB
        assert shared.length == 40
        assert pool.set_budget(8 * MIB) is True
        pool.check()


def test_blocks_that_the_cache_holds_are_not_claimed(device, make_layout):
    with paged.KVPool(device, make_layout(2048), budget=32 * MIB, prefix_cache=True) as pool:
        sequence = pool.sequence(np.arange(40, dtype=np.int32))
        sequence.append(40)
        block = sequence.table[0]
        sequence.free()
        with pytest.raises(vmm.StateError, match="held already, by somebody or the prefix cache"):
            pool.claim([block])
        pool.check()


@pytest.mark.parametrize("budget", ["1 MiB", 0, "x"])
def test_a_budget_that_holds_nothing_is_refused(pool, budget):
    with pytest.raises(ValueError, match="budget"):
        pool.set_budget(budget)
    assert pool.blocks_free == 16


def test_a_pool_with_all_its_memory_keeps_it(rules, make_layout):
    with (
        paged.KVPool(rules, make_layout(2048), budget=32 * MIB, prealloc=True) as pool,
        pytest.raises(ValueError, match="make a new pool"),
    ):
        pool.set_budget("8 MiB")
