"""A seeded random life of the host driver against a dumb model of the rules: lists, searched from end to end."""

import ctypes
import random

import pytest
from cuda.bindings import driver as cuda

from vmm.host import HostDriver, os_view

UNIT = 64 << 10
MEMORY = 24 * UNIT
PERMISSION = {0: "---s", 1: "r--s", 3: "rw-s"}


class Model:
    """What the rules say, written as slowly as possible. Every call returns the status that the driver must give."""

    def __init__(self):
        self.reservations = []  # [base, size]
        self.references = {}  # handle -> how many
        self.sizes = {}  # handle -> bytes, kept while memory lives
        self.mappings = []  # [base, size, handle, access]

    def used(self):
        return sum(self.sizes.values())

    def bury(self):
        """Memory that nobody holds and nobody maps is gone."""
        for handle in list(self.sizes):
            if not self.references[handle] and not any(m[2] == handle for m in self.mappings):
                del self.sizes[handle]

    def free(self, base, size):
        inside = any(base <= m[0] < base + size for m in self.mappings)
        if [base, size] not in self.reservations or inside:
            return 1
        self.reservations.remove([base, size])
        return 0

    def create(self, size):
        if size <= 0 or size % UNIT:
            return 1
        return 2 if self.used() + size > MEMORY else 0

    def release(self, handle):
        if not self.references.get(handle):
            return 1
        self.references[handle] -= 1
        self.bury()
        return 0

    def map(self, base, size, offset, handle):
        if not self.references.get(handle) or self.sizes[handle] != size or offset or base % UNIT:
            return 1
        if not any(b <= base and base + size <= b + s for b, s in self.reservations):
            return 1
        if any(m[0] < base + size and base < m[0] + m[1] for m in self.mappings):
            return 1
        self.mappings.append([base, size, handle, 0])
        return 0

    def whole(self, base, size):
        """The mappings that make up [base, base + size) exactly, or None."""
        chosen = [m for m in self.mappings if base <= m[0] and m[0] + m[1] <= base + size]
        if not chosen or sum(m[1] for m in chosen) != size:
            return None
        owners = {b for b, s in self.reservations for m in chosen if b <= m[0] < b + s}
        return chosen if len(owners) == 1 else None

    def unmap(self, base, size):
        chosen = self.whole(base, size)
        if chosen is None:
            return 1
        self.mappings = [m for m in self.mappings if m not in chosen]
        self.bury()
        return 0

    def set_access(self, base, size, access):
        if access not in (0, 1, 3) or self.whole(base, size) is None:
            return 1
        for mapping in self.whole(base, size):
            mapping[3] = access
        return 0

    def at(self, address):
        return next((m for m in self.mappings if m[0] <= address < m[0] + m[1]), None)


