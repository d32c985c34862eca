"""Every driver call of every operation of shares fails once: nothing has changed, a retry works.

What a giver gave up for a taker that failed after that stays given up: it was to spare.
"""

import pytest

import vmm

UNIT = 64 << 10
CASES = {}


def case(*covers, loose=False, **options):
    """Register an operation, and the public methods that it stands for. ``loose``: it may collect what retires."""

    def register(function):
        CASES[function.__name__] = function
        function.covers, function.loose, function.options = covers, loose, options
        return function

    return register


class Unbooked:
    """An owner whose books are not compared."""

    def __init__(self, owner):
        self.owner = owner

    def close(self):
        self.owner.close()


class Sparing:
    """A range of which all but the first chunk could go."""

    def __init__(self, world, supply):
        self.range = vmm.GrowableRange(world.device, 16 * UNIT, supply=supply, name="sparing")
        world.own(self)
        supply.register(self)
        self.close = self.range.close

    def spare(self, *, cached):
        return len(self.range.committed_chunks()) - 1 if cached else 0

    def give_up(self, chunks, *, cached):  # noqa: ARG002
        self.range.decommit(self.range.committed_chunks()[-chunks:])
        return chunks


def shares_of(world, budget=6):
    """Two shares of one supply."""
    supply = vmm.ChunkSupply(world.device, UNIT, budget=budget * UNIT)
    world.own(Unbooked(supply))
    return [world.own(Unbooked(share)).owner for share in (supply.share("a", floor=UNIT), supply.share("b"))]


@case("ChunkSupply.share", "Share.__init__", "Supply.__init__", "Supply.take", "Share.take", "Supply.obtainable")
def take_by_a_new_share(world):
    supply = world.supply(budget=6 * UNIT)

    def operation():
        share = supply.share("a", floor=UNIT)
        try:
            assert share.obtainable() == 6 * UNIT
            share.give(share.take(3))
        finally:
            share.close()

    return operation


@case("Share.take", "Supply.register", "Share.register", loose=True)
def take_what_another_can_spare(world):
    a, b = shares_of(world)
    sparing = Sparing(world, a)
    sparing.range.commit(range(6))
    mine = world.range(supply=b)
    return lambda: mine.commit([2, 3])


@case("Share.take", loose=True)
def take_what_another_uses_still(world):
    a, b = shares_of(world)
    sparing = Sparing(world, a)
    sparing.range.commit(range(6))
    world.busy(sparing.range, 5)
    mine = world.range(supply=b)
    return lambda: mine.commit([0, 7])


@case("Share.take", loose=True, memory=6 * UNIT)
def take_from_another_because_the_device_is_full(world):
    a, b = shares_of(world, budget=32)
    sparing = Sparing(world, a)
    sparing.range.commit(range(6))
    mine = world.range(supply=b)
    return lambda: mine.commit([2, 3])


@case("Share.close")
def close_a_share(world):
    supply = world.supply(budget=6 * UNIT)
    share = supply.share("a", floor=UNIT)
    world.extra = lambda: supply.available
    return share.close


WITHOUT_CALLS = {"Share.name", "Share.supply", "Share.floor", "Share.ceiling", "Share.budget", "Share.set_bounds"}
"""Integers."""


def test_every_public_operation_is_swept(sweeping):
    covered = {name for one in CASES.values() for name in one.covers} | WITHOUT_CALLS
    assert sweeping.public_methods(vmm.Share) - covered == set()


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_be_interrupted(sweeping, name, streams):
    sweeping.interrupt_case(CASES[name], streams)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(sweeping, name, streams, code):
    sweeping.sweep_case(CASES[name], streams, code)
