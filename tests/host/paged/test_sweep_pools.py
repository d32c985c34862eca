"""Every driver call of every operation of pools, sequences and spans fails once: nothing has changed, a retry works."""

import pytest

import paged
from paged import growth
from paged.allocation import take
from paged.block_copies import copy_blocks
from paged.release import free
from vmm.host import SweepError

UNIT = 64 << 10
CASES = {}


def case(*covers, loose=False, **options):
    """Register an operation, and the public methods that it stands for. ``loose``: it may collect what retires."""

    def register(function):
        CASES[function.__name__] = function
        function.covers, function.loose, function.options = covers, loose, options
        return function

    return register


def pool_of(world, *, order="layer", rows=6, block_kib=32, **options):
    """Two layers, or one block over both; rows of two chunks or one, each with two blocks or so."""
    layers = 2 if order == "layer" else 1
    layout = paged.KVLayout(paged.KVSpec(layers, 1, block_kib * 8, "float32"), 16, order, chunk=UNIT)
    return world.own(paged.KVPool(world.device, layout, budget=rows * layout.row_bytes, **options))


def fill(pool, blocks):
    for block in blocks:
        for layer in range(pool.layout.spec.layers):
            pool.view(block, layer)[:] = block + 1


def busy(world, pool, block):
    """Queue work that writes to a block."""
    with world.device.current():
        world.device.driver.fill_async(pool.address(block=block), 99, 16)


# -- pools ------------------------------------------------------------------------------------------------------


@case("KVPool.__init__")
def make_a_pool(world):
    world.range([0])
    return lambda: pool_of(world)


@case("KVPool.__init__")
def make_a_pool_with_all_its_memory(world):
    world.range([0])
    return lambda: pool_of(world, prealloc=True, rows=3)


@case("KVPool.allocate")
def allocate_three_rows(world):
    pool = pool_of(world)
    fill(pool, pool.allocate(1))
    return lambda: pool.allocate(5)


@case("KVPool.allocate")
def allocate_blocks_that_straddle_rows(world):
    pool = pool_of(world, order="block", block_kib=80, rows=10)
    fill(pool, pool.allocate(1))
    return lambda: pool.allocate(4)


@case("KVPool.allocate", loose=True)
def allocate_what_the_budget_has_only_when_retired(world):
    pool = pool_of(world, rows=3)
    blocks = pool.allocate(6)
    busy(world, pool, blocks[5])
    pool.free(blocks[2:])
    return lambda: pool.claim([6, 7]) if pool.count(6) == 0 else None


@case("KVPool.allocate_array")
def allocate_an_array_of_blocks(world):
    pool = pool_of(world)
    fill(pool, pool.allocate(1))
    return lambda: pool.allocate_array(5)


@case("KVPool.claim")
def claim_blocks(world):
    pool = pool_of(world)
    fill(pool, pool.allocate(1))
    return lambda: pool.claim([4, 7, 8])


@case("KVPool.fork")
def fork_blocks(world):
    pool = pool_of(world)
    blocks = pool.allocate(3)
    return lambda: pool.fork(blocks)


@case("KVPool.free")
def free_two_rows(world):
    pool = pool_of(world)
    blocks = pool.allocate(7)
    fill(pool, blocks[:2])
    return lambda: pool.free(blocks[2:]) if pool.count(blocks[3]) else None


@case("KVPool.free")
def free_with_a_reserve(world):
    pool = pool_of(world, reserve_rows=1)
    blocks = pool.allocate(8)
    fill(pool, blocks[:2])
    return lambda: pool.free(blocks[2:]) if pool.count(blocks[3]) else None


@case("KVPool.free", "KVPool.retiring", loose=True)
def free_after_work(world):
    pool = pool_of(world)
    blocks = pool.allocate(6)
    busy(world, pool, blocks[3])
    return lambda: pool.free(blocks[2:], after=0) if pool.count(blocks[3]) else None


@case("KVPool.trim", loose=True)
def trim_the_reserve(world):
    pool = pool_of(world, reserve_rows=3)
    pool.free(pool.allocate(8))
    return pool.trim


@case("KVPool.collect", loose=True)
def collect_rows(world):
    pool = pool_of(world)
    blocks = pool.allocate(6)
    busy(world, pool, blocks[3])
    pool.free(blocks)
    return lambda: pool.collect(wait=True)


@case("KVPool.compact", loose=True)
def compact_a_pool(world):
    pool = pool_of(world, block_kib=16)  # four blocks a row
    sequences = [pool.sequence() for _ in range(8)]
    for sequence in sequences:
        sequence.append(16)
    fill(pool, [sequence.table[0] for sequence in sequences])
    for sequence in (*sequences[1:4], sequences[5]):
        sequence.free()
    return lambda: pool.compact(after=0)


@case("KVPool.set_budget", loose=True)
def lower_the_budget(world):
    pool = pool_of(world, reserve_rows=3)
    pool.free(pool.allocate(8)[2:])
    return lambda: pool.set_budget(2 * pool.layout.row_bytes)


