"""Every driver call of every operation of ranges, heaps and supplies fails once: nothing has changed, a retry works."""

import pytest

import vmm
from vmm.chunk_map import ChunkMap
from vmm.fence import Fence
from vmm.host import SweepError
from vmm.stock import Stock

UNIT = 64 << 10
CASES = {}


def case(*covers, loose=False, **options):
    """Register an operation, and the public methods that it stands for. ``loose``: it may collect what retires."""

    def register(function):
        CASES[function.__name__] = function
        function.covers, function.loose, function.options = covers, loose, options
        return function

    return register


# -- supplies ---------------------------------------------------------------------------------------------------


@case("ChunkSupply.__init__")
def make_a_supply(world):
    world.range([0])
    return lambda: world.supply(budget=4 * UNIT)


@case("Supply.take")
def take_cached_and_new(world):
    supply = world.supply(cache=2 * UNIT)
    supply.give(supply.take(2))
    return lambda: keep(world, supply, supply.take(4))


@case("Supply.take", loose=True)
def take_what_the_budget_has_only_when_retired(world):
    supply = world.supply(budget=3 * UNIT)
    kv = world.range([0, 1, 2], supply=supply)
    world.busy(kv, 1)
    kv.decommit([1, 2])
    return lambda: keep(world, supply, supply.take(2))


@case("Supply.take", loose=True)
def take_what_another_cache_keeps(world):
    other = world.supply(cache=60 * UNIT)
    other.give(other.take(60))
    supply = world.supply()
    return lambda: keep(world, supply, supply.take(6)) if not supply.in_use else None


class Held:
    """Chunks that a test holds; they go back at its end."""

    def __init__(self, supply, chunks):
        self.supply, self.chunks = supply, chunks

    def books(self):
        return len(self.chunks)

    def close(self):
        chunks, self.chunks = self.chunks, []
        self.supply.give(chunks)


def keep(world, supply, chunks):
    return world.own(Held(supply, chunks))


@case("Supply.give")
def give_some_to_the_cache(world):
    supply = world.supply(cache=UNIT)
    held = keep(world, supply, supply.take(4))
    return held.close


@case("Supply.trim")
def trim_a_supply(world):
    supply = world.supply(cache=4 * UNIT)
    supply.give(supply.take(4))
    return supply.trim


@case("ChunkSupply.close")
def close_a_supply(world):
    supply = world.supply(cache=4 * UNIT)
    supply.give(supply.take(3))
    return supply.close


# -- ranges -----------------------------------------------------------------------------------------------------


@case("ChunkedRange.__init__", "GrowableRange.__init__")
def make_a_range(world):
    supply = world.supply()
    return lambda: world.range(supply=supply)


@case("ChunkedRange.commit")
def commit_three_runs(world):
    kv = world.range([1])
    return lambda: kv.commit([0, 2, 3, 7])


@case("ChunkedRange.commit")
def commit_read_only(world):
    kv = world.range(access="r")
    return lambda: kv.commit([0, 2])


@case("ChunkedRange.commit")
def commit_what_another_range_had(world):
    supply = world.supply(cache=8 * UNIT)
    other = world.range([0, 1, 2], supply=supply)
    other.decommit([0, 1, 2])
    other.collect(wait=True)
    kv = world.range(supply=supply)
    return lambda: kv.commit([0, 1, 5])


@case("ChunkedRange.commit")
def commit_in_a_window_of_zeros(world):
    kv = world.range([1])
    kv.zero_window(0, 8 * UNIT)
    return lambda: kv.commit([0, 2, 3, 9])


@case("ChunkedRange.commit", loose=True)
def commit_what_retires_and_more(world):
    kv = world.range([0, 1, 2, 3])
    world.busy(kv, 2)
    kv.decommit([1, 2])
    world.busy(kv, 3)
    kv.decommit([3])
    return lambda: kv.commit([1, 3, 5])


@case("ChunkedRange.commit", loose=True)
def commit_what_retires_with_other_access(world):
    kv = world.range([0, 1, 2])
    kv.protect(UNIT, 2 * UNIT, "r")
    world.busy(kv, 2)
    kv.decommit([1, 2])
    return lambda: kv.commit([1, 2])


