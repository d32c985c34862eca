"""Random lives of ranges that share a supply with a budget, against a naive model: everything that a range can do.

Every chunk holds a byte that says whose it is; it is written by queued work, on the stream that belongs to the chunk,
and verified before the chunk is given up. Calls of the driver fail in between. The model is a few dictionaries; it says
for each operation whether it must succeed, be refused, or find no memory.
"""

import random
from collections import Counter

import pytest

import vmm
from vmm.host import FailingDriver, HostDriver

UNIT = 64 << 10
CHUNKS = 16
BUDGET = 9  # chunks a range
GIVE_BACK = ("cuCtxPopCurrent", "cuMemRelease", "cuMemAddressFree", "cuEventDestroy")
ACCESS = {"none": vmm.Access.NONE, "r": vmm.Access.READ, "rw": vmm.Access.READWRITE}


class One:
    """What one range must have: each chunk's byte (None: not known) and access, the front, and who holds what."""

    def __init__(self, kv, mark):
        self.kv, self.mark = kv, mark
        self.byte, self.access = {}, {}
        self.front = 0
        self.pins, self.views, self.windows = [], [], []
        self.peer = vmm.Access.NONE

    def held(self, chunk):
        """Why a chunk may not go."""
        pinned = any(pin.start < (chunk + 1) * UNIT and chunk * UNIT < pin.stop for pin in self.pins)
        return pinned or any(chunk in covered for covered, _array in self.views)

    def give_up(self, chunks):
        for chunk in chunks:
            del self.byte[chunk], self.access[chunk]

    def get(self, chunks):
        for chunk in chunks:
            self.byte[chunk], self.access[chunk] = None, vmm.Access.READWRITE