@case("KVPool.copy_block")
def copy_a_block(world):
    pool = pool_of(world, block_kib=16)
    blocks = pool.allocate(2)  # the books do not look at the bytes of the second: a refused copy leaves them undefined
    fill(pool, blocks[:1])
    return lambda: pool.copy_block(*blocks)


@case("KVPool.copy_blocks", loose=True)
def copy_blocks_in_a_circle(world):
    pool = pool_of(world, block_kib=16)
    blocks = pool.allocate(2)  # the books do not look at the bytes: refused copies leave them undefined
    return lambda: pool.copy_blocks([(blocks[0], blocks[1]), (blocks[1], blocks[0])])


@case("KVPool.close")
def close_a_pool(world):
    pool = pool_of(world)
    pool.sequence().append(50)
    return pool.close


@case("KVPool.close", loose=True)
def close_a_pool_that_retires(world):
    pool = pool_of(world, supply=world.supply(cache=2 * UNIT))
    blocks = pool.allocate(6)
    busy(world, pool, blocks[3])
    pool.free(blocks[2:])
    return pool.close


# -- sequences --------------------------------------------------------------------------------------------------


@case("KVPool.sequence", "Sequence.__init__")
def make_a_sequence(world):
    pool = pool_of(world)
    return pool.sequence


@case("Sequence.append")
def append_tokens(world):
    pool = pool_of(world)
    sequence = pool.sequence()
    sequence.append(20)
    fill(pool, sequence.table)
    return lambda: sequence.append(60) if sequence.length < 60 else None


@case("Sequence.append", loose=True)
def append_to_a_shared_block(world):
    pool = pool_of(world)
    parent = pool.sequence()
    parent.append(24)
    fill(pool, parent.table)
    child = parent.fork()
    return lambda: child.append(40) if child.length == 24 else None


@case("Sequence.fork")
def fork_a_sequence(world):
    pool = pool_of(world)
    parent = pool.sequence()
    parent.append(24)
    return parent.fork


@case("Sequence.drop_before", loose=True)
def drop_blocks_of_a_sequence(world):
    pool = pool_of(world)
    sequence = pool.sequence()
    sequence.append(90)
    world.device.synchronize()
    return lambda: sequence.drop_before(70)


@case("Batch.append", loose=True)
def append_to_a_batch_with_shared_blocks(world):
    pool = pool_of(world)
    parent = pool.sequence()
    parent.append(24)
    fill(pool, parent.table)
    full = pool.sequence()
    full.append(16)
    batch = paged.Batch(pool, [parent, parent.fork(), full])
    return lambda: batch.append() if full.length == 16 else None


@case("DeviceTables.__init__")
def make_tables_on_the_device(world):
    batch = paged.Batch(pool_of(world))
    return lambda: world.own(paged.DeviceTables(batch, 8, 8))


@case("DeviceTables.update", loose=True)
def update_tables_on_the_device(world):
    pool = pool_of(world)
    sequence = pool.sequence()
    sequence.append(40)
    batch = paged.Batch(pool, [sequence])
    tables = world.own(paged.DeviceTables(batch, 8, 8))
    return tables.update


@case("DeviceTables.close", loose=True)
def close_tables_on_the_device(world):
    pool = pool_of(world)
    tables = world.own(paged.DeviceTables(paged.Batch(pool, [pool.sequence()]), 8, 8))
    tables.update()
    return tables.close


@case("Sequence.free", "Sequence.end")
def free_a_sequence(world):
    pool = pool_of(world)
    parent = pool.sequence()
    parent.append(40)
    child = parent.fork()
    child.append(50)
    world.device.synchronize()
    return child.free


# -- spans ------------------------------------------------------------------------------------------------------


def spans_of(world, **options):
    """Tokens of 16 KiB in two planes: four of them in a chunk."""
    spec = paged.KVSpec(1, 1, 4096, "float32")
    return world.own(paged.ContiguousKV(world.device, spec, 16, 3, chunk=UNIT, **options))


@case("ContiguousKV.__init__")
def make_spans(world):
    world.range([0])
    return lambda: spans_of(world)


@case("ContiguousKV.open", "Span.__init__")
def open_a_span(world):
    return spans_of(world).open


@case("ContiguousKV.grow", "Span.append")
def append_to_a_span(world):
    kv = spans_of(world)
    span = kv.open()
    span.append(3)
    return lambda: span.append(9) if span.length == 3 else None


@case("ContiguousKV.grow", loose=True)
def append_what_the_budget_has_only_when_retired(world):
    kv = spans_of(world, budget=4 * 2 * UNIT)
    old = kv.open()
    span = kv.open()
    old.append(12)
    with world.device.current():
        world.device.driver.fill_async(kv.address(old, 9), 99, 16)
    old.close()
    return lambda: span.append(9) if not span.length else None


@case("ContiguousKV.retire", "Span.close")
def close_a_span(world):
    kv = spans_of(world)
    kv.open().append(3)
    span = kv.open()
    span.append(9)
    return span.close


@case("Span.close", loose=True)
def close_a_span_after_work(world):
    kv = spans_of(world)
    span = kv.open()
    span.append(9)
    with world.device.current():
        world.device.driver.fill_async(kv.address(span, 7), 99, 16)
    return lambda: span.close(after=0)


