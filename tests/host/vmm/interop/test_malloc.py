"""Blocks of a heap by address: any thread, finalizers in the middle of anything, forks, and what keeps a heap open."""

import ctypes
import gc
import os
import signal
import threading

import pytest

import vmm
from vmm.interop import malloc

MIB = 1 << 20


@pytest.fixture
def heap(device):
    with vmm.Heap(device, "1 GiB") as made:
        yield made


@pytest.fixture
def held(heap):
    return malloc.of(heap)


def test_an_address_is_a_blocks_until_it_is_freed(heap, held):
    first, second = held.allocate(1000), held.allocate(3 * MIB)
    assert first % 512 == second % 512 == 0
    assert (heap.allocated, len(held)) == (1024 + 3 * MIB, 2)
    held.free(first)
    assert (heap.allocated, len(held)) == (3 * MIB, 1)
    held.free(second)
    assert (heap.allocated, len(held)) == (0, 0)


def test_no_bytes_are_no_address(heap, held):
    assert held.allocate(0) == 0
    held.free(0)
    assert heap.allocated == 0


def test_a_heap_has_one_for_all_libraries(heap, held):
    assert malloc.of(heap) is held


def test_a_heap_stays_open_while_anything_is_held(heap, held):
    address = held.allocate(1000)
    with pytest.raises(vmm.StateError, match="blocks that were given to another library"):
        heap.close()
    held.free(address)
    heap.close()


def test_an_address_that_is_not_held_is_refused(held):
    address = held.allocate(1000)
    held.free(address)
    with pytest.raises(vmm.StateError, match="not held of this heap"):
        held.free(address)
    with pytest.raises(vmm.StateError, match="not held of this heap"):
        held.free(12345)


def test_out_of_memory_is_raised_and_nothing_is_held(heap, held):
    with pytest.raises(vmm.OutOfMemoryError):
        held.allocate(500 * MIB)
    assert (heap.allocated, len(held)) == (0, 0)
    heap.close()


@pytest.fixture
def stream(device):
    with device.current():
        made = int(vmm.driver.check("cuStreamCreate", device.driver.api.cuStreamCreate(1)))
        yield made
        device.driver.api.cuStreamDestroy(made)


@pytest.mark.parametrize("device", ["deferred"], indirect=True)
def test_memory_stays_until_the_work_of_its_stream_is_done(device, held, stream):
    address = held.allocate(2 * MIB, stream)
    with device.current():
        device.driver.fill_async(address, 7, 2 * MIB, stream)
        assert ctypes.string_at(address, 1) != b"\7"  # nobody has waited: the work has not run
        held.free(address, stream)
        device.driver.stream_synchronize(stream)  # had the memory gone before, this would be a fault
    assert len(held) == 0


