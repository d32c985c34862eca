"""What broke pools once: holds that are the cache's, NumPy's numbers, work that is none, a device that is full."""

import numpy as np
import pytest

import paged
import vmm
from paged import attention

MIB = 1 << 20
IDS = list(range(40))


@pytest.fixture
def pool(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=32 * MIB, prefix_cache=True, name="kv") as made:
        yield made


def cached(pool):
    """The blocks that a sequence of 40 tokens has left in the cache."""
    sequence = pool.sequence(IDS)
    sequence.append(40)
    table = list(sequence.table)
    sequence.free()
    return table[:2]


def test_the_hold_of_the_cache_cannot_be_freed_by_others(pool):
    blocks = cached(pool)
    for wrong in (blocks, blocks[:1]):
        with pytest.raises(vmm.StateError, match="is freed more often than it is held"):
            pool.free(wrong)
    sequence = pool.sequence(IDS)
    with pytest.raises(vmm.StateError, match="is freed more often than it is held"):
        pool.free([blocks[0], blocks[0]])
    assert sequence.table == blocks
    pool.check()


def test_a_fork_of_idle_blocks_holds_them(pool):
    blocks = cached(pool)
    pool.fork(blocks)
    assert pool.blocks_idle == 0
    taken = pool.allocate(pool.blocks_free)
    assert not set(taken) & set(blocks)
    pool.check()
    pool.free(blocks)
    assert pool.blocks_idle == 2
    pool.check()


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpys_numbers_are_numbers(rules, make_layout, kind):
    for block_kib in (512, 2048, 896):
        with paged.KVPool(rules, make_layout(block_kib), budget=32 * MIB) as pool:
            blocks = pool.allocate(kind(3))
            assert (len(blocks), {type(block) for block in blocks}) == (3, {int})
            pool.fork(np.array(blocks, kind))
            pool.free([kind(block) for block in blocks])
            pool.free(np.array(blocks, kind))
            pool.claim([kind(5)])
            pool.check()
            for wrong in (2.0, "3", None):
                with pytest.raises(TypeError):
                    pool.allocate(wrong)
            pool.check()


def test_chunks_are_pythons_ints(rules):
    with vmm.GrowableRange(rules, "64 GiB") as kv:
        kv.commit(np.array([2000, 2001], np.int32))
        assert {type(chunk) for chunk in kv.committed_chunks()} == {int}
        assert kv.runs()[0].start == 2000 * 2 * MIB
        kv.decommit([np.int16(2000)])
        assert kv.committed_chunks() == [2001]


def test_work_that_is_none_changes_nothing(pool, picture):
    sequence = pool.sequence(IDS)
    sequence.append(40)
    before = picture(pool)
    with pytest.raises(TypeError, match="neither a stream nor an event"):
        sequence.free(after="bogus")
    assert picture(pool) == before
    sequence.free()
    pool.check()


def test_a_fork_on_a_pool_that_sleeps_changes_nothing(pool):
    sequence = pool.sequence()
    sequence.append(40)
    residency = vmm.Residency(pool.device)
    residency.add(pool.range, "kv")
    residency.sleep("kv", backup=True)
    with pytest.raises(vmm.StateError, match="asleep"):
        sequence.fork()
    residency.wake("kv")
    sequence.free()
    assert pool.block_pool.used == 0


def test_a_pool_with_all_its_memory_is_not_compacted(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=16 * MIB, prealloc=True) as pool:
        sequences = [pool.sequence() for _ in range(12)]
        for sequence in sequences:
            sequence.append(16)
        for sequence in sequences[1:5] + sequences[6:11]:
            sequence.free()
        assert pool.compact().moved == 0
        assert pool.committed == 16 * MIB
        pool.check()


def test_on_a_full_device_idle_blocks_go_instead_of_new_rows(device, make_layout):
    with (
        paged.KVPool(device, make_layout(512), budget=128 * MIB, prefix_cache=True) as pool,
        vmm.GrowableRange(device, "1 GiB") as hoard,
    ):
        sequence = pool.sequence(list(range(160)))
        sequence.append(160)
        sequence.free()
        taken = pool.allocate(pool.block_pool.available)
        hoard.grow(device.memory_info().free)
        assert pool.blocks_idle == 10
        assert len(pool.allocate(4)) == 4
        assert pool.blocks_idle == 6
        with pytest.raises(vmm.OutOfMemoryError):
            pool.allocate(7)
        pool.check()
        pool.free(taken)


def test_blocks_that_are_published_after_a_sleep_are_found(pool):
    sequence = pool.sequence(list(range(100)))
    residency = vmm.Residency(pool.device)
    residency.add(pool.range, "kv")
    residency.sleep("kv", backup=False)
    residency.wake("kv")
    sequence.append(100)
    sequence.publish()
    assert pool.sequence(list(range(100))).length == 96
    pool.check()


def test_a_list_of_slots_is_checked_as_an_array_is(device):
    layout = paged.KVLayout(paged.KVSpec(2, 1, 8, "float32"), 16, "layer")
    with paged.KVPool(device, layout, budget=16 * MIB) as pool:
        pool.allocate(4)
        ones = np.ones((1, 1, 8), np.float32)
        end = pool.block_pool.rows.blocks * 16
        for slots in ([end], (end,), np.array([end])):
            with pytest.raises(vmm.RangeError, match="is not there"):
                attention.append(pool, 0, ones, ones, slots)


def test_a_pinned_row_in_reserve_does_not_stop_others(device, make_layout):
    with paged.KVPool(device, make_layout(2048), budget=32 * MIB, reserve_rows=1) as pool:
        blocks = pool.allocate(4)
        pool.free(blocks[3:])
        with pool.range.pin(blocks[3] * 2 * MIB, (blocks[3] + 1) * 2 * MIB, "a graph"):
            pool.free(blocks[:1])
            pool.free(blocks[1:2])
        pool.check()
        pool.free(blocks[2:3])


def test_an_event_that_is_gone_does_not_stop_the_others():
    with (
        vmm.Device(driver=vmm.HostDriver(memory="64 MiB", streams="deferred")) as own,
        vmm.GrowableRange(own, "64 MiB") as first,
        vmm.GrowableRange(own, "64 MiB") as second,
    ):
        first.commit([0])
        second.commit([0, 1])
        api = own.driver.api
        with own.current():
            event = api.cuEventCreate(0)[1]
            api.cuEventRecord(event, 0)
            first.decommit([0], after=event)
            api.cuEventDestroy(event)
        second.decommit([0, 1])
        with pytest.raises(vmm.DriverError):
            own.retirement.collect()
        with pytest.raises(vmm.DriverError):
            own.retirement.collect()
        assert second.retiring == 0