@case("ContiguousKV.collect", loose=True)
def collect_spans(world):
    kv = spans_of(world)
    span = kv.open()
    span.append(9)
    with world.device.current():
        world.device.driver.fill_async(kv.address(span, 7), 99, 16)
    span.close()
    return lambda: kv.collect(wait=True)


@case("ContiguousKV.close", loose=True)
def close_spans_that_retire(world):
    kv = spans_of(world)
    kv.open().append(3)
    span = kv.open()
    span.append(9)
    with world.device.current():
        world.device.driver.fill_async(kv.address(span, 7), 99, 16)
    span.close()
    return kv.close


@case("KVPool.give_up")
def give_up_an_empty_row_and_idle_ones(world):
    pool = pool_of(world, prefix_cache=True, reserve_rows=1)
    ids = list(range(100))
    for start in (0, 1):
        sequence = pool.sequence(ids[start:])
        sequence.append(ids[start : start + 60])
        sequence.free()
    held = pool.sequence(ids)
    fill(pool, held.table)
    return lambda: pool.give_up(pool.spare(cached=True), cached=True) or None


QUESTIONS = {
    "KVPool.reserved", "KVPool.committed", "KVPool.live", "KVPool.blocks_total", "KVPool.blocks_free",
    "KVPool.cache_events_error",
    "KVPool.empty_rows", "KVPool.sequences", "KVPool.count", "KVPool.can_allocate", "KVPool.can_begin",
    "KVPool.check", "KVPool.spare",
    "KVPool.check_usable", "KVPool.check_not_closed", "KVPool.explain", "KVPool.shortage", "KVPool.shared_supply",
    "KVPool.address", "KVPool.kv", "KVPool.view",
    "Sequence.can_append", "Sequence.check_in", "DeviceTables.check_current",
    "Sequence.lost", "Sequence.is_open", "Sequence.length", "Sequence.table", "Sequence.held", "Sequence.dropped",
    "Batch.lengths", "Batch.tables", "Batch.can_append", "Batch.check", "DeviceTables.waits",
    "ContiguousKV.step_bytes", "ContiguousKV.reserved", "ContiguousKV.committed",
    "ContiguousKV.retiring", "ContiguousKV.live", "ContiguousKV.steps", "ContiguousKV.can_commit",
    "ContiguousKV.can_open", "ContiguousKV.address", "ContiguousKV.check", "ContiguousKV.check_mine",
    "ContiguousKV.plane_address", "ContiguousKV.spans",
    "ContiguousKV.owns", "ContiguousKV.check_open",
    "ContiguousKV.shortage", "Span.room", "Span.can_append",
    "Span.shortage",
}  # fmt: skip
"""They change nothing and call no driver."""
WITHOUT_CALLS = {"KVPool.blocks_idle", "Sequence.begin", "Sequence.publish"} | {
    "Batch.__init__",
    "Batch.add",
    "Batch.remove",
}
"""The prefix cache and the order of a batch are integers."""


def test_every_public_operation_is_swept(sweeping):
    classes = paged.KVPool, paged.Sequence, paged.Batch, paged.DeviceTables, paged.ContiguousKV, paged.Span
    covered = {name for one in CASES.values() for name in one.covers} | QUESTIONS | WITHOUT_CALLS
    assert sweeping.public_methods(*classes) - covered == set()


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_be_interrupted(sweeping, name, streams):
    sweeping.interrupt_case(CASES[name], streams)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(sweeping, name, streams, code):
    sweeping.sweep_case(CASES[name], streams, code)


# -- the worth of the sweep -------------------------------------------------------------------------------------


def free_without_a_way_back(monkeypatch):
    monkeypatch.setattr(paged.BlockPool, "hold", lambda _self, _blocks: None)


def keep_the_copy_of_a_refused_append(monkeypatch):
    def append_to_a_copy(sequence, needed, count, stream):
        pool, shared = sequence.pool, sequence.table[-1]
        new = take(pool, needed + 1)
        copy_blocks(pool, [shared], new[:1], stream)
        pool.table.put(sequence.row, len(sequence.table) - 1, new)
        free(pool, [shared], None)
        pool.tokens += count + sequence.length % pool.layout.block_size

    monkeypatch.setattr(growth, "_append_to_a_copy", append_to_a_copy)


def count_a_span_before_it_has_grown(monkeypatch):
    whole = paged.ContiguousKV.grow

    def grow(self, span, tokens):
        self.tokens += tokens
        whole(self, span, tokens)
        self.tokens -= tokens

    monkeypatch.setattr(paged.ContiguousKV, "grow", grow)


@pytest.mark.parametrize(
    ("mutation", "operation"),
    [
        (free_without_a_way_back, free_two_rows),
        (keep_the_copy_of_a_refused_append, append_to_a_shared_block),
        (count_a_span_before_it_has_grown, append_to_a_span),
    ],
)
def test_an_undo_that_is_left_out_is_caught(sweeping, monkeypatch, mutation, operation):
    mutation(monkeypatch)
    with pytest.raises(SweepError, match=operation.__name__):
        sweeping.sweep_case(operation, "eager", 1)
