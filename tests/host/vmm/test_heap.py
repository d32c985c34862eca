"""What every allocator does, the heap and what wraps it, kept memory or not."""

import itertools
import threading

import pytest

import vmm

MIB = 1 << 20
KINDS = {
    "heap": vmm.Heap,
    "keeps nothing": lambda *args, **options: vmm.Heap(*args, keep=False, **options),
    "statistics": lambda *args, **options: vmm.StatisticsHeap(vmm.Heap(*args, **options)),
    "both": lambda *args, **options: vmm.StatisticsHeap(vmm.LimitedHeap(vmm.Heap(*args, **options), "1 TiB")),
}


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


@pytest.fixture
def heap(make, device):
    with make(device, "1 GiB") as made:
        yield made
        made.check()


def give_back(heap):
    heap.trim()
    heap.collect(wait=True)


def test_a_block_commits_what_it_covers_and_gives_it_back(heap):
    block = heap.allocate(123_456)
    assert (block.requested, block.size) == (123_456, 123_904)
    assert block.address % 512 == 0
    assert (heap.range.reserved, heap.committed) == (1 << 30, 2 * MIB)
    block.free()
    give_back(heap)
    assert (heap.committed, heap.trimmable) == (0, 0)


def test_a_chunk_stays_while_any_block_lies_in_it(heap):
    first, second = heap.allocate("3 MiB"), heap.allocate("3 MiB")
    assert heap.committed == 6 * MIB
    first.free()
    give_back(heap)
    assert heap.committed == 4 * MIB  # the chunk in the middle holds a part of both
    second.free()
    give_back(heap)
    assert heap.committed == 0


def test_freed_neighbours_merge_and_the_best_fit_is_taken(heap):
    blocks = [heap.allocate("1 MiB") for _ in range(6)]
    places = [block.address for block in blocks]
    for index in (1, 2, 4):
        blocks[index].free()
    assert heap.allocate("1 MiB").address == places[4]  # the hole that fits exactly, not the larger one before it
    assert heap.allocate("2 MiB").address == places[1]


def test_small_blocks_do_not_lie_in_the_way_of_large_ones(heap):
    large = heap.allocate("3 MiB")
    small = heap.allocate("4 KiB")  # not in the rest of the large one's second chunk
    large.free()
    heap.collect(wait=True)
    assert heap.allocate("4 MiB").address == large.address
    small.free()


def test_case_5_physical_memory_never_fragments(make, device):
    """rmm#1957 and #1664: free the 4 beside the 1, put 1 there, and 4 in a row are still to be had."""
    unit = 2 * MIB
    supply = vmm.ChunkSupply(device, budget=8 * unit)
    with supply, make(device, 64 * unit, supply=supply) as heap:
        heap.allocate(unit)
        four = heap.allocate(4 * unit)
        four.free()
        heap.allocate(unit)
        heap.allocate(unit)
        assert heap.allocate(4 * unit).size == 4 * unit
        assert heap.committed == 7 * unit


def test_case_5_a_block_of_all_creates_only_what_is_not_there(make):
    """rmm#1957: of 1,024 units map 256, free them, and ask for all in a row: 768 more are created."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=vmm.HostDriver(memory="8 GiB", backing="none"), recorder=recorder) as device:
        unit = device.granularity
        with (
            vmm.ChunkSupply(device, budget=1024 * unit) as supply,
            make(device, 4096 * unit, supply=supply) as heap,
        ):
            first = heap.allocate(256 * unit)
            first.free()
            recorder.clear()
            heap.allocate(1024 * unit)
            assert recorder.counts()["cuMemCreate"] == (768 if getattr(heap, "keep", True) else 1024)
            assert heap.committed == 1024 * unit


def test_any_order_of_frees_leaves_all_memory_for_one_block(make):
    """httomo#667: an array of 1 and one of 4 of 8, the 4 freed, 1 taken, and the same again."""
    with vmm.Device(driver=vmm.HostDriver(memory="16 MiB", backing="none")) as device:
        unit = 2 * MIB
        with make(device, "1 GiB") as heap:
            first, temporary = heap.allocate(unit), heap.allocate(4 * unit)
            temporary.free()
            second = heap.allocate(unit)
            first.free()
            heap.allocate(unit)
            again = heap.allocate(4 * unit)
            for block in (second, again):
                block.free()
            assert heap.allocate(7 * unit).size == 7 * unit


def test_no_address_left_names_the_largest_span(make, device):
    with make(device, "8 MiB") as heap:
        heap.allocate("5 MiB")
        with pytest.raises(vmm.OutOfMemoryError, match="the largest is 3 MiB") as caught:
            heap.allocate("4 MiB")
        assert caught.value.report.granted == 3 * MIB
        heap.check()
        assert heap.allocate("3 MiB").size == 3 * MIB


def test_addresses_that_lie_empty_in_another_stream_are_had(make, device):
    with make(device, "8 MiB") as heap:
        heap.allocate("6 MiB").free()
        assert heap.allocate("8 MiB", stream=0).size == 8 * MIB


def test_no_physical_memory_left_changes_nothing(heap):
    kept = heap.allocate("200 MiB")
    with pytest.raises(vmm.OutOfMemoryError):
        heap.allocate("100 MiB")
    heap.check()
    assert heap.committed == 200 * MIB
    assert heap.allocate("50 MiB").address != kept.address


