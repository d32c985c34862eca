"""The boundary between the two page tables: what changes in one leaves the other alone."""

import random

import numpy as np
import pytest

import paged
import vmm
from paged import attention


@pytest.fixture
def recorded():
    """A device whose driver calls are counted."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=vmm.HostDriver(memory="64 MiB"), recorder=recorder) as device:
        yield device, recorder


@pytest.mark.parametrize("order", ["block", "layer"])
def test_appending_inside_a_committed_row_makes_no_driver_call(recorded, make_layout, order):
    device, recorder = recorded
    layout = make_layout(512, order=order, layers=2)  # four blocks of 16 tokens a row
    with paged.KVPool(device, layout, budget=4 * layout.row_bytes) as pool:
        sequence, other = pool.sequence(), pool.sequence()
        sequence.append(1)
        recorder.clear()
        for _ in range(47):
            sequence.append(1)
        other.append(16)
        assert recorder.counts() == {}
        assert (pool.block_pool.used, pool.block_pool.available) == (4, 0)
        other.append(1)  # the row is full
        assert recorder.counts() == {
            "cuMemCreate": layout.planes,
            "cuMemMap": layout.planes,
            "cuMemSetAccess": layout.planes,
        }


@pytest.mark.parametrize("order", ["block", "layer"])
def test_forking_copying_and_sharing_inside_committed_rows_map_nothing(recorded, make_layout, order):
    """The one call of the driver is the copy itself, and it changes no page table."""
    device, recorder = recorded
    layout = make_layout(64, order=order, layers=2)  # 32 blocks of 16 tokens a row
    with paged.KVPool(device, layout, budget=4 * layout.row_bytes, prefix_cache=True) as pool:
        prompt = np.arange(40, dtype=np.int32)
        first = pool.sequence(prompt)
        first.append(prompt)
        first.publish()
        page_table = vmm.snapshot(pool.range)
        recorder.clear()
        alike = pool.sequence(prompt)
        fork = first.fork()
        assert alike.table == first.table[:2]
        assert fork.table == first.table
        assert [pool.count(block) for block in first.table] == [3, 3, 2]
        assert recorder.counts() == {}
        fork.append(1)  # into the shared tail
        copies = {call: n for call, n in recorder.counts().items() if call.startswith("cuMem")}
        assert copies == {"cuMemcpyDtoDAsync": layout.planes}
        assert fork.table[:2] == first.table[:2]
        assert fork.table[2] not in first.table
        recorder.clear()
        for sequence in (first, fork, alike):
            sequence.append(16)
        fork.free()
        assert recorder.counts() == {}
        assert vmm.snapshot(pool.range) == page_table


def test_asking_makes_no_driver_call(recorded, make_layout):
    device, recorder = recorded
    with paged.KVPool(device, make_layout(512), budget="16 MiB") as pool:
        sequence = pool.sequence()
        sequence.append(20)
        recorder.clear()
        assert sequence.can_append(1000) is False
        assert pool.can_allocate(4)
        assert (pool.blocks_free, pool.blocks_total, pool.committed) == (30, 32, 2 << 20)
        sequence.fork().free()
        pool.check()
        assert recorder.counts() == {}


def filled(pool, lengths):
    draw = np.random.default_rng(0)
    sequences = []
    for length in lengths:
        sequence = pool.sequence()
        key, value = draw.standard_normal((2, length, 2, 16)).astype(np.float32)
        attention.append(pool, 0, key, value, sequence.append(length))
        sequences.append(sequence)
    return sequences, draw.standard_normal((len(lengths), 4, 16)).astype(np.float32)


@pytest.mark.usefixtures("compiler")
def test_moving_a_chunk_leaves_block_tables_and_attention_alone(device):
    layout = paged.KVLayout(paged.KVSpec(1, 2, 16, "float32"), chunk=device.granularity)
    with paged.KVPool(device, layout, budget="16 MiB") as pool:
        blocker = pool.sequence()
        blocker.append(layout.chunk // layout.block_stride * 16 - 40)  # so that the others lie in two chunks
        sequences, query = filled(pool, [30, 50, 1])
        assert len(pool.range.committed_chunks()) == 2
        tables = [list(sequence.table) for sequence in sequences]
        before = attention.decode(pool, 0, query, sequences)
        handles = [pool.range.mapping(chunk).handle for chunk in (0, 1)]
        for chunk in (0, 1):
            pool.range.remap(chunk)
        assert not {pool.range.mapping(chunk).handle for chunk in (0, 1)}.intersection(handles)
        assert [sequence.table for sequence in sequences] == tables
        pool.check()
        after = attention.decode(pool, 0, query, sequences)
        assert after.tobytes() == before.tobytes()
        assert before.any()


@pytest.mark.usefixtures("compiler")
def test_shuffling_block_ids_leaves_the_drivers_page_table_alone(recorded):
    """The same tokens in other blocks: other tables, the same answer, and not one driver call."""
    device, recorder = recorded
    layout = paged.KVLayout(paged.KVSpec(1, 2, 16, "float32"), chunk=device.granularity)
    with paged.KVPool(device, layout, budget="4 MiB", prealloc=True) as pool:
        sequences, query = filled(pool, [30, 50, 1])
        before = attention.decode(pool, 0, query, sequences)
        tables = [list(sequence.table) for sequence in sequences]
        page_table = vmm.snapshot(pool.range)
        for sequence in sequences:
            sequence.free()
        blocks = pool.allocate(pool.blocks_total)
        random.Random(0).shuffle(blocks)
        recorder.clear()
        pool.free(blocks[: len(blocks) // 2])  # any half of them
        assert recorder.counts() == {}
        sequences, query = filled(pool, [30, 50, 1])
        assert all(sequence.table != table for sequence, table in zip(sequences, tables, strict=True))
        assert attention.decode(pool, 0, query, sequences).tobytes() == before.tobytes()
        assert vmm.snapshot(pool.range) == page_table
        assert not any(call.startswith("cuMem") for call in recorder.counts())


@pytest.mark.usefixtures("compiler")
def test_what_a_block_table_says_is_translated_like_any_other_address(device):
    """A block table that names a block without memory leads a kernel to an address that is not in the page table."""
    layout = paged.KVLayout(paged.KVSpec(1, 2, 16, "float32"), chunk=device.granularity)
    with paged.KVPool(device, layout, budget="16 MiB") as pool:
        sequences, query = filled(pool, [30])
        assert attention.decode(pool, 0, query, sequences).any()
        bare = pool.block_pool.rows.touching(3)[0]
        address = pool.address(block=bare)
        assert vmm.snapshot(pool.range).translate(address) is None
        pool.table.put(sequences[0].row, 0, [bare])
        with pytest.raises(vmm.DriverError, match=r"ILLEGAL_ADDRESS.*range 'kv', chunk 3") as refused:
            attention.decode(pool, 0, query, sequences)
            device.synchronize()
        assert refused.value.code == 700
        assert f"{address:#x}" in str(refused.value)
        device.driver.api.reset_context()