class Run:
    """The ranges, their models, and the operations."""

    def __init__(self, seed, streams, ranges):
        self.draw = random.Random(seed)
        self.api = FailingDriver(
            HostDriver(memory=64 * UNIT, granularity=UNIT, streams=streams, devices=2), spared=GIVE_BACK
        )
        self.device = vmm.Device(driver=self.api)
        self.other = vmm.Device(1, driver=self.api)
        self.budget = BUDGET * ranges
        self.supply = vmm.ChunkSupply(self.device, budget=self.budget * UNIT, cache=4 * UNIT)
        with self.device.current():
            self.streams = [int(self.api.cuStreamCreate(1)[1]) for _ in range(2)]
        self.all = [
            One(vmm.GrowableRange(self.device, CHUNKS * UNIT, supply=self.supply, name=f"range {number}"), number)
            for number in range(ranges)
        ]
        self.seen = Counter()

    # -- the model's answers ----------------------------------------------------------------------------------

    def in_use(self):
        return sum(len(one.byte) + len(one.windows) for one in self.all)

    def expect(self, name, operation, *, refused=False, chunks=0):
        """Do it; whether it was done. It is refused, or lacks memory for ``chunks`` more, exactly when it should."""
        lacks = self.in_use() + chunks > self.budget
        armed = not refused and self.draw.random() < 0.15
        if armed:
            self.api.arm(at=self.draw.randint(1, 12), code=self.draw.choice([1, 2]))
        try:
            result = operation()
        except vmm.StateError:
            assert refused, name
        except vmm.OutOfMemoryError:
            assert lacks or self.api.failed, name
            self.seen["lacking"] += 1
        except vmm.DriverError:
            assert armed and self.api.failed, name
            self.seen["failed"] += 1
        else:
            assert not refused, name
            assert not lacks, name
            self.seen[name] += 1
            return result or True
        finally:
            self.api.disarm()
        return None

    def wait(self):
        self.device.synchronize()

    # -- bytes ------------------------------------------------------------------------------------------------

    def peek(self, one, chunk):
        found = bytearray(UNIT)
        with self.device.current():
            self.device.driver.copy_out(found, one.kv.base + chunk * UNIT, UNIT)
        assert len(set(found)) == 1, f"chunk {chunk} of {one.kv} has bytes of several"
        return found[0]

    def verify(self, one, chunks):
        """Wait, and look whether chunks hold what they must."""
        self.wait()
        for chunk in chunks:
            if one.access[chunk] != vmm.Access.NONE:
                byte = self.peek(one, chunk)
                if one.byte[chunk] is None:
                    assert byte in (0, *range(one.mark * 60 + 1, one.mark * 60 + 61)), "another range's bytes"
                else:
                    assert byte == one.byte[chunk]

    # -- operations -------------------------------------------------------------------------------------------

    def fill(self, one):
        chosen = [chunk for chunk in one.byte if one.access[chunk] == vmm.Access.READWRITE]
        for chunk in self.draw.sample(chosen, min(3, len(chosen))):
            byte = one.mark * 60 + self.draw.randint(1, 60)
            with self.device.current():
                self.device.driver.fill_async(one.kv.base + chunk * UNIT, byte, UNIT, self.streams[chunk % 2])
            one.byte[chunk] = byte

    def commit(self, one):
        wanted = self.draw.sample(range(CHUNKS), self.draw.randint(1, 5))
        taken = any(chunk in one.byte for chunk in wanted)
        if self.expect("commit", lambda: one.kv.commit(wanted), refused=taken, chunks=len(wanted)):
            one.get(wanted)

    def decommit(self, one):
        chosen = [chunk for chunk in one.byte if self.draw.random() < 0.4] or [self.draw.randrange(CHUNKS)]
        refused = any(chunk not in one.byte or one.held(chunk) or chunk * UNIT < one.front for chunk in chosen)
        if not refused and self.draw.random() < 0.3:
            self.verify(one, chosen)
        named = [self.streams[number] for number in {chunk % 2 for chunk in chosen}]
        after = self.draw.choice([None, named])
        if self.expect("decommit", lambda: one.kv.decommit(chosen, after=after), refused=refused):
            one.give_up(chosen)

    def resize(self, one):
        total = self.draw.randint(0, CHUNKS * UNIT)
        now, then = -(-one.front // UNIT), -(-total // UNIT)
        fresh = [chunk for chunk in range(now, then) if chunk not in one.byte]
        gone = [chunk for chunk in range(then, now) if chunk in one.byte]
        refused = any(one.held(chunk) for chunk in gone)
        how = self.draw.choice(["resize", "by"])
        operation = lambda: one.kv.resize(total)
        if how == "by":
            larger = total >= one.front
            step = one.kv.grow if larger else one.kv.shrink
            operation = lambda: step(abs(total - one.front))
        if self.expect("resize", operation, refused=refused, chunks=len(fresh)):
            one.front = total
            one.get(fresh)
            one.give_up(gone)

    def protect(self, one):
        first = self.draw.randrange(CHUNKS)
        last = min(CHUNKS, first + self.draw.randint(1, 3))
        chosen, name = range(first, last), self.draw.choice(["r", "rw", "rw", "none"])
        refused = any(chunk not in one.byte for chunk in chosen)
        if ACCESS[name] < vmm.Access.READWRITE:
            refused |= any(chunk in covered for covered, _array in one.views for chunk in chosen)
        self.wait()  # a write in flight would fault
        if self.expect("protect", lambda: one.kv.protect(first * UNIT, last * UNIT, name), refused=refused):
            one.access.update(dict.fromkeys(chosen, ACCESS[name]))

    def remap(self, one):
        chunk = self.draw.choice([*one.byte, self.draw.randrange(CHUNKS)])
        pinned = any(pin.start < (chunk + 1) * UNIT and chunk * UNIT < pin.stop for pin in one.pins)
        refused = chunk not in one.byte or pinned or one.access[chunk] == vmm.Access.NONE
        if self.expect("remap", lambda: one.kv.remap(chunk), refused=refused, chunks=1):
            self.verify(one, [chunk])

    def grant(self, one):
        name = self.draw.choice(["r", "rw", "none"])
        if self.expect("grant", lambda: one.kv.grant(self.other, name)):
            one.peer = ACCESS[name]

    def window(self, one):
        if one.windows and self.draw.random() < 0.6:
            window = self.draw.choice(one.windows)
            if self.expect("close window", window.close):
                one.windows.remove(window)
            return
        first = self.draw.randrange(CHUNKS)
        last = min(CHUNKS, first + self.draw.randint(1, 8))
        refused = any(first < window.stop and window.first < last for window in one.windows)
        made = self.expect("window", lambda: one.kv.zero_window(first * UNIT, last * UNIT), refused=refused, chunks=1)
        if made:
            one.windows.append(made)

    def pin(self, one):
        if one.pins:
            one.pins.pop().close()
        else:
            start = self.draw.randrange(CHUNKS * UNIT)
            one.pins.append(one.kv.pin(start, min(CHUNKS * UNIT, start + UNIT), "a graph"))

    def view(self, one):
        if one.views:
            one.views.pop()
            return
        first = self.draw.randrange(CHUNKS)
        chosen = range(first, min(CHUNKS, first + 2))
        if all(one.access.get(chunk) == vmm.Access.READWRITE for chunk in chosen):
            one.views.append((chosen, one.kv.array("uint8", len(chosen) * UNIT, first * UNIT)))

    def collect(self, one):
        wait = self.draw.random() < 0.3
        self.expect("collect", lambda: one.kv.collect(wait=wait))
        if wait and self.draw.random() < 0.5:
            self.verify(one, one.byte)

    # -- what must hold ---------------------------------------------------------------------------------------

    def check(self):
        for one in self.all:
            kv = one.kv
            assert kv.committed_chunks() == sorted(one.byte)
            assert {chunk: kv.mapping(chunk).access for chunk in one.byte} == one.access
            assert kv.size == one.front
            assert not any(kv.is_retiring(chunk) for chunk in one.byte)
            for window in one.windows:
                bare = [chunk for chunk in range(window.first, window.stop) if chunk not in one.byte]
                assert window.zeros == [chunk for chunk in bare if not kv.is_retiring(chunk)]
        in_use = sum(one.kv.committed for one in self.all)
        assert self.supply.in_use == in_use <= self.budget * UNIT
        live = self.api.live()
        assert live.mappings == sum(len(one.kv.mappings()) for one in self.all)
        assert live.allocations == (in_use + self.supply.cached) // UNIT
        assert live.events == sum(len(entry.fence._own) for entry in self.device.retirement._entries)

    def check_rights(self, one):
        """Of the other device, and of reading zeros."""
        for chunk in self.draw.sample(range(CHUNKS), 3):
            address = one.kv.base + chunk * UNIT
            if chunk in one.byte:
                assert self.device.driver.get_access(1, address) == one.peer
            elif any(chunk in window.zeros for window in one.windows):
                assert self.device.driver.get_access(1, address) == min(one.peer, vmm.Access.READ)
                assert self.peek(one, chunk) == 0

    def step(self):
        one = self.draw.choice(self.all)
        operations = [self.fill] * 4 + [self.commit] * 4 + [self.decommit] * 4 + [self.resize] * 2
        operations += [self.protect, self.remap, self.grant, self.window, self.pin, self.view, self.collect]
        self.draw.choice(operations)(one)
        self.check()
        if self.draw.random() < 0.05:
            self.check_rights(one)

    def end(self):
        for one in self.all:
            one.views.clear()
            for pin in one.pins:
                pin.close()
            self.verify(one, one.byte)
            one.kv.close()
        self.supply.close()
        with self.device.current():
            for stream in self.streams:
                self.api.cuStreamDestroy(stream)
        self.device.close()
        self.other.close()
        assert self.api.live().total == 0


def live(seed, streams, steps, ranges=3):
    run = Run(seed, streams, ranges)
    for _ in range(steps):
        run.step()
    run.end()
    assert len(run.seen) >= 9, run.seen  # every kind of operation, lack and failure
    return run.seen


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("seed", [1])
def test_random_lives(streams, seed):
    live(seed, streams, 2_500)


@pytest.mark.exhaustive
@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("ranges", [1, 3])
def test_random_lives_of_a_hundred_thousand_operations(streams, ranges):
    live(100 + ranges, streams, 100_000, ranges)
