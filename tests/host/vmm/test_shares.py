"""Several takers on one budget: floors and ceilings, memory that flows to where it is needed, and who holds what."""

import gc
import random
import threading

import numpy as np
import pytest

import vmm

STREAMS = ("eager", "deferred")
CHUNK = 2 << 20


class Holding:
    """A range that can give up some of its chunks: those that lie empty, and those that it only caches."""

    def __init__(self, supply, name, chunks=64):
        self.range = vmm.GrowableRange(supply.device, chunks * CHUNK, supply=supply, name=name)
        self.supply = supply
        self.empty, self.cached, self.asked = [], [], []
        self.changing = False
        supply.register(self)

    def add(self, count, kind=None):
        """Commit so many chunks more: of use, or ``empty`` or ``cached``."""
        free = [chunk for chunk in range(self.range.chunk_count) if not self.range.is_committed(chunk)][:count]
        self.changing = True
        try:
            self.range.commit(free)
        finally:
            self.changing = False
        if kind is not None:
            kind += free
        return free

    def spare(self, *, cached):
        return 0 if self.changing else len(self.empty) + (len(self.cached) if cached else 0)

    def give_up(self, chunks, *, cached):
        self.asked.append((chunks, cached))
        leaving = [(self.empty or self.cached).pop() for _ in range(chunks)]
        self.range.decommit(leaving)
        return chunks


@pytest.fixture
def holding():
    made = []

    def make(supply, name):
        made.append(Holding(supply, name))
        return made[-1]

    yield make
    for one in made:
        one.range.close()


@pytest.fixture
def supply(device):
    with vmm.ChunkSupply(device, budget=8 * CHUNK) as made:
        yield made


def test_a_floor_is_left_to_its_taker_and_a_ceiling_is_kept(supply):
    with supply.share("a", floor=3 * CHUNK) as a, supply.share("b", ceiling=6 * CHUNK) as b:
        assert (a.available, b.available, supply.available) == (8 * CHUNK, 5 * CHUNK, 5 * CHUNK)
        held = b.take(5)
        with pytest.raises(vmm.OutOfMemoryError, match=r"2 MiB asked, 0 B left for 'b' .*\(a 0 B of floor 6 MiB, b 10"):
            b.take(1)
        assert (a.available, b.available, b.can_take(1), a.can_take(3)) == (3 * CHUNK, 0, False, True)
        mine = a.take(3)
        b.give(held)
        a.give(mine)
        b.give(b.take(5))
    with supply.share("b", ceiling="13 MiB") as b:  # whole chunks
        assert (b.ceiling, b.available, b.budget) == (6 * CHUNK, 6 * CHUNK, 6 * CHUNK)
        held = b.take(6)
        with pytest.raises(vmm.OutOfMemoryError, match="ceiling 12 MiB"):
            b.take(1)
        b.give(held)


def test_what_has_no_share_leaves_the_floors_too(supply):
    held = supply.take(2)
    with supply.share("a", floor=3 * CHUNK) as a:
        held += supply.take(3)
        with pytest.raises(vmm.OutOfMemoryError, match="without a share 10 MiB, a 0 B of floor 6 MiB"):
            supply.take(1)
        a.give(a.take(3))
    supply.give(held)


