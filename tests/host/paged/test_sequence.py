"""Sequences: slots as they grow, shared blocks, and the copy of a shared tail."""

import numpy as np
import pytest

import paged
import vmm

STREAMS = ("eager", "deferred")

MIB = 1 << 20


@pytest.fixture
def pool(device, make_layout):
    with paged.KVPool(device, make_layout(512), budget=16 * MIB) as found:
        yield found
        found.check()


def test_slots_follow_the_table(pool):
    sequence = pool.sequence()
    assert sequence.append(0).tolist() == []
    assert sequence.append(5).tolist() == [0, 1, 2, 3, 4]
    other = pool.sequence()
    other.append(1)
    assert sequence.append(15).tolist() == [*range(5, 16), 32, 33, 34, 35]  # block 1 is the other's
    assert (sequence.table, sequence.length) == ([0, 2], 20)
    assert pool.live == 21 * pool.layout.spec.token_bytes


def test_append_is_all_or_nothing(pool, picture):
    sequence = pool.sequence()
    sequence.append(32 * 16 - 3)
    before = picture(pool)
    assert sequence.can_append(3)
    assert not sequence.can_append(4)
    with pytest.raises(vmm.OutOfMemoryError, match="1 block asked, 0 can be had"):
        sequence.append(4)
    assert picture(pool) == before
    assert sequence.append(3).tolist() == [509, 510, 511]


def test_wrong_use_is_named(pool):
    sequence = pool.sequence()
    with pytest.raises(vmm.RangeError, match="cannot append -1 tokens"):
        sequence.append(-1)
    sequence.free()
    sequence.free()
    for act in (lambda: sequence.append(1), lambda: sequence.can_append(1), sequence.fork):
        with pytest.raises(vmm.ClosedError, match="the sequence was freed"):
            act()


def test_a_fork_shares_full_and_partial_blocks(pool):
    parent = pool.sequence()
    parent.append(40)
    child = parent.fork()
    assert child.table == parent.table
    assert [pool.count(block) for block in parent.table] == [2, 2, 2]
    assert pool.block_pool.used == 3
    assert pool.live == 40 * pool.layout.spec.token_bytes  # a shared token counts once
    parent.free()
    assert pool.live == 40 * pool.layout.spec.token_bytes
    assert child.append(1).tolist() == [child.table[2] * 16 + 8]
    child.free()
    pool.collect(wait=True)
    assert (pool.live, pool.committed) == (0, 0)


def test_case_28_a_shared_tail_is_copied_before_it_is_written(pool):
    """vllm#417: fork with the tail half full, append to the child, then to the parent in place."""
    parent = pool.sequence()
    parent.append(24)
    tail = parent.table[1]
    pool.view(tail, 0)[0, :8] = 5  # [1 head, 16 slots, D]
    pool.view(tail, 0, 1)[0, :8] = 6
    child = parent.fork()
    slots = child.append(1)
    copy = child.table[1]
    assert copy != tail
    assert slots.tolist() == [copy * 16 + 8]
    pool.device.synchronize()  # the copy is queued
    assert (pool.count(tail), pool.count(copy), pool.count(parent.table[0])) == (1, 1, 2)
    assert np.all(pool.view(copy, 0)[0, :8] == 5)
    assert np.all(pool.view(copy, 0, 1)[0, :8] == 6)
    pool.view(copy, 0)[...] = 9
    assert np.all(pool.view(tail, 0)[0, :8] == 5)
    assert parent.append(1).tolist() == [tail * 16 + 8]
    assert pool.block_pool.used == 3
    assert pool.live == (16 + 9 + 9) * pool.layout.spec.token_bytes  # the copied tokens exist twice
    pool.check()
    child.free()
    assert pool.live == (16 + 9) * pool.layout.spec.token_bytes


def test_case_28_without_another_holder_nothing_is_copied(pool):
    parent = pool.sequence()
    parent.append(24)
    child = parent.fork()
    table = list(parent.table)
    parent.free()
    child.append(1)
    assert child.table == table


def test_a_fork_at_a_block_boundary_copies_nothing(pool):
    parent = pool.sequence()
    parent.append(32)
    child = parent.fork()
    child.append(1)
    assert child.table[:2] == parent.table
    assert pool.block_pool.used == 3


def test_case_30_a_copy_without_a_free_block_is_not_now(pool, picture):
    """xllm#1984: nothing has changed."""
    parent = pool.sequence()
    parent.append(32 * 16 - 8)
    child = parent.fork()
    before = picture(pool)
    assert not child.can_append(1)
    with pytest.raises(vmm.OutOfMemoryError, match="1 block asked, 0 can be had"):
        child.append(1)
    assert picture(pool) == before
    parent.free()
    child.append(8)


def test_a_copy_that_fails_leaves_everything_as_it_was(failing, make_layout, picture):
    device, api = failing
    with paged.KVPool(device, make_layout(2048, order="layer", layers=2), budget=32 * MIB) as pool:
        parent = pool.sequence()
        parent.append(24)
        child = parent.fork()
        before = picture(pool)
        for at in (1, 2):  # one copy a plane
            api.arm("cuMemcpyDtoDAsync", at, code=1)
            with pytest.raises(vmm.DriverError, match="cuMemcpyDtoDAsync"):
                child.append(1)
            assert picture(pool) == before
            pool.check()
        child.append(1)


def test_a_closed_pool_ends_its_sequences_and_gives_nothing(device):
    layout = paged.KVLayout(paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float32"), block_size=16)
    pool = paged.KVPool(device, layout, blocks=64)
    sequence = pool.sequence()
    sequence.append(17)
    pool.close()
    uses = (lambda: sequence.append(1), lambda: sequence.fork(), pool.sequence, lambda: pool.allocate(1))
    for use in (*uses, lambda: pool.claim([3])):
        with pytest.raises(vmm.ClosedError, match="closed"):
            use()
    sequence.free()
    assert (pool.live, pool.sequences) == (0, [])