def test_threads_wait_for_each_other_and_none_is_refused(heap, held):
    errors = []

    def work(seed):
        try:
            mine = []
            for step in range(300):
                mine.append(held.allocate(1000 * (1 + (step * seed) % 50), 0))
                if step % 3:
                    held.free(mine.pop(step % len(mine)), 0)
            for address in mine:
                held.free(address, 0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    held.free(held.allocate(1), 0)  # takes in what was left
    assert (heap.allocated, len(held)) == (0, 0)


def test_a_finalizer_may_free_in_the_middle_of_an_allocation(heap, held, monkeypatch):
    """As the garbage collector does it: the heap is busy, in this very thread."""
    old, inside = held.allocate(1000), heap.allocate

    def allocate(size, **names):
        held.free(old)
        assert heap.allocated == 1024  # not yet
        return inside(size, **names)

    monkeypatch.setattr(heap, "allocate", allocate)
    new = held.allocate(2000)
    assert heap.allocated == 2048
    held.free(new)


def test_an_allocation_inside_another_is_refused_and_does_not_wait_for_ever(heap, held, monkeypatch):
    inside, caught = heap.allocate, []

    def allocate(size, **names):
        with pytest.raises(vmm.StateError, match="in the middle of another allocation") as error:
            held.allocate(64)
        caught.append(error)
        return inside(size, **names)

    monkeypatch.setattr(heap, "allocate", allocate)
    held.free(held.allocate(2000))
    assert caught


def test_a_free_from_another_thread_is_taken_in_by_the_one_that_allocates(heap, held, monkeypatch):
    old, inside, threads = held.allocate(1000), heap.allocate, []

    def allocate(size, **names):
        threads.append(threading.Thread(target=held.free, args=(old, 0)))
        threads[0].start()
        threads[0].join(20)
        assert not threads[0].is_alive()  # it waited for nobody
        return inside(size, **names)

    monkeypatch.setattr(heap, "allocate", allocate)
    new = held.allocate(2000)
    assert heap.allocated == 2048
    held.free(new)


def test_what_cannot_be_freed_now_is_freed_by_the_next_call(heap, held, caplog):
    address = held.allocate(4096)
    view = heap.range.array("uint8", 8, address - heap.range.base)
    held.free(address)
    assert "stays for now" in caplog.text
    assert heap.allocated == 4096
    del view
    held.free(held.allocate(1))
    assert heap.allocated == 0


def test_an_owner_frees_with_its_last_reference(heap, held):
    owner = malloc.Held(held, held.allocate(1000, 0), 0)
    kept = [owner]
    del owner
    gc.collect()
    assert len(held) == 1
    kept.clear()
    assert (len(held), heap.allocated) == (0, 0)


def test_an_interrupt_in_an_allocation_leaves_nothing_behind(heap, held, monkeypatch):
    inside = heap.allocate

    def allocate(size, **names):
        signal.raise_signal(signal.SIGINT)  # Ctrl-C, while the heap is at work
        return inside(size, **names)

    monkeypatch.setattr(heap, "allocate", allocate)
    with pytest.raises(KeyboardInterrupt):
        held.allocate(1000)
    monkeypatch.undo()
    assert (len(held), heap.allocated) == (0, 0)


def test_a_forked_child_is_told_and_frees_nothing(held):
    address = held.allocate(1000)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            held.free(address)
            os.write(write, f"{len(held)} held; ".encode())
            held.allocate(1000)
        except vmm.StateError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    assert text.startswith("1 held; ")
    assert "'spawn'" in text
    os.waitpid(child, 0)
    held.free(address)


def test_what_wraps_a_heap_waits_for_its_turn_too(heap, held, monkeypatch):
    limited = malloc.of(vmm.LimitedHeap(heap, "1 MiB"))
    old, inside = limited.allocate(1000), heap.allocate

    def allocate(size, **names):
        limited.free(old)  # a finalizer, in the middle of an allocation for somebody else
        assert heap.allocated == 1024
        return inside(size, **names)

    monkeypatch.setattr(heap, "allocate", allocate)
    new = held.allocate(2000)
    monkeypatch.undo()
    limited.free(limited.allocate(1))
    assert heap.allocated == 2048
    held.free(new)


def test_a_heap_and_what_wraps_it_take_turns(heap, held):
    """A limit for one library, and the rest for another, in several threads."""
    limited, errors = malloc.of(vmm.LimitedHeap(heap, "1 MiB")), []

    def work(one):
        try:
            for _ in range(300):
                one.free(one.allocate(5000, 0), 0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in (held, limited, held, limited)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with pytest.raises(vmm.OutOfMemoryError):
        limited.allocate(2 * MIB)
    for one in (held, limited):
        one.free(one.allocate(1, 0), 0)  # takes in what was left
    assert heap.allocated == 0


@pytest.mark.parametrize(("stream", "error"), [("x", TypeError), (-1, vmm.RangeError), (1 << 64, vmm.RangeError)])
def test_a_free_on_what_is_no_stream_frees_nothing(heap, held, stream, error):
    address = held.allocate(MIB)
    with pytest.raises(error):
        held.free(address, stream)
    assert len(held) == 1 and heap.allocated == MIB
    held.free(address)
    assert heap.allocated == 0
