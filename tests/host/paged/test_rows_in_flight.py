"""Rows whose blocks were freed after different work, and pools and spans that close while rows retire."""

import pytest

import paged
from vmm.last_work import LastWork

STREAMS = ("deferred",)


@pytest.fixture
def layout(device):
    """Many blocks in a row of one chunk."""
    return paged.KVLayout(paged.KVSpec(1, 8, 64, "float32"), 16, "block", chunk=device.granularity)


def fill(device, address, stream=0):
    with device.current():
        device.driver.fill_async(address, 1, 64, stream)


def collect_until_all_is_done(device, memory):
    """Looks that let the named work run, and then all other work: it faults where its memory went too early."""
    for _ in range(3):
        memory.collect()
    device.synchronize()
    assert memory.committed == 0


def test_a_row_waits_for_the_work_of_every_block_in_it(device, streams, layout):
    with paged.KVPool(device, layout, budget="32 MiB") as pool:
        first, second = pool.allocate(2)
        fill(device, pool.address(block=first), streams[0])
        pool.free([first], after=streams[0])
        pool.free([second], after=streams[1])
        assert pool.retiring == pool.committed == layout.row_bytes
        collect_until_all_is_done(device, pool)


def test_a_row_that_stays_in_reserve_remembers(device, streams, layout):
    with paged.KVPool(device, layout, budget="32 MiB", reserve_rows=1) as pool:
        blocks = pool.allocate(1)
        fill(device, pool.address(block=blocks[0]), streams[0])
        pool.free(blocks, after=streams[0])
        assert pool.trim(after=streams[1]) == layout.row_bytes
        assert pool.retiring == layout.row_bytes
        collect_until_all_is_done(device, pool)


def test_without_that_memory_the_work_faults(device, streams, layout, monkeypatch):
    monkeypatch.setattr(LastWork, "before", lambda _self, _parts, after: after)
    with pytest.raises(Exception, match="by cuMemUnmap"):
        test_a_row_that_stays_in_reserve_remembers(device, streams, layout)
    device.driver.api.reset_context()


@pytest.mark.parametrize("device_first", [False, True])
def test_a_pool_closes_while_its_rows_retire(device, streams, layout, device_first):
    free = device.memory_info().free
    pool = paged.KVPool(device, layout, budget="32 MiB")
    sequence = pool.sequence()
    sequence.append(2000)
    fill(device, pool.address(block=sequence.table[0]), streams[0])
    fill(device, pool.address(block=sequence.table[-1]), streams[1])
    sequence.free()
    assert pool.retiring == pool.committed > layout.row_bytes
    if device_first:
        device.synchronize()
    pool.close()
    assert device.memory_info().free == free
    assert (device.driver.api.live().events, device.driver.api.live().pending) == (0, 0)


@pytest.mark.parametrize("order", ["layer", "token"])
def test_spans_close_while_they_retire(device, streams, order):
    free = device.memory_info().free
    kv = paged.ContiguousKV(device, paged.KVSpec(2, 8, 64, "float32"), 4096, 3, order=order)
    spans = [kv.open() for _ in range(2)]
    for span, stream in zip(spans, streams, strict=True):
        span.append(600)
        fill(device, kv.address(span, 599), stream)
    spans[0].close(after=streams[0])
    assert 0 < kv.retiring < kv.committed
    kv.close()
    assert spans[1].index < 0
    assert device.memory_info().free == free
    assert (device.driver.api.live().events, device.driver.api.live().pending) == (0, 0)


def test_the_next_sequence_of_a_span_gets_its_memory_and_its_work(device, streams):
    """The span is opened again while it retires: its chunks stay, and wait for the first work too when they go."""
    with paged.ContiguousKV(device, paged.KVSpec(1, 8, 64, "float32"), 4096, 1) as kv:
        span = kv.open()
        span.append(600)
        fill(device, kv.address(span, 599), streams[0])
        span.close(after=streams[0])
        span = kv.open()
        span.append(600)
        span.close(after=streams[1])
        assert kv.retiring == kv.committed > 0
        collect_until_all_is_done(device, kv)


def test_rows_that_a_compaction_empties_wait_for_its_copies(device, streams, layout):
    """The copies are on one stream, the work that the caller names is on another."""
    with paged.KVPool(device, layout, budget="32 MiB") as pool:
        keep = [pool.sequence() for _ in range(2)]
        fillers = [pool.sequence() for _ in range(2)]
        for kept, filler in zip(keep, fillers, strict=True):
            kept.append(16)
            filler.append(16 * (pool.layout.chunk // pool.layout.block_stride - 1))
        for filler in fillers:
            filler.free(after=streams[1])
        device.synchronize()
        assert pool.compact(stream=streams[0], after=streams[1]).rows == 1
        for _ in range(3):
            pool.collect()
        device.synchronize()  # raises if a copy found its source gone
        assert pool.committed == layout.row_bytes
        for kept in keep:
            kept.free()
