"""What wraps a heap: statistics and limits."""

import pytest

import vmm
from vmm import uninterrupted

MIB = 1 << 20


@pytest.fixture
def heap(rules):
    with vmm.StatisticsHeap(vmm.Heap(rules, "1 GiB")) as made:
        yield made


def test_what_is_in_use_at_most_and_in_all(heap):
    first, second = heap.allocate(1000), heap.allocate(3 * MIB)
    first.free()
    third = heap.allocate(2000)
    found = heap.statistics
    assert (found.current, found.requested, found.count) == (3 * MIB + 2048, 3 * MIB + 2000, 2)
    assert (found.peak, found.peak_count) == (3 * MIB + 2048, 2)
    assert (found.total, found.total_count) == (3 * MIB + 1024 + 2048, 3)
    second.free()
    third.free()
    heap.reset_peak()
    found = heap.statistics
    assert (found.current, found.count, found.peak, found.peak_count, found.requested) == (0, 0, 0, 0, 0)
    assert found.total_count == 3


def test_fragmentation_is_what_a_trim_leaves_beside_the_blocks(heap):
    assert heap.statistics.fragmentation == 0
    blocks = [heap.allocate(MIB) for _ in range(8)]
    assert heap.statistics.fragmentation == 0
    for block in blocks[::2]:
        block.free()
    found = heap.statistics
    assert (found.committed, found.trimmable, found.fragmentation) == (8 * MIB, 0, 0.5)
    assert "50.0% fragmented" in str(found)
    for block in blocks[1::4]:
        block.free()
    assert heap.statistics.trimmable == 4 * MIB
    assert heap.statistics.fragmentation == 0.5
    assert heap.trim() == 4 * MIB
    assert heap.statistics.committed == 4 * MIB


def test_an_error_counts_nothing(heap):
    block = heap.allocate(100)
    with pytest.raises(vmm.OutOfMemoryError):
        heap.allocate("2 GiB")
    block.free()
    with pytest.raises(vmm.StateError):
        block.free()
    assert (heap.statistics.count, heap.statistics.total_count) == (0, 1)


def test_a_dropped_block_is_counted_off(heap):
    heap.allocate(100).drop()
    assert heap.statistics.count == 1
    heap.collect()
    assert heap.statistics.count == 0


def test_an_interrupt_as_a_block_is_returned_counts_it_off(heap, monkeypatch):
    """It is given back where nobody has it."""
    took = heap.took

    def interrupt(block):
        took(block)
        uninterrupted._noted.append(None)

    monkeypatch.setattr(heap, "took", interrupt)
    with pytest.raises(KeyboardInterrupt):
        heap.allocate(100)
    assert (heap.statistics.count, heap.statistics.total_count) == (0, 1)
    heap.check()


def test_a_limit_bounds_the_blocks_and_says_so(rules):
    with vmm.LimitedHeap(vmm.Heap(rules, "1 GiB"), "4 MiB") as heap:
        block = heap.allocate("3 MiB")
        with pytest.raises(vmm.OutOfMemoryError, match=r"2 MiB asked, 1 MiB left in the limit \(3 MiB of 4") as caught:
            heap.allocate("2 MiB")
        report = caught.value.report
        assert (report.asked, report.granted, report.cause) == (2 * MIB, MIB, "limit")
        assert report.remedies[0].value == 5 * MIB
        heap.limit = report.remedies[0].value
        heap.allocate("2 MiB").free()
        heap.limit = MIB  # below what is in use: nothing is taken away
        with pytest.raises(vmm.OutOfMemoryError, match="0 B left"):
            heap.allocate(1)
        block.free()
        assert heap.in_use == 0
        heap.allocate("1 MiB")


def test_a_limit_is_reached_to_the_byte(rules):
    """A limit of what a block is rounded to lets exactly that be had, as often as it is freed."""
    with vmm.LimitedHeap(vmm.Heap(rules, "1 GiB"), 1024) as heap:
        for _ in range(3):
            heap.allocate(513).free()
        with pytest.raises(vmm.OutOfMemoryError):
            heap.allocate(1025)


def test_wrappers_wrap_each_other_and_blocks_come_back_through_all(rules):
    inner = vmm.StatisticsHeap(vmm.Heap(rules, "1 GiB"))
    with vmm.StatisticsHeap(vmm.LimitedHeap(inner, "8 MiB")) as outer:
        block = outer.allocate(100)
        assert inner.statistics.count == outer.statistics.count == 1
        assert outer.range is inner.range
        block.free()
        assert inner.statistics.count == outer.statistics.count == 0
    assert inner.range.closed


def test_what_was_dropped_makes_room_within_a_limit(rules):
    with vmm.LimitedHeap(vmm.Heap(rules, "1 GiB"), MIB) as limited:
        limited.allocate(MIB).drop()
        block = limited.allocate(512)
        assert limited.in_use == 512
        block.free()


def test_a_block_that_went_past_a_wrapper_does_not_come_back_through_it(rules):
    inner = vmm.Heap(rules, "1 GiB")
    with vmm.LimitedHeap(inner, "8 MiB") as limited:
        mine, other = limited.allocate(1000), inner.allocate(600)
        with pytest.raises(vmm.StateError, match="not allocated in this heap through this LimitedHeap"):
            limited.release(other)
        assert limited.in_use == 1024 and inner.holds(other) and not limited.holds(other)
        other.free()
        mine.free()


@pytest.mark.parametrize("wrap", [vmm.StatisticsHeap, lambda heap: vmm.LimitedHeap(heap, MIB)])
def test_a_closed_heap_has_nothing_in_use_and_says_that_it_is_closed(rules, wrap):
    heap = wrap(vmm.Heap(rules, "1 GiB"))
    heap.allocate(MIB)
    heap.close()
    with pytest.raises(vmm.ClosedError):
        heap.allocate(512)
    if isinstance(heap, vmm.LimitedHeap):
        assert heap.in_use == 0
    else:
        found = heap.statistics
        assert (found.current, found.count, found.requested, found.peak, found.total_count) == (0, 0, 0, MIB, 1)