def test_promises_that_cannot_be_kept_are_refused(device, supply):
    with supply.share("a", floor=5 * CHUNK):
        before = supply.holders()
        with pytest.raises(vmm.SizeError, match="floors of all shares need 9 chunks and the budget has 8"):
            supply.share("b", floor=4 * CHUNK)
        with pytest.raises(vmm.SizeError, match="floor of 'b', 3 chunks, is above its ceiling of 2 chunks"):
            supply.share("b", floor=3 * CHUNK, ceiling=2 * CHUNK)
        with pytest.raises(vmm.StateError, match="a share 'a' already"):
            supply.share("a")
        with pytest.raises(vmm.SizeError, match="ceiling 5 holds no chunk of 2 MiB"):
            supply.share("b", ceiling=5)
        held = supply.take(2)
        with pytest.raises(
            vmm.OutOfMemoryError, match="a floor of 2 chunks for 'b' needs 2 now, and the others leave 1"
        ):
            supply.share("b", floor=2 * CHUNK)
        supply.give(held)
        assert supply.holders() == before
    with vmm.ChunkSupply(device) as endless, pytest.raises(vmm.SizeError, match="needs a supply with a budget"):
        endless.share("a", floor=CHUNK)
    with vmm.ChunkSupply(device) as endless, endless.share("a", ceiling=2 * CHUNK) as a:
        assert (a.available, endless.available, a.budget, a.obtainable()) == (2 * CHUNK, None, 2 * CHUNK, 2 * CHUNK)
        assert endless.obtainable() is None


def test_bounds_change_while_in_use(supply):
    with supply.share("a", floor=CHUNK, ceiling=6 * CHUNK) as a, supply.share("b") as b:
        held = a.take(5)
        a.set_bounds(ceiling=3 * CHUNK)
        assert (a.available, a.can_take(1)) == (0, False)
        a.give(held[:3])
        assert a.available == CHUNK
        a.set_bounds(floor=0)
        assert b.available == 6 * CHUNK
        others = b.take(6)
        with pytest.raises(vmm.OutOfMemoryError, match="needs 1 now, and the others leave 0"):
            a.set_bounds(floor=3 * CHUNK)
        with pytest.raises(vmm.SizeError):
            a.set_bounds(floor=4 * CHUNK)
        assert (a.floor, a.ceiling) == (0, 3 * CHUNK)
        a.set_bounds(floor=2 * CHUNK)  # what it has
        a.give(held[3:])
        assert b.available == 0
        b.give(others)


def test_a_closed_or_dropped_share_leaves_its_floor(supply):
    a = supply.share("a", floor=4 * CHUNK)
    held = a.take(1)
    a.close()
    a.close()
    with pytest.raises(vmm.ClosedError, match="share 'a' is closed"):
        a.take(1)
    with pytest.raises(vmm.ClosedError, match="share 'a' is closed"):
        a.set_bounds(floor=0)
    assert (supply.available, [one.name for one in supply.holders()]) == (7 * CHUNK, ["without a share", "a"])
    a.give(held)
    assert [one.name for one in supply.holders()] == ["without a share"]
    dropped = supply.share("a", floor=4 * CHUNK)
    assert supply.available == 4 * CHUNK
    del dropped
    gc.collect()
    assert supply.available == 8 * CHUNK


def test_a_chunk_comes_back_to_the_share_that_has_it(supply):
    with supply.share("a") as a, supply.share("b") as b:
        held = a.take(2)
        for other in (b, supply):
            with pytest.raises(vmm.StateError, match="was given back"):
                other.give(held)
        assert (a.in_use, b.in_use, supply.in_use) == (2 * CHUNK, 0, 2 * CHUNK)
        a.give(held)


def test_the_holders_add_up_to_what_there_is(device, holding):
    with vmm.ChunkSupply(device, budget=12 * CHUNK, cache=4 * CHUNK) as supply:
        a, b = supply.share("a", floor=CHUNK, ceiling=9 * CHUNK), supply.share("b")
        first, second, third = holding(a, "first"), holding(b, "second"), holding(supply, "third")
        first.add(3)
        first.add(2, first.empty)
        second.add(1, second.cached)
        third.add(2)
        with device.current():
            device.driver.fill_async(first.range.base, 1, CHUNK)
        first.range.decommit([0])
        supply.give(supply.take(3))
        by_name = {one.name: one for one in supply.holders()}
        waits = first.range.retiring
        assert by_name["a"] == vmm.Holder("a", 4 * CHUNK + waits, 0, waits, CHUNK, 9 * CHUNK, 2 * CHUNK)
        assert by_name["b"] == vmm.Holder("b", CHUNK, 0, 0, 0, None, CHUNK)
        assert by_name["without a share"].in_use == 2 * CHUNK
        assert "ceiling 18 MiB" in str(by_name["a"])
        total = sum(one.in_use + one.cached for one in supply.holders())
        assert total == supply.in_use + supply.cached == device.memory_info().total - device.memory_info().free


