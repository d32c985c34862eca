"""KVPool under failing calls: each of create, map, set access, unmap, at each place; and seeded runs with all of it."""

import random

import pytest

import paged
import vmm

MIB = 1 << 20
FAILING = ["cuMemCreate", "cuMemMap", "cuMemSetAccess"]


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("call", FAILING)
def test_a_call_that_fails_leaves_everything_as_it_was(failing, make_layout, picture, call, order):
    """Each of create, map and set access, at each place of a growth of three rows."""
    device, api = failing
    layout = make_layout(1024, order=order, layers=2)
    with paged.KVPool(device, layout, budget=6 * layout.row_bytes) as pool:
        pool.allocate(2)
        sequence = pool.sequence()
        sequence.append(20)
        before = picture(pool)
        failed = 0
        for at in range(1, 3 * layout.planes + 1):
            for act in (lambda: pool.allocate(7), lambda: sequence.append(100)):
                api.arm(call, at, code=2 if call == "cuMemCreate" else 1)
                if call == "cuMemSetAccess" and at > layout.planes:
                    api.disarm()  # there is one call a contiguous run
                    continue
                with pytest.raises(vmm.VmmError, match=call):
                    act()
                failed += 1
                assert picture(pool) == before
                pool.check()
        assert failed >= 2 * layout.planes
        sequence.append(100)
        pool.check()


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_case_2_memory_that_runs_out_at_any_chunk_of_three_changes_nothing(failing, make_layout, picture, missing):
    """kvcached#364: 3 chunks are needed and the device has no more at the ``missing``-th; 2 blocks are set aside."""
    device, _ = failing
    layout = make_layout(1024)  # two blocks a chunk
    with paged.KVPool(device, layout, budget=32 * MIB, reserve_rows=1) as pool:
        aside = pool.allocate(2)
        hoard = vmm.GrowableRange(device, "64 MiB")
        hoard.grow(device.memory_info().free - (missing - 1) * layout.chunk)
        before = picture(pool)
        with pytest.raises(vmm.OutOfMemoryError, match=f"chunk {missing} of 3 new ones"):
            pool.allocate(6)
        assert picture(pool) == before
        assert (pool.reserve_rows, aside, pool.block_pool.used) == (1, [0, 1], 2)
        hoard.close()
        assert pool.allocate(6) == [2, 3, 4, 5, 6, 7]
        pool.check()


def test_prealloc_that_fails_leaves_nothing(failing, make_layout):
    device, api = failing
    before = api.live()
    for call in FAILING:
        api.arm(call, 1)
        with pytest.raises(vmm.VmmError, match=call):
            paged.KVPool(device, make_layout(512), budget=8 * MIB, prealloc=True)
        assert api.live() == before


def test_free_that_fails_leaves_everything_as_it_was(failing, make_layout, picture):
    device, api = failing
    with paged.KVPool(device, make_layout(1024), budget=16 * MIB) as pool:
        sequence = pool.sequence()
        sequence.append(6 * 16 + 1)
        child = sequence.fork()
        child.append(40)
        before = picture(pool)
        api.arm("cuMemUnmap", 1, code=1)
        with pytest.raises(vmm.DriverError, match="cuMemUnmap"):
            child.free()
        assert picture(pool) == before
        pool.check()
        child.free()
        sequence.free()
        assert pool.committed == 0


def act_at_random(draw, pool, lengths):
    """One action of the kind that servers do; ``lengths`` is what the sequences should have."""
    action = draw.choice(["new", "append", "append", "fork", "free", "trim"])
    sequence = draw.choice(pool.sequences) if pool.sequences else None
    if action == "new":
        lengths[pool.sequence()] = 0
    elif action == "trim":
        pool.trim()
    elif sequence and action == "append":
        tokens = draw.randint(1, 40)
        can = sequence.can_append(tokens)
        try:
            slots = sequence.append(tokens)
        except vmm.OutOfMemoryError:
            assert not can
            raise
        lengths[sequence] += tokens
        assert can
        assert len(set(slots.tolist())) == tokens
    elif sequence and action == "fork":
        lengths[sequence.fork()] = lengths[sequence]
    elif sequence and action == "free":
        sequence.free()
        del lengths[sequence]


@pytest.mark.parametrize("block_kib", [2048, 256, 896, 5120])
@pytest.mark.parametrize("reserve_rows", [0, 2])
def test_random_sequences_with_failures(failing, make_layout, picture, block_kib, reserve_rows):
    """Seeded runs: sequences grow, fork and end, calls fail now and then; everything is checked after every step."""
    device, api = failing
    draw = random.Random(block_kib + reserve_rows)
    layout = make_layout(block_kib)
    failures = refusals = 0
    with paged.KVPool(device, layout, budget=24 * MIB, reserve_rows=reserve_rows) as pool:
        lengths = {}
        for _ in range(400):
            before = picture(pool)
            if armed := draw.random() < 0.3:
                api.arm(draw.choice([*FAILING, "cuMemUnmap"]), draw.randint(1, 2), code=1)
            try:
                act_at_random(draw, pool, lengths)
            except vmm.OutOfMemoryError:
                refusals += 1
                assert picture(pool) == before
                api.disarm()
                for sequence in draw.sample(pool.sequences, len(pool.sequences) // 2):  # make room again
                    sequence.free()
                    del lengths[sequence]
            except vmm.DriverError:
                assert armed
                failures += 1
                assert picture(pool) == before
            api.disarm()
            pool.check()
            assert {sequence: sequence.length for sequence in pool.sequences} == lengths
            assert pool.committed <= 24 * MIB
            held = {row for found in pool.sequences for block in found.table for row in pool.block_pool.rows.of(block)}
            assert pool.committed // layout.row_bytes - pool.empty_rows == len(held)
        for sequence in pool.sequences:
            sequence.free()
        pool.trim()
        assert (pool.committed, pool.live) == (0, 0)
    assert failures > 0
    assert refusals > 0


def test_a_chunk_that_the_device_cannot_give_is_refused_before_anything_is_made(rules):
    layout = paged.KVLayout(paged.KVSpec(2, 2, 64, "float32"), 16, chunk=1)
    with pytest.raises(vmm.AlignmentError, match=r"chunk of 1 bytes is no multiple of the granularity 2 MiB"):
        paged.KVPool(rules, layout, blocks=1 << 20)