@case("ChunkedRange.decommit")
def decommit_two_runs(world):
    kv = world.range([0, 1, 2, 5, 7])
    return lambda: kv.decommit([1, 2, 7])


@case("ChunkedRange.decommit")
def decommit_after_work(world):
    kv = world.range([0, 1, 2, 5])
    world.busy(kv, 1)
    return lambda: kv.decommit([1, 2, 5], after=[0, 1])


@case("ChunkedRange.decommit")
def decommit_in_a_window_of_zeros(world):
    kv = world.range([0, 1, 2, 5])
    kv.zero_window(0, 4 * UNIT)
    kv.zero_window(4 * UNIT, 8 * UNIT)
    return lambda: kv.decommit([1, 2, 5])


@case("ChunkedRange.decommit", loose=True)
def decommit_what_came_back_while_it_retired(world):
    kv = world.range([0, 1, 2])
    world.busy(kv, 1)
    kv.decommit([1, 2])
    kv.commit([1])
    return lambda: kv.decommit([1], after=1)


@case("ChunkedRange.collect", "Retirement.collect", loose=True)
def collect_without_waiting(world):
    kv = world.range([0, 1, 2, 5])
    world.busy(kv, 1)
    kv.decommit([1, 2, 5])
    return kv.collect


@case("ChunkedRange.collect", loose=True)
def collect_and_wait(world):
    kv = world.range([0, 1, 2, 5])
    kv.zero_window(0, 2 * UNIT)
    world.busy(kv, 1)
    kv.decommit([1, 2])
    kv.decommit([5], after=0)
    return lambda: kv.collect(wait=True)


@case("ChunkedRange.protect")
def protect_two_chunks(world):
    kv = world.range([0, 1, 2])
    return lambda: kv.protect(0, 2 * UNIT, "r")


@case("ChunkedRange.remap")
def remap_a_chunk(world):
    kv = world.range([0, 1, 2])
    return lambda: kv.remap(1)


@case("ChunkedRange.zero_window", "ZeroWindow.__init__", "ZeroWindow.cover", loose=True)
def open_a_window(world):
    kv = world.range([1, 3, 6])
    world.busy(kv, 3)
    kv.decommit([3])
    return lambda: kv.zero_window(0, 8 * UNIT)


@case("ZeroWindow.close", "ZeroWindow.uncover", "ZeroWindow.forget")
def close_a_window(world):
    kv = world.range([1, 6])
    window = kv.zero_window(0, 8 * UNIT)
    return window.close


@case("ChunkedRange.close", "GrowableRange.close")
def close_a_range(world):
    kv = world.range([0, 1, 5])
    kv.zero_window(0, 4 * UNIT)
    return kv.close


@case("ChunkedRange.close", loose=True)
def close_a_range_that_retires(world):
    kv = world.range([0, 1, 2, 5], supply=world.supply(cache=2 * UNIT))
    world.busy(kv, 1)
    kv.decommit([1, 2])
    return kv.close


@case("GrowableRange.grow")
def grow(world):
    kv = world.range([3])
    kv.grow(UNIT)
    return lambda: kv.resize(5 * UNIT)


@case("GrowableRange.shrink")
def shrink(world):
    kv = world.range()
    kv.grow(5 * UNIT)
    return lambda: kv.shrink(3 * UNIT) if kv.size == 5 * UNIT else None


@case("GrowableRange.resize", loose=True)
def resize_after_work(world):
    kv = world.range()
    kv.resize(5 * UNIT)
    world.busy(kv, 4)
    return lambda: kv.resize(2 * UNIT, after=0)


# -- other devices ---------------------------------------------------------------------------------------------


@case("ChunkedRange.grant", loose=True, devices=2)
def grant_to_another_device(world):
    kv = world.range([0, 1, 3, 7])
    other = vmm.Device(1, driver=world.api)
    world.owned.insert(0, other)
    world.busy(kv, 3)
    kv.decommit([3])
    return lambda: kv.grant(other, "r")


@case("ChunkedRange.grant", devices=2)
def take_a_grant_back(world):
    kv = world.range([0, 1, 3, 7])
    kv.zero_window(0, 4 * UNIT)
    other = vmm.Device(1, driver=world.api)
    world.owned.insert(0, other)
    kv.grant(other, "rw")
    return lambda: kv.grant(other, "none")