# -- memory flows ------------------------------------------------------------------------------------------------


def test_what_lies_empty_goes_first_then_what_is_cached_and_never_below_a_floor(supply, holding):
    a, b, c = supply.share("a", floor=2 * CHUNK), supply.share("b"), supply.share("c")
    first, second, third = (holding(share, share.name) for share in (a, b, c))
    first.add(2, first.empty)
    first.add(2, first.cached)
    second.add(1)
    second.add(1, second.empty)
    second.add(2, second.cached)
    assert (c.available, c.obtainable(third)) == (0, 5 * CHUNK)
    third.add(1)  # the emptier of the two, by what lies beyond its floor
    assert (first.asked, second.asked) == ([], [(1, False)])
    third.add(1)
    assert (first.asked, second.asked) == ([(1, False)], [(1, False)])
    third.add(3)
    assert (first.spare(cached=True), first.range.committed) == (2, 2 * CHUNK)
    assert (second.spare(cached=True), second.range.committed) == (0, CHUNK)
    with pytest.raises(vmm.OutOfMemoryError):
        third.add(1)


def test_what_a_floor_promises_is_not_asked_for(supply, holding):
    a, b, c = supply.share("a", floor=3 * CHUNK), supply.share("b"), supply.share("c")
    first, second, third = (holding(share, share.name) for share in (a, b, c))
    first.add(4, first.empty)
    second.add(2)
    second.add(2, second.cached)
    assert supply.holders()[1].spare == CHUNK
    third.add(3)
    assert (first.asked, second.asked) == ([(1, False)], [(2, True)])


def test_a_refusal_asks_nobody(supply, holding):
    with supply.share("a") as a, supply.share("b") as b:
        first, second = holding(a, "first"), holding(b, "second")
        first.add(4)
        first.add(4, first.empty)
        with pytest.raises(vmm.OutOfMemoryError, match="a 16 MiB"):
            second.add(5)
        assert (first.asked, first.range.committed, second.range.committed) == ([], 8 * CHUNK, 0)
        second.add(4)
        assert second.range.committed == 4 * CHUNK


def test_a_ceiling_is_met_by_givers_of_the_same_share_only(supply, holding):
    with supply.share("a", ceiling=4 * CHUNK) as a, supply.share("b") as b:
        one, two, other = holding(a, "one"), holding(a, "two"), holding(b, "other")
        other.add(2, other.empty)
        one.add(1)
        one.add(2, one.cached)
        two.add(1)
        assert a.obtainable(two) == 2 * CHUNK
        two.add(2)
        assert (one.asked, other.asked) == ([(2, True)], [])
        with pytest.raises(vmm.OutOfMemoryError):
            two.add(1)
        assert other.asked == []


def test_givers_need_no_share(device, holding):
    """Two ranges on one plain supply do without for each other too."""
    with vmm.ChunkSupply(device, budget=4 * CHUNK) as supply:
        one, two = holding(supply, "one"), holding(supply, "two")
        one.add(1)
        one.add(3, one.cached)
        assert (supply.available, supply.obtainable(two), supply.obtainable(one)) == (0, 3 * CHUNK, 0)
        two.add(2)
        assert (one.range.committed, two.range.committed) == (2 * CHUNK, 2 * CHUNK)


def test_a_full_device_is_a_reason_to_ask_too(holding):
    with (
        vmm.Device(driver=vmm.HostDriver(memory=6 * CHUNK)) as device,
        vmm.ChunkSupply(device, budget=64 * CHUNK) as supply,
        supply.share("a") as a,
        supply.share("b") as b,
    ):
        one, two = holding(a, "one"), holding(b, "two")
        one.add(2)
        one.add(3, one.empty)
        two.add(2)
        assert one.asked == [(1, False)]
        with pytest.raises(vmm.OutOfMemoryError):
            two.add(3)
        assert one.asked == [(1, False)]
        for held in (one, two):
            held.range.close()