@pytest.mark.parametrize(
    ("size", "error", "text"),
    [
        (0, vmm.SizeError, "more than 0"),
        (-1, vmm.SizeError, "not -1"),
        (1 << 63, vmm.SizeError, "at most 4 EiB"),
        (1 << 61, vmm.OutOfMemoryError, "no free span of 2048 PiB|left in the limit"),
        (1.5, vmm.SizeError, "number of bytes"),
        (True, vmm.SizeError, "number of bytes"),
        ("2 MB", vmm.SizeError, "MiB"),
    ],
)
def test_sizes_that_are_none_are_one_line(heap, size, error, text):
    kept = heap.allocate(100)
    with pytest.raises(error, match=text) as caught:
        heap.allocate(size)
    assert "\n" not in str(caught.value)
    heap.check()
    assert heap.allocate(100).address == kept.address + 512


@pytest.mark.parametrize("alignment", [1, 512, 4096, 1 << 16, "1 MiB", 2 * MIB])
def test_alignments(heap, alignment):
    for size in (100, 700_000, 5 * MIB):
        heap.allocate(300)
        block = heap.allocate(size, alignment=alignment)
        assert block.address % max(512, vmm.parse_size(alignment)) == 0
        assert block.requested == size
        heap.check()


@pytest.mark.parametrize("alignment", [3, 1000, 4 * MIB, 0, "6 KiB"])
def test_alignments_that_are_none_are_one_line(heap, alignment):
    with pytest.raises((vmm.AlignmentError, vmm.SizeError), match="alignment") as caught:
        heap.allocate(100, alignment=alignment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stream", ["0", 1.5, object(), [0]])
def test_what_is_no_stream_is_refused(heap, stream):
    with pytest.raises(TypeError, match="is no stream"):
        heap.allocate(100, stream=stream)
    assert heap.committed == 0
    heap.allocate(100)


def test_a_block_freed_twice_is_refused(heap):
    block = heap.allocate(100)
    block.free()
    with pytest.raises(vmm.StateError, match="freed before"):
        block.free()
    heap.collect(wait=True)
    again = heap.allocate(100)
    assert again.offset == block.offset
    with pytest.raises(vmm.StateError, match="freed before"):
        block.free()  # the place is taken by another block now
    with pytest.raises(vmm.StateError, match="freed before"):
        block.array("uint8", 100)
    again.free()


def test_a_block_of_another_heap_is_refused(make, device, heap):
    block = heap.allocate(100)
    with make(device, "8 MiB") as other:
        other.allocate(100)
        with pytest.raises(vmm.StateError, match="not allocated in this heap"):
            other.release(block)
    block.free()


def test_a_viewed_block_is_not_freed_and_an_array_stays_inside_its_block(heap):
    block = heap.allocate(4096)
    x = block.array("float32", 1024)
    x[:] = 2
    with pytest.raises(vmm.StateError, match="cannot free"):
        block.free()
    with pytest.raises(vmm.RangeError, match="there are 4096"):
        block.array("float32", 1025)
    assert float(x.sum()) == 2048
    del x
    block.free()


def test_a_dropped_block_comes_back_at_the_next_call(heap):
    block = heap.allocate(4096)
    x = block.array("uint8", 10)
    block.drop()
    other = heap.allocate(4096)
    assert other.address != block.address  # an array is there still
    del x
    assert heap.allocate(4096).address == block.address
    heap.check()


def test_a_closed_heap_says_so_and_closes_again(make, device):
    heap = make(device, "64 MiB")
    block = heap.allocate(100)
    heap.close()
    heap.close()
    for call in (lambda: heap.allocate(100), heap.trim, heap.collect):
        with pytest.raises(vmm.ClosedError):
            call()
    with pytest.raises(vmm.VmmError):
        block.free()
    assert device.driver.api.live().reservations == 0


def test_a_heap_that_sleeps_gives_nothing_and_takes_back(heap, device):
    block, other = heap.allocate("3 MiB"), heap.allocate(100)
    residency = vmm.Residency(device)
    residency.add(heap.range, "heap")
    residency.sleep("heap", backup=True)
    for call in (lambda: heap.allocate(100), heap.trim, heap.collect):
        with pytest.raises(vmm.StateError, match="asleep"):
            call()
    block.free()
    residency.wake("heap")
    heap.check()
    assert heap.allocate(100).address == other.address + 512


def test_two_threads_at_once_are_told_and_nothing_is_lost(make, rules):
    refused, errors = [], []
    with make(rules, "64 MiB") as heap:

        def until_done(call):
            while True:
                try:
                    return call()
                except vmm.StateError as refusal:
                    refused.append(refusal)

        def work():
            try:
                for _ in range(100):
                    until_done(until_done(lambda: heap.allocate(700_000)).free)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert all("one thread at a time" in str(refusal) for refusal in refused)
        heap.check()
        give_back(heap)
        assert heap.committed == 0
        assert heap.allocate("64 MiB").size == 64 * MIB


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"])
def test_an_allocation_or_free_that_fails_changes_nothing(failing, call):
    device, api = failing
    with vmm.Heap(device, "64 MiB", keep=False) as heap:
        heap.allocate("1 MiB")
        block = heap.allocate("6 MiB")
        state = (heap.allocated, heap.committed, device.driver.api.live())
        api.arm(call, 1)
        with pytest.raises(vmm.VmmError):
            block.free() if call == "cuMemUnmap" else heap.allocate("9 MiB")
        assert not api.disarm()
        assert (heap.allocated, heap.committed, device.driver.api.live()) == state
        heap.check()
        heap.allocate("9 MiB").free()
        block.free()


def test_blocks_never_share_a_byte(heap):
    sizes = [1, 511, 512, 513, 70_000, 1 * MIB - 1, 1 * MIB, 3 * MIB + 1]
    blocks = [heap.allocate(size) for size in sizes * 3]
    for low, high in itertools.pairwise(sorted(blocks, key=lambda block: block.address)):
        assert low.address + low.size <= high.address
