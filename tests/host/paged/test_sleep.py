"""A pool whose range sleeps: what is refused, what may be freed, and what its bytes are afterwards."""

import numpy as np
import pytest

import paged
import vmm
from paged import attention

STREAMS = ("eager", "deferred")
MIB = 1 << 20


@pytest.fixture
def pool(device, make_layout):
    with paged.KVPool(device, make_layout(512), budget=32 * MIB, name="kv") as made:
        yield made


@pytest.fixture
def residency(pool):
    made = vmm.Residency(pool.device)
    made.add(pool.range, "kv")
    return made


def test_a_pool_sleeps_and_wakes_with_every_byte(pool, residency):
    sequence = pool.sequence()
    sequence.append(100)
    for number, block in enumerate(sequence.table):
        pool.view(block, 0)[...] = number + 1
    table = list(sequence.table)
    residency.sleep("kv", backup=True)
    pool.check()
    assert (pool.committed, pool.live > 0) == (0, True)
    residency.wake("kv")
    pool.check()
    assert sequence.table == table
    assert not sequence.lost
    for number, block in enumerate(sequence.table):
        assert np.all(pool.view(block, 0) == number + 1)
    sequence.append(10)


def test_case_14_what_is_freed_asleep_does_not_come_back(pool, residency):
    """vllm#36651, vllm-omni#4473."""
    stays, goes = pool.sequence(), pool.sequence()
    for sequence in (stays, goes):
        sequence.append(64 * 2)
    rows = pool.committed
    residency.sleep("kv", backup=True)
    goes.free()
    pool.check()
    residency.wake("kv")
    pool.check()
    assert pool.committed == rows // 2
    assert pool.block_pool.used == len(stays.table)


def test_case_15_an_append_to_a_pool_that_sleeps_is_refused_before_any_kernel(pool, residency, picture):
    """vllm#44395: naming the tag."""
    sequence = pool.sequence()
    slots = sequence.append(8)  # eight more have room in its block
    residency.sleep("kv", backup=True)
    before = picture(pool)
    ones = np.ones((8, 1, pool.layout.spec.head_dim), np.float32)
    for action in (
        lambda: sequence.append(1),
        lambda: pool.allocate(1),
        lambda: pool.claim([30]),
        lambda: pool.sequence(),
        lambda: pool.view(sequence.table[0], 0),
        lambda: attention.append(pool, 0, ones, ones, slots),
        lambda: attention.decode(pool, 0, ones[:1], [sequence]),
        lambda: attention.gather(pool, 0, sequence),
    ):
        with pytest.raises(vmm.StateError, match="kv is asleep with 'kv'; wake that first"):
            action()
    assert picture(pool) == before
    assert pool.device.driver.api.live().pending == 0
    residency.wake("kv")
    sequence.append(1)


def test_case_17_without_a_backup_the_tokens_are_lost_and_say_so(pool, residency):
    """vllm#29341."""
    sequence, empty = pool.sequence(), pool.sequence()
    sequence.append(20)
    child = sequence.fork()
    residency.sleep("kv", backup=False)
    residency.wake("kv")
    query = np.ones((1, 1, pool.layout.spec.head_dim), np.float32)
    for held in (sequence, child):
        assert held.lost
        for action in (lambda held=held: held.append(1), lambda held=held: attention.decode(pool, 0, query, [held])):
            with pytest.raises(vmm.StateError, match="were lost when 'kv' slept without a backup; free it and compute"):
                action()
    assert not empty.lost
    empty.append(3)
    sequence.free()
    child.free()
    again = pool.sequence()
    again.append(20)
    assert not again.lost
    pool.check()
