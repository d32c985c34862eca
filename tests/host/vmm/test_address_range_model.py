"""A random life of two address ranges against a list of mappings: what is refused, what is there, and every byte.

Each piece of memory holds a pattern of its own from its first byte to its last, which is read back through a window
before the memory is released.
"""

import itertools
import random
from dataclasses import dataclass

import pytest

import vmm
from vmm.host import FailingDriver

UNIT = 64 << 10
UNITS = 12  # of each range
TOTAL = 20  # of memory
CALLS = {"map": "cuMemMap", "unmap": "cuMemUnmap", "protect": "cuMemSetAccess"}


@dataclass(eq=False)
class Piece:
    """Physical memory and what it must hold."""

    memory: vmm.PhysicalMemory
    pattern: bytes
    closed: bool = False

    @property
    def size(self):
        return self.memory.size

    def content(self):
        return self.pattern * (self.size // len(self.pattern))


@dataclass(eq=False)
class Placed:
    """What the model knows of a mapping."""

    which: int
    offset: int
    piece: Piece
    mapping: vmm.Mapping
    access: int = 0

    @property
    def stop(self):
        return self.offset + self.piece.size


class Life:
    """Two ranges, the pieces of memory, and the list of what is mapped where."""

    def __init__(self, seed):
        self.seeded = random.Random(seed)
        self.api = FailingDriver(vmm.HostDriver(memory=(TOTAL + 1) * UNIT, granularity=UNIT))
        self.device = vmm.Device(driver=self.api)
        self.ranges = [vmm.AddressRange(self.device, UNITS * UNIT) for _ in range(2)]
        self.window = vmm.AddressRange(self.device, 3 * UNIT)
        self.pieces, self.placed, self.gone = [], [], []
        self.stamps = 0
        self.seen = {"done": 0, "refused": 0, "failed": 0}

    # -- what the model says ------------------------------------------------------------------------------------

    def here(self, which):
        return sorted((one for one in self.placed if one.which == which), key=lambda one: one.offset)

    def living(self):
        """Pieces that still take memory: not closed, or mapped."""
        return [p for p in self.pieces if not p.closed or any(one.piece is p for one in self.placed)]

    def refuses_map(self, which, offset, piece):
        if offset % UNIT:
            return vmm.AlignmentError
        if offset < 0 or offset + piece.size > UNITS * UNIT:
            return vmm.RangeError
        if piece.closed:
            return vmm.ClosedError
        taken = any(one.offset < offset + piece.size and offset < one.stop for one in self.here(which))
        return vmm.DriverError if taken else None

    def refuses_run(self, which, run):
        wrong = any(one not in self.placed or one.which != which for one in run)
        torn = any(first.stop != second.offset for first, second in itertools.pairwise(run))
        return vmm.StateError if wrong or torn else None

    # -- operations ---------------------------------------------------------------------------------------------

    def attempt(self, action, refusal, operation):
        """Run ``operation``, which must be refused where the model says so; sometimes the driver fails it."""
        failing = action in CALLS and self.seeded.random() < 0.06
        if failing:
            self.api.arm(CALLS[action], 1, self.seeded.choice([1, 2]))
        try:
            result = operation()
        except vmm.VmmError as error:
            failed = failing and not self.api.disarm()
            assert failed or (refusal is not None and isinstance(error, refusal)), error
            self.seen["failed" if failed else "refused"] += 1
            return False, None
        self.api.disarm()
        assert refusal is None
        self.seen["done"] += 1
        return True, result

    def create(self):
        size = UNIT * self.seeded.choice([1, 1, 1, 2, 3])
        if sum(piece.size for piece in self.living()) + size <= TOTAL * UNIT:
            piece = Piece(vmm.PhysicalMemory(self.device, size), b"")
            self.pieces.append(piece)
            with self.through_window(piece, vmm.Access.READWRITE) as address:
                self.stamp(piece, address)

    def map(self):
        if not self.pieces:
            return
        which, piece = self.seeded.randrange(2), self.seeded.choice(self.pieces)
        offset = UNIT * self.seeded.randint(-1, UNITS) + self.seeded.choice([0] * 12 + [4096])
        refusal = self.refuses_map(which, offset, piece)
        done, mapping = self.attempt("map", refusal, lambda: self.ranges[which].map(offset, piece.memory))
        if done:
            self.placed.append(Placed(which, offset, piece, mapping))

    def run(self, which):
        """Mostly neighbours; sometimes with a gap, out of order, one of another range, or one that is gone."""
        here = self.here(which)
        if not here:
            return []
        start = self.seeded.randrange(len(here))
        run = here[start : start + self.seeded.randint(1, 4)]
        stray = self.seeded.random()
        if stray < 0.1:
            self.seeded.shuffle(run)
        elif stray < 0.2:
            run.append(self.seeded.choice(self.placed + self.gone[-4:]))
        elif stray < 0.8:
            while any(first.stop != second.offset for first, second in itertools.pairwise(run)):
                run.pop()
        return run

    def unmap(self):
        which = self.seeded.randrange(2)
        run = self.run(which)
        for one in run:
            self.compare_bytes(one)
        refusal = self.refuses_run(which, run)
        done, _ = self.attempt("unmap", refusal, lambda: self.ranges[which].unmap([one.mapping for one in run]))
        if done:
            self.placed = [one for one in self.placed if one not in run]
            self.gone.extend(run)

    def protect(self):
        which, access = self.seeded.randrange(2), self.seeded.choice([0, 1, 3, 3])
        run = self.run(which)
        mappings = [one.mapping for one in run]
        operation = lambda: self.ranges[which].set_access(mappings, vmm.Access(access))
        done, _ = self.attempt("protect", self.refuses_run(which, run), operation)
        if done:
            for one in run:
                one.access = access

    def write(self):
        """A new pattern through one mapping; every other mapping of the piece shows it too."""
        if self.placed:
            one = self.seeded.choice(self.placed)
            refusal = None if one.access == vmm.Access.READWRITE else vmm.DriverError
            self.attempt("write", refusal, lambda: self.stamp(one.piece, one.mapping.address))

    def release(self):
        """Memory that is mapped lives on, and nothing new can be mapped from it."""
        if self.pieces:
            piece = self.seeded.choice(self.pieces)
            if not piece.closed:
                with self.through_window(piece, vmm.Access.READ) as address:
                    assert self.bytes_at(address, piece.size) == piece.content()
            piece.memory.close()
            piece.closed = True
            if piece not in self.living() and self.seeded.random() < 0.8:
                self.pieces.remove(piece)

    def close(self):
        """Close a range with all that is mapped in it, perhaps in two attempts, and reserve another."""
        which = self.seeded.randrange(2)
        if self.seeded.random() < 0.5:
            self.api.arm("cuMemUnmap", self.seeded.randint(1, 3), 1)
        try:
            self.ranges[which].close()
        except vmm.DriverError:
            self.ranges[which].close()
        self.api.disarm()
        self.gone.extend(self.here(which))
        self.placed = [one for one in self.placed if one.which != which]
        self.ranges[which].close()
        self.ranges[which] = vmm.AddressRange(self.device, UNITS * UNIT)

    # -- bytes --------------------------------------------------------------------------------------------------

    def through_window(self, piece, access):
        return Window(self.window, piece, access)

    def stamp(self, piece, address):
        """Write a pattern that no piece has had, and remember it once it is there."""
        self.stamps += 1
        pattern = self.stamps.to_bytes(8, "little")
        with self.device.current():
            self.device.driver.copy_in(address, pattern * (piece.size // 8), piece.size)
        piece.pattern = pattern

    def bytes_at(self, address, size):
        found = bytearray(size)
        with self.device.current():
            self.device.driver.copy_out(found, address, size)
        return bytes(found)

    def compare_bytes(self, one):
        if one in self.placed and one.access:
            assert self.bytes_at(one.mapping.address, one.piece.size) == one.piece.content()

    # -- agreement ----------------------------------------------------------------------------------------------

    def compare(self):
        for which, addresses in enumerate(self.ranges):
            here = self.here(which)
            assert addresses.mappings() == [one.mapping for one in here]
            for one in here:
                mapping = one.mapping
                assert (mapping.offset, mapping.size, mapping.access) == (one.offset, one.piece.size, one.access)
                assert mapping.memory is one.piece.memory
        live = self.device.driver.api.live()
        assert (live.reservations, live.mappings) == (3, len(self.placed))
        assert live.allocations == len(self.living())
        assert self.device.memory_info().free == (TOTAL + 1) * UNIT - sum(piece.size for piece in self.living())

    def compare_granules(self):
        """What the driver itself says of every unit of the ranges."""
        for which, addresses in enumerate(self.ranges):
            for offset in range(0, UNITS * UNIT, UNIT):
                one = next((one for one in self.here(which) if one.offset <= offset < one.stop), None)
                try:
                    access = self.device.driver.get_access(0, addresses.base + offset)
                except vmm.DriverError:
                    assert one is None
                else:
                    assert access == one.access
        for one in self.placed:
            self.compare_bytes(one)

    def finish(self):
        for piece in self.pieces:
            if not piece.closed:
                with self.through_window(piece, vmm.Access.READ) as address:
                    assert self.bytes_at(address, piece.size) == piece.content()
            piece.memory.close()
        for addresses in (*self.ranges, self.window):
            addresses.close()
        assert self.device.driver.api.live().allocations == 0
        assert self.device.driver.api.committed_bytes() == 0
        self.device.close()


class Window:
    """A piece of memory at a second address, inside a ``with``."""

    def __init__(self, addresses, piece, access):
        self.addresses, self.piece, self.access = addresses, piece, access

    def __enter__(self):
        self.mapping = self.addresses.map(0, self.piece.memory)
        self.addresses.set_access([self.mapping], self.access)
        return self.mapping.address

    def __exit__(self, *exc):
        self.addresses.unmap([self.mapping])


def live(seed, steps):
    life = Life(seed)
    turns = [life.create, life.map, life.unmap, life.protect, life.write, life.release, life.close]
    for step in range(steps):
        life.seeded.choices(turns, [4, 9, 4, 8, 5, 2, 0.3])[0]()
        life.compare()
        if step % 25 == 0:
            life.compare_granules()
    life.finish()
    assert min(life.seen.values()) > steps // 100, life.seen


@pytest.mark.parametrize("seed", [1])
def test_a_random_life_of_ranges_keeps_every_byte(seed):
    live(seed, 4_000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_long_life_of_ranges_keeps_every_byte(seed):
    live(seed, 10_000)