@case("ChunkedRange.commit", devices=2)
def commit_what_is_granted(world):
    kv = world.range([0])
    other = vmm.Device(1, driver=world.api)
    world.owned.insert(0, other)
    kv.grant(other, "rw")
    return lambda: kv.commit([1, 2, 5])


# -- heaps ------------------------------------------------------------------------------------------------------


@case("Heap.__init__")
def make_a_heap(world):
    world.range([0])
    return lambda: world.own(vmm.Heap(world.device, 8 * UNIT))


@case("Heap.allocate")
def allocate_a_block(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT))
    heap.allocate(UNIT // 2)
    return lambda: heap.allocate(3 * UNIT) if heap.allocated < 3 * UNIT else None


@case("Heap.release", "Block.free")
def free_a_block(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT))
    heap.allocate(UNIT // 2)
    block = heap.allocate(3 * UNIT)
    return lambda: block.free() if heap.allocated >= 3 * UNIT else None


@case("Block.free", loose=True)
def free_a_block_after_work(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT))
    block = heap.allocate(3 * UNIT)
    world.busy(heap.range, 1)
    return lambda: block.free(after=0) if heap.allocated else None


@case("Heap.allocate", loose=True)  # it keeps the event that tells what is empty
def allocate_where_memory_lies_empty(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT))
    small, large = heap.allocate(2 * UNIT), heap.allocate(3 * UNIT)
    kept = heap.allocate(UNIT)
    small.free()
    large.free()
    large = heap.allocate(UNIT)  # between the two holes
    return lambda: heap.allocate(5 * UNIT) if heap.allocated == kept.size + large.size else None


@case("Heap.release")
def free_a_block_that_is_not_kept(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT, keep=False))
    heap.allocate(UNIT // 2)
    block = heap.allocate(3 * UNIT + UNIT // 2)
    return lambda: block.free() if heap.allocated > UNIT else None


@case("Heap.trim")
def trim_a_heap(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT))
    blocks = [heap.allocate(UNIT) for _ in range(5)]
    for block in blocks[::2]:
        block.free()
    return lambda: heap.trim() if heap.trimmable else None


@case("Heap.collect", loose=True)
def collect_what_was_freed_after_work(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT, keep=False))
    block = heap.allocate(3 * UNIT)
    world.busy(heap.range, 1)
    block.free(after=0)
    return lambda: heap.collect(wait=True)


@case("Heap.drop", "Block.drop")
def collect_what_was_dropped(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT, keep=False))
    heap.allocate(3 * UNIT).drop()
    return lambda: heap.trim()


@case("ChunkedRange.relocate")
def relocate_chunks(world):
    kv = world.range([0, 1, 3, 6])
    return lambda: kv.relocate([1, 3, 6], [8, 9, 12]) if kv.is_committed(6) else None


@case("ChunkedRange.relocate")
def relocate_chunks_in_a_window(world):
    kv = world.range([0, 1])
    world.own(kv.zero_window(0, 6 * UNIT))
    return lambda: kv.relocate([0, 1], [3, 4]) if kv.is_committed(0) else None


@case("Heap.close")
def close_a_heap(world):
    heap = world.own(vmm.Heap(world.device, 12 * UNIT))
    heap.allocate(3 * UNIT)
    return heap.close