def test_a_giver_that_gives_less_than_it_said_leaves_nothing_behind(device, supply, holding):
    with supply.share("a") as a, supply.share("b") as b:
        one, two = holding(a, "one"), holding(b, "two")
        one.add(8)
        one.empty += [6, 7]
        one.spare = lambda *, cached: 3  # noqa: ARG005
        one.give_up = lambda chunks, *, cached: Holding.give_up(one, min(chunks, len(one.empty)), cached=cached)
        with pytest.raises(vmm.OutOfMemoryError):
            two.add(3)
        assert (one.range.committed, two.range.committed, supply.cached) == (6 * CHUNK, 0, 0)
        assert device.driver.api.live().allocations == 6


def test_work_in_flight_keeps_its_memory_until_it_is_done(device, supply, holding):
    with supply.share("a") as a, supply.share("b") as b:
        one, two = holding(a, "one"), holding(b, "two")
        one.add(8, one.empty)
        with device.current():
            device.driver.fill_async(one.range.base + 7 * CHUNK, 9, CHUNK)  # of the chunk that goes first
        two.add(1)  # waits for it, and nothing faults
        assert not np.any(two.range.array("uint8", CHUNK))
        assert one.range.committed == 7 * CHUNK


# -- zeros between owners ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backing", ["memory", "none"])
@pytest.mark.parametrize("cache", [0, 8 * CHUNK])
def test_a_recycled_chunk_is_zeroed_for_another_owner_and_for_nobody_else(holding, backing, cache):
    recorder = vmm.Recorder()
    driver = vmm.HostDriver(memory="64 MiB", backing=backing)
    with (
        vmm.Device(driver=driver, recorder=recorder) as device,
        vmm.ChunkSupply(device, budget=4 * CHUNK, cache=cache) as supply,
        supply.share("a") as a,
        supply.share("b") as b,
    ):
        one, two = holding(a, "one"), holding(b, "two")
        one.add(4, one.empty)
        if backing == "memory":
            one.range.array("uint8", 4 * CHUNK)[:] = 77
        assert "cuMemsetD8Async" not in recorder.counts()  # fresh from the driver
        recorder.clear()
        two.add(3)
        counts = recorder.counts()
        assert (counts["cuMemsetD8Async"], counts.get("cuMemCreate", 0)) == (3, 0)  # handed on, not made again
        if backing == "memory":
            assert not np.any(two.range.array("uint8", 3 * CHUNK))
            assert np.all(one.range.array("uint8", CHUNK) == 77)
        recorder.clear()
        two.range.decommit([1, 2])
        two.range.collect(wait=True)
        two.range.commit([1, 2])
        counts = recorder.counts()
        assert counts.get("cuMemsetD8Async", 0) == 0
        assert counts.get("cuMemCreate", 0) == (0 if cache else 2)
        for held in (one, two):
            held.range.close()