class Pair:
    """The driver and the model, given the same calls; arguments are often wrong on purpose."""

    def __init__(self, seed, backing):
        self.seeded = random.Random(seed)
        self.api = HostDriver(memory=MEMORY, granularity=UNIT, backing=backing)
        self.api.cuInit(0)
        self.context = self.api.cuDevicePrimaryCtxRetain(0)[1]
        self.api.cuCtxPushCurrent(self.context)
        self.model = Model()
        self.handles = [0, 10**9]
        self.prop = cuda.CUmemAllocationProp()
        (ctypes.c_int * 4).from_address(self.prop.getPtr())[:] = 1, 0, 1, 0
        self.place = cuda.CUmemLocation()
        (ctypes.c_int * 2).from_address(self.place.getPtr())[:] = 1, 0
        self.seen = {0: 0, 1: 0, 2: 0}

    def same(self, result, expected):
        assert int(result[0]) == expected
        self.seen[expected] += 1

    # -- arguments ----------------------------------------------------------------------------------------------

    def address(self):
        """Mostly a granule in or just outside a reservation, sometimes a little off."""
        if not self.model.reservations:
            return UNIT
        base, size = self.seeded.choice(self.model.reservations)
        off = 4096 if self.seeded.random() < 0.05 else 0
        return base + UNIT * self.seeded.randint(-1, size // UNIT) + off

    def span(self):
        """Mostly one mapping or some neighbours, sometimes anything."""
        if self.model.mappings and self.seeded.random() < 0.7:
            base, size = self.seeded.choice(self.model.mappings)[:2]
            while (following := self.model.at(base + size)) and self.seeded.random() < 0.6:
                size += following[1]
            return base, size - (UNIT if self.seeded.random() < 0.1 else 0)
        return self.address(), UNIT * self.seeded.randint(0, 4)

    def handle(self):
        living = list(self.model.sizes)
        return self.seeded.choice(living) if living and self.seeded.random() < 0.8 else self.seeded.choice(self.handles)

    # -- calls --------------------------------------------------------------------------------------------------

    def reserve(self):
        if len(self.model.reservations) < 5:
            size = UNIT * self.seeded.randint(1, 8)
            status, base = self.api.cuMemAddressReserve(size, 0, 0, 0)
            self.same((status,), 0)
            self.model.reservations.append([int(base), size])

    def free(self):
        if self.model.reservations and self.seeded.random() < 0.3:
            base, size = self.seeded.choice(self.model.reservations)
            size += UNIT * self.seeded.choice([0, 0, 1, -1])
        else:
            base, size = self.span()
        self.same(self.api.cuMemAddressFree(base, size), self.model.free(base, size))

    def create(self):
        size = UNIT * self.seeded.choice([1, 1, 1, 2, 3]) + self.seeded.choice([0] * 9 + [4096])
        expected = self.model.create(size)
        status, handle = self.api.cuMemCreate(size, self.prop, 0)
        self.same((status,), expected)
        if expected == 0:
            assert int(handle) not in self.handles
            self.handles.append(int(handle))
            self.model.references[int(handle)], self.model.sizes[int(handle)] = 1, size

    def release(self):
        handle = self.handle()
        self.same(self.api.cuMemRelease(handle), self.model.release(handle))

    def map(self):
        handle = self.handle()
        size = self.model.sizes.get(handle, UNIT) + self.seeded.choice([0] * 8 + [UNIT, -UNIT])
        base, offset = self.address(), self.seeded.choice([0] * 9 + [UNIT])
        self.same(self.api.cuMemMap(base, size, offset, handle, 0), self.model.map(base, size, offset, handle))

    def unmap(self):
        base, size = self.span()
        self.same(self.api.cuMemUnmap(base, size), self.model.unmap(base, size))

    def set_access(self):
        base, size = self.span()
        access = self.seeded.choice([0, 1, 3, 3, 2])
        desc = cuda.CUmemAccessDesc()
        (ctypes.c_int * 3).from_address(desc.getPtr())[:] = 1, 0, access
        self.same(self.api.cuMemSetAccess(base, size, [desc], 1), self.model.set_access(base, size, access))

    def retain(self):
        address = self.address()
        found = self.model.at(address)
        status, handle = self.api.cuMemRetainAllocationHandle(address)
        self.same((status,), 0 if found else 1)
        if found:
            assert int(handle) == found[2]
            self.model.references[found[2]] += 1

    def write(self):
        """Stamp an allocation with its own number, through any of its addresses."""
        address = self.address() // UNIT * UNIT
        found = self.model.at(address)
        stamp = (found[2] if found else 0).to_bytes(8, "little")
        self.same(self.api.cuMemcpyHtoD(found[0] if found else address, stamp, 8), 0 if found and found[3] == 3 else 1)

    # -- agreement ----------------------------------------------------------------------------------------------

    def compare(self):
        """Every granule of every reservation, as queries show it."""
        free, total = self.api.cuMemGetInfo()[1:]
        assert total - free == self.model.used()
        for base, size in self.model.reservations:
            for at in range(base, base + size, UNIT):
                self.compare_granule(at)
        live = self.api.live()
        counted = (live.reservations, live.mappings, live.allocations)
        assert counted == (len(self.model.reservations), len(self.model.mappings), len(self.model.sizes))

    def compare_granule(self, at):
        found = self.model.at(at)
        status, access = self.api.cuMemGetAccess(self.place, at)
        extent = self.api.cuMemGetAddressRange(at)
        if found is None:
            assert (int(status), int(extent[0])) == (1, 1)
            return
        assert (int(status), access) == (0, found[3])
        assert (int(extent[1]), extent[2]) == (found[0], found[1])
        if access and self.api.backing == "memory":
            assert int.from_bytes(ctypes.string_at(found[0], 8), "little") in (0, found[2])

    def compare_with_the_system(self):
        """What the kernel counts and allows."""
        assert os_view.committed_bytes(self.api) == self.model.used()
        for base, _size, _handle, access in self.model.mappings:
            assert os_view.kernel_mapping(base).permission == PERMISSION[access]

    def close(self):
        for base, size, *_ in list(self.model.mappings):
            self.same(self.api.cuMemUnmap(base, size), self.model.unmap(base, size))
        for handle in list(self.model.sizes):
            while self.model.references[handle]:
                self.same(self.api.cuMemRelease(handle), self.model.release(handle))
        for base, size in list(self.model.reservations):
            self.same(self.api.cuMemAddressFree(base, size), self.model.free(base, size))
        self.compare()
        self.api.cuCtxPopCurrent()
        self.api.cuDevicePrimaryCtxRelease(0)
        assert self.api.live().total == 0


@pytest.mark.parametrize("backing", ["memory", "none"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_life_follows_the_rules(seed, backing):
    pair = Pair(seed, backing)
    calls = [pair.reserve, pair.free, pair.create, pair.release, pair.map, pair.unmap, pair.set_access, pair.retain]
    weights = [2, 1, 5, 3, 8, 3, 5, 1]
    for step in range(1200):
        pair.seeded.choices([*calls, pair.write], [*weights, 3])[0]()
        pair.compare()
        if backing == "memory" and step % 100 == 0:
            pair.compare_with_the_system()
    pair.close()
    assert min(pair.seen.values()) > 20  # done, refused, and out of memory: all of them happened