QUESTIONS = {
    "ChunkSupply.in_use", "ChunkSupply.cached", "ChunkSupply.prefetch", "ChunkSupply.prefetch_error",
    "Supply.device", "Supply.chunk_size", "Supply.exportable", "Supply.budget", "Supply.in_use", "Supply.retiring",
    "Supply.available", "Supply.can_take", "Supply.shortage", "Supply.limits",
    "ChunkSupply.retiring", "ChunkSupply.holders",
    "ChunkedRange.closed", "ChunkedRange.committed",
    "ChunkedRange.retiring", "ChunkedRange.chunk_count", "ChunkedRange.is_committed", "ChunkedRange.is_retiring",
    "ChunkedRange.committed_chunks", "ChunkedRange.mapping", "ChunkedRange.mappings", "ChunkedRange.runs",
    "ChunkedRange.check_unused", "ChunkedRange.asleep", "ChunkedRange.is_held", "ChunkedRange.held_chunks",
    "ChunkedRange.check_awake", "ChunkedRange.used_chunks", "ChunkedRange.pins",
    "ZeroWindow.zeros", "Heap.reserved", "Heap.committed", "Heap.allocated", "Heap.trimmable", "Heap.check",
    "Heap.holds", "Block.stream",
}  # fmt: skip
"""They change nothing and call no driver."""
WITHOUT_CALLS = {
    "Supply.retire": "a number", "Supply.close": "made for others", "ChunkSupply.wait_prefetched": "a wait",
    "ChunkedRange.array": "looks at its own books", "ChunkedRange.tensor": "as array",
    "ChunkedRange.address_tensor": "as array", "ChunkedRange.keep_open": "a note", "Block.tensor": "as that of a range",
    "ChunkedRange.pin": "a note", "Block.array": "as that of a range",
    "Heap.view": "as the array of a range",
}  # fmt: skip
SWEPT_ELSEWHERE = {f"ChunkedRange.{name}" for name in ("suspend", "fall_asleep", "restore", "resume")}
SWEPT_ELSEWHERE |= {"Supply.__init__", "Supply.obtainable", "Supply.register", "ChunkSupply.share"}
"""By the tests of sleep, and of shares."""


def test_every_public_operation_is_swept(sweeping):
    classes = vmm.Supply, vmm.ChunkSupply, vmm.ChunkedRange, vmm.GrowableRange, vmm.ZeroWindow, vmm.Heap, vmm.Block
    covered = {name for one in CASES.values() for name in one.covers} | QUESTIONS | set(WITHOUT_CALLS) | SWEPT_ELSEWHERE
    assert sweeping.public_methods(*classes) - covered == set()


# -- the worth of the sweep ------------------------------------------------------------------------------------


def forget_the_chunks_of_a_failed_commit(monkeypatch):
    def undo(self, kept, fresh, _memory, _done):
        self._cover(fresh)
        self.retirement.put_back(kept)

    monkeypatch.setattr(ChunkMap, "_undo_commit", undo)


def forget_what_was_unmapped(monkeypatch):
    monkeypatch.setattr(ChunkMap, "_undo_unmap", lambda _self, _gone: None)


def count_what_was_never_taken(monkeypatch):
    """The budget counts the chunks before they are there, and keeps the count when they do not come."""
    whole = Stock._take

    def take(self, account, count):
        chunks = [object() for _ in range(count)]
        self.out.update(dict.fromkeys(chunks, account))
        taken = whole(self, account, count)
        for chunk in chunks:
            del self.out[chunk]
        return taken

    monkeypatch.setattr(Stock, "_take", take)


def lose_a_fence(monkeypatch):
    """A refused decommit keeps the event that it made."""
    monkeypatch.setattr(Fence, "_destroy", lambda _self, _events: None)


def forget_the_old_size(monkeypatch):
    whole = vmm.GrowableRange._set_size

    def set_size(self, total, after):
        try:
            whole(self, total, after)
        finally:
            self.size = total

    monkeypatch.setattr(vmm.GrowableRange, "_set_size", set_size)


def leave_a_window_half_covered(monkeypatch):
    monkeypatch.setattr(vmm.ZeroWindow, "_unmap", lambda _self, _mappings: None)


@pytest.mark.parametrize(
    ("mutation", "operation"),
    [
        (forget_the_chunks_of_a_failed_commit, commit_three_runs),
        (forget_what_was_unmapped, decommit_two_runs),
        (count_what_was_never_taken, take_cached_and_new),
        (lose_a_fence, decommit_two_runs),
        (forget_the_old_size, shrink),
        (leave_a_window_half_covered, open_a_window),
    ],
)
def test_an_undo_that_is_left_out_is_caught(sweeping, monkeypatch, mutation, operation):
    sweeping.sweep_case(operation, "eager", 1)
    mutation(monkeypatch)
    with pytest.raises(SweepError, match=operation.__name__):
        sweeping.sweep_case(operation, "eager", 1)


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_be_interrupted(sweeping, name, streams):
    sweeping.interrupt_case(CASES[name], streams)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(sweeping, name, streams, code):
    sweeping.sweep_case(CASES[name], streams, code)