# -- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_case_6_what_is_obtainable_is_exact_and_a_refusal_changes_nothing(rules, seed):
    """rmm#93, with several takers: n chunks are granted, n + 1 refused, whatever others hold and could spare."""
    draw = random.Random(seed)
    supply = vmm.ChunkSupply(rules, budget=20 * CHUNK, cache=draw.choice([0, 3 * CHUNK]))
    shares = [
        supply.share(str(i), floor=draw.randint(0, 5) * CHUNK, ceiling=draw.choice([None, 9 * CHUNK]))
        for i in (0, 1, 2)
    ]
    held = [Holding(share, f"{place}{i}") for place, share in enumerate([*shares, supply]) for i in (0, 1)]
    granted = 0
    for _ in range(250):
        one = draw.choice(held)
        most = one.supply.obtainable(one) // CHUNK
        before = [(each.range.committed, len(each.asked)) for each in held]
        with pytest.raises(vmm.OutOfMemoryError):
            one.add(most + 1)
        assert [(each.range.committed, len(each.asked)) for each in held] == before
        count = most if draw.random() < 0.3 else draw.randint(0, most)
        chunks = one.add(count)
        granted += count
        for chunk in chunks:
            kind = draw.random()
            if kind < 0.3:
                one.empty.append(chunk)
            elif kind < 0.6:
                one.cached.append(chunk)
        busy = sorted(set(one.range.committed_chunks()) - {*one.empty, *one.cached})
        one.range.decommit(draw.sample(busy, draw.randint(0, len(busy))))
        one.range.collect(wait=True)
        for share in shares:
            others = sum(max(each.in_use, each.floor) for each in shares if each is not share)
            unnamed = supply.in_use - sum(each.in_use for each in shares)
            assert share.in_use <= (share.ceiling or 20 * CHUNK)
            assert share.floor <= 20 * CHUNK - unnamed - others  # nobody has what was promised to it
    assert granted > 200
    for one in held:
        one.range.close()
    for share in shares:
        share.close()
    supply.close()


def test_threads_that_take_from_each_other_neither_wait_for_ever_nor_exceed_their_bounds(rules):
    supply = vmm.ChunkSupply(rules, budget=24 * CHUNK)
    shares = [supply.share(str(number), floor=2 * CHUNK, ceiling=16 * CHUNK) for number in range(4)]
    errors, done = [], []

    class Guarded:
        """Holds chunks without a range; gives up what it has while its own thread is elsewhere."""

        def __init__(self, share):
            self.share, self.lock, self.chunks = share, threading.Lock(), []
            share.register(self)

        def spare(self, *, cached):
            return len(self.chunks) if cached and not self.lock.locked() else 0

        def give_up(self, chunks, *, cached):  # noqa: ARG002
            if not self.lock.acquire(blocking=False):
                return 0
            try:
                leaving = [self.chunks.pop() for _ in range(min(chunks, len(self.chunks)))]
                self.share.give(leaving)
                return len(leaving)
            finally:
                self.lock.release()

    holders = [Guarded(share) for share in shares]

    def work(one, seed):
        draw = random.Random(seed)
        try:
            for _ in range(400):
                with one.lock:
                    try:
                        one.chunks += one.share.take(draw.randint(1, 6))
                    except vmm.OutOfMemoryError:
                        one.share.give(one.chunks)
                        one.chunks = []
                assert one.share.in_use <= 16 * CHUNK
                assert supply.in_use <= 24 * CHUNK
            done.append(seed)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(one, seed)) for seed, one in enumerate(holders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (errors, len(done)) == ([], 4)
    for one in holders:
        one.share.give(one.chunks)
        one.share.close()
    assert supply.in_use == 0
    supply.close()


def test_memory_that_is_taken_back_before_it_went_is_not_waited_for(supply, holding):
    taker, giver = holding(supply, "taker"), holding(supply, "giver")
    taker.add(1)
    giver.add(6, giver.empty)
    with supply.device.current():
        supply.device.driver.fill_async(taker.range.base, 7, CHUNK, 0)
    taker.range.decommit([0])
    taker.range.commit([0, 1, 2])  # of deferred streams chunk 0 was on its way, and is the taker's again
    assert taker.range.committed_chunks() == [0, 1, 2]
    assert (supply.in_use, supply.retiring) == (8 * CHUNK, 0)


def test_a_refusal_leaves_what_was_taken_back_on_its_way(supply, holding):
    taker = holding(supply, "taker")
    taker.add(1)
    with supply.device.current():
        supply.device.driver.fill_async(taker.range.base, 7, CHUNK, 0)
    taker.range.decommit([0])
    leaving = supply.retiring
    with pytest.raises(vmm.OutOfMemoryError):
        taker.range.commit(range(9))
    assert supply.retiring in (0, leaving)
    supply.device.synchronize()
    assert (supply.in_use, supply.retiring) == (0, 0)
