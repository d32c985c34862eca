"""Every driver call of every operation of swap spaces and models of several groups fails once: nothing has changed."""

import pytest

import paged
from paged.append_undo import AppendUndo
from paged.model_pool import ModelPool
from paged.model_sequence import ModelSequence
from paged.swap import SwapSpace
from vmm.host import SweepError

UNIT = 64 << 10
CASES = {}
FULL = paged.KVSpec(2, 1, 256, "float32")  # two layers, 32 KiB a block and layer
WINDOWED = paged.KVSpec(1, 1, 256, "float32", window=20)
WHOLE_CHUNKS = paged.KVSpec(2, 1, 512, "float32"), paged.KVSpec(1, 1, 512, "float32", window=20)


def case(*covers, loose=False, **options):
    """Register an operation, and the public methods that it stands for. ``loose``: it may collect what retires."""

    def register(function):
        CASES[function.__name__] = function
        function.covers, function.loose, function.options = covers, loose, options
        return function

    return register


class Space:
    """A swap space and its books."""

    def __init__(self, world, pool, size=8):
        self.space = SwapSpace(world.device, size * pool.layout.block_bytes)
        world.own(self)

    def books(self):
        room = self.space.free + self.space.leaving
        return self.space._finalizer.alive, room, [(one.length, one.dropped, one.blocks) for one in self.space.swapped]

    def close(self):
        self.space.close()


class Model:
    """A model pool and its books; its pools are looked at one by one."""

    def __init__(self, world, groups=(FULL, WINDOWED), **options):
        self.model = ModelPool(world.device, list(groups), budget=20 * UNIT, order="layer", chunk=UNIT, **options)
        world.own(self)
        for pool in self.model.pools:
            world.own(pool)

    def books(self):
        return len(self.model.sequences), [one.length for one in self.model.sequences]

    def close(self):
        self.model.close()


def pool_of(world, **options):
    layout = paged.KVLayout(FULL, 16, "layer", chunk=UNIT)
    return world.own(paged.KVPool(world.device, layout, budget=6 * layout.row_bytes, **options))


def fill(pool, sequence):
    for place, block in enumerate(sequence.held):
        for layer in range(pool.layout.spec.layers):
            pool.view(block, layer)[:] = place + 1


# -- swap ---------------------------------------------------------------------------------------------------------


@case("SwapSpace.__init__")
def make_a_space(world):
    pool = pool_of(world)
    return lambda: Space(world, pool) and None


@case("SwapSpace.put", "SwapSpace.can_put", loose=True)
def put_a_sequence(world):
    pool = pool_of(world)
    one, other = pool.sequence(), pool.sequence()
    for sequence in (one, other):
        sequence.append(40)
        fill(pool, sequence)
    space = Space(world, pool)
    return lambda: space.space.put(one) and None


@case("SwapSpace.restore", "SwapSpace.can_restore", loose=True)
def restore_a_sequence(world):
    pool = pool_of(world)
    sequence = pool.sequence()
    sequence.append(40)
    fill(pool, sequence)
    space = Space(world, pool)
    swapped = space.space.put(sequence)
    world.device.synchronize()
    return lambda: space.space.restore(swapped) and None


@case("SwapSpace.discard", "SwapSpace.collect", loose=True)
def collect_what_was_discarded(world):
    pool = pool_of(world)
    sequence = pool.sequence()
    sequence.append(40)
    space = Space(world, pool)
    space.space.discard(space.space.put(sequence))  # which calls no driver
    world.device.synchronize()
    return lambda: space.space.collect() and None


@case("SwapSpace.close", loose=True)
def close_a_space_that_holds_something(world):
    pool = pool_of(world)
    sequence = pool.sequence()
    sequence.append(40)
    space = Space(world, pool)
    space.space.put(sequence)
    return space.space.close


# -- models of several groups ---------------------------------------------------------------------------------------


@case("ModelPool.__init__")
def make_a_model(world):
    world.range([0])
    return lambda: Model(world) and None


@case("ModelPool.close")
def close_a_model(world):
    model = Model(world, [FULL]).model
    model.sequence().append(10)
    return model.close


@case("ModelSequence.append", "ModelSequence.can_append", loose=True)
def append_to_every_group(world):
    model = Model(world).model
    sequence = model.sequence()
    sequence.append(10)
    return lambda: sequence.append(30) and None


@case("ModelSequence.append", loose=True)
def append_to_a_copy_in_every_group(world):
    model = Model(world, WHOLE_CHUNKS).model
    sequence = model.sequence()
    sequence.append(10)
    for part in sequence.parts:
        fill(part.pool, part)
    child = sequence.fork()
    return lambda: child.append(30) and None


@case("ModelSequence.append", loose=True)
def append_and_leave_a_window(world):
    model = Model(world, [WINDOWED]).model
    sequence = model.sequence()
    sequence.append(63)
    return lambda: sequence.append(1) and None


@case("ModelPool.sequence", "ModelPool.adopt", "ModelSequence.fork", "ModelSequence.publish")
def fork_in_every_group(world):
    model = Model(world, prefix_cache=True).model
    sequence = model.sequence(list(range(20)))
    sequence.append(list(range(20)))

    def operation():
        sequence.publish()
        sequence.fork()

    return operation


@case("ModelSequence.free", "ModelPool.forget", "ModelPool.trim", loose=True)
def free_a_model_of_one_group(world):
    model = Model(world, [FULL], reserve_rows=1).model
    sequence = model.sequence()
    sequence.append(40)
    return lambda: sequence.free() if sequence.length else model.trim() and None


QUESTIONS = {
    "SwapSpace.size", "SwapSpace.used", "SwapSpace.leaving", "SwapSpace.free", "SwapSpace.swapped",
    "ModelPool.committed", "ModelPool.live", "ModelPool.sequences", "ModelPool.groups", "ModelPool.check",
    "ModelPool.plan", "ModelPool.drop_idle", "ModelSequence.length", "ModelSequence.__init__",
    "ModelPool.busy", "ModelPool.new_chunks", "ModelSequence.shortage", "SwapSpace.shortage",
}  # fmt: skip
"""They call no driver."""


def test_every_public_operation_is_swept(sweeping):
    covered = {name for one in CASES.values() for name in one.covers} | QUESTIONS
    assert sweeping.public_methods(SwapSpace, ModelPool, ModelSequence) - covered == set()


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_be_interrupted(sweeping, name, streams):
    sweeping.interrupt_case(CASES[name], streams)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(sweeping, name, streams, code):
    sweeping.sweep_case(CASES[name], streams, code)


# -- the worth of the sweep ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "undo", "operation"),
    [
        (AppendUndo, "undo", append_to_every_group),
        (AppendUndo, "undo", append_to_a_copy_in_every_group),
        (SwapSpace, "_take_back", put_a_sequence),
    ],
)
def test_an_undo_that_is_left_out_is_caught(sweeping, monkeypatch, owner, undo, operation):
    monkeypatch.setattr(owner, undo, lambda _self, _made: None)
    with pytest.raises(SweepError, match=operation.__name__):
        sweeping.sweep_case(operation, "eager", 1)
