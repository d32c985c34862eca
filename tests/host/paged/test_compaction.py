"""Live blocks move together so that rows come empty: bytes, tables, counts and work in flight stay right."""

import random

import numpy as np
import pytest

import paged
import vmm
from vmm.host import FailingDriver, HostDriver

STREAMS = ("eager", "deferred")
KIB, MIB = 1 << 10, 1 << 20


def spread(pool, sequences, blocks, every):
    """``sequences`` sequences of ``blocks`` blocks each, of which only every so many lie in a row; what each holds."""
    size = pool.layout.block_size
    made = [pool.sequence() for _ in range(sequences * every)]
    for _ in range(blocks):
        for sequence in made:
            sequence.append(size)
    for number, sequence in enumerate(made):
        if number % every:
            sequence.free()
    kept = made[::every]
    pool.collect(wait=True)
    return kept


def mark(pool, sequences):
    """Other bytes in each layer of each block; they say which sequence and place it is."""
    for number, sequence in enumerate(sequences):
        for place, block in enumerate(sequence.table):
            for layer in range(pool.layout.spec.layers):
                pool.view(block, layer)[...] = 1000 * number + 10 * place + layer


def check_marks(pool, sequences):
    for number, sequence in enumerate(sequences):
        for place, block in enumerate(sequence.table):
            for layer in range(pool.layout.spec.layers):
                assert np.all(pool.view(block, layer) == 1000 * number + 10 * place + layer)


def test_case_12_then_compact_four_chunks_are_left(rules, make_layout):
    """kvcached#359, #390: pool(2 MiB, 16 KiB, 64), every 16th block kept: 64 chunks, then 4, by at most 480 moves."""
    with paged.KVPool(rules, make_layout(16), budget=128 * MIB, blocks=8192) as pool:
        everything = [pool.sequence() for _ in range(8192)]
        for sequence in everything:
            sequence.append(16)
        kept = everything[::16]
        for number, sequence in enumerate(everything):
            if number % 16:
                sequence.free()
        assert pool.committed == 64 * 2 * MIB
        done = pool.compact()
        assert pool.committed == 4 * 2 * MIB
        assert (done.rows, done.freed) == (60, 60 * 2 * MIB)
        assert done.moved <= 480
        assert done.copied == done.moved * 16 * KIB
        assert len({block for sequence in kept for block in sequence.table}) == 512
        pool.check()


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("block_kib", [512, 896, 5 * 1024])
def test_contents_and_tables_follow(device, make_layout, order, block_kib):
    """Blocks smaller than a chunk, such that straddle two, and such that span several."""
    layout = make_layout(block_kib, order=order, layers=2)
    with paged.KVPool(device, layout, budget=200 * MIB, name="kv") as pool:
        kept = spread(pool, 3, 2, every=3)
        mark(pool, kept)
        before = pool.committed
        done = pool.compact()
        device.synchronize()
        assert pool.committed == before - done.freed
        assert (done.freed > 0) == (done.moved > 0)
        check_marks(pool, kept)
        pool.check()


def test_the_copies_are_queued_and_the_old_rows_outlive_them(device, make_layout):
    with paged.KVPool(device, make_layout(512), budget=64 * MIB) as pool:
        kept = spread(pool, 4, 2, every=4)
        mark(pool, kept)
        done = pool.compact()
        if device.driver.api.live().pending or pool.retiring:
            assert pool.retiring == done.freed
        device.synchronize()
        assert pool.retiring == 0
        check_marks(pool, kept)


def test_most_bounds_what_is_copied(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=128 * MIB) as pool:
        spread(pool, 8, 2, every=4)
        assert pool.compact(most=0).moved == 0
        done = pool.compact(most=3)
        assert 0 < done.moved <= 3
        assert done.rows >= 1
        assert pool.compact().moved > 0
        assert pool.compact().moved == 0
        pool.check()


def test_what_others_hold_stays(device, make_layout):
    """Raw blocks, viewed ones and pinned ones are not moved; a shared block moves for all of its tables."""
    with paged.KVPool(device, make_layout(512), budget=128 * MIB) as pool:
        kept = spread(pool, 8, 2, every=4)
        child = kept[0].fork()
        raw = kept[1].table[0]
        pool.fork([raw])
        viewed = kept[2].table[0]
        array = pool.view(viewed, 0)
        pinned = kept[3].table[0]
        chunk = pool.layout.rows(64).first(pinned)
        with pool.range.pin(chunk * 2 * MIB, (chunk + 1) * 2 * MIB, "a graph"):
            done = pool.compact()
        assert done.moved > 0
        assert (kept[1].table[0], kept[2].table[0], kept[3].table[0]) == (raw, viewed, pinned)
        assert child.table == kept[0].table
        assert pool.count(child.table[0]) == 2
        pool.check()
        del array
        pool.free([raw])


def test_what_the_prefix_cache_knows_moves_too(device, make_layout):
    with paged.KVPool(device, make_layout(512), budget=64 * MIB, prefix_cache=True) as pool:
        prompts = [np.arange(100 * n, 100 * n + 33, dtype=np.int32) for n in range(8)]
        filler = []
        for ids in prompts:
            sequence = pool.sequence(ids)
            sequence.append(33)
            mark(pool, [sequence])
            filler.append(pool.allocate(5))
            sequence.free()
        for blocks in filler:
            pool.free(blocks)
        pool.collect(wait=True)
        order = [pool.sequence(ids).table for ids in prompts]
        for sequence in pool.sequences:
            sequence.free()
        done = pool.compact()
        device.synchronize()
        assert done.moved > 0
        pool.check()
        for ids, old in zip(prompts, order, strict=True):
            found = pool.sequence(ids)
            assert len(found.table) == len(old) == 2
            for place, block in enumerate(found.table):
                assert np.all(pool.view(block, 0) == 10 * place)


@pytest.mark.parametrize("call", ["cuMemcpyDtoDAsync", "cuMemUnmap", "cuCtxRecordEvent"])
@pytest.mark.parametrize("streams", STREAMS)
def test_a_call_that_fails_leaves_every_block_where_it_was(make_layout, picture, call, streams):
    api = FailingDriver(HostDriver(memory="256 MiB", streams=streams))
    with vmm.Device(driver=api) as device, paged.KVPool(device, make_layout(512), budget=64 * MIB) as pool:
        kept = spread(pool, 4, 2, every=4)
        mark(pool, kept)
        before = picture(pool)
        api.arm(call, 1, code=1)
        if call == "cuMemUnmap" and streams == "deferred":
            api.disarm()  # the unmap comes later, in collect
        else:
            with pytest.raises(vmm.DriverError, match=call):
                pool.compact()
            device.synchronize()
            assert picture(pool) == before
            check_marks(pool, kept)
        pool.compact()
        device.synchronize()
        check_marks(pool, kept)
        pool.check()


def test_random_lives_keep_their_bytes(device, make_layout):
    rng = random.Random(11)
    with paged.KVPool(device, make_layout(256), budget=48 * MIB, prefix_cache=False) as pool:
        running: list[tuple[paged.Sequence, int]] = []
        for step in range(300):
            choice = rng.random()
            if choice < 0.4 and pool.can_allocate(4):
                sequence = pool.sequence()
                sequence.append(rng.randrange(1, 64))
                for place, block in enumerate(sequence.table):
                    pool.view(block, 0)[...] = step + place / 8
                running.append((sequence, step))
            elif choice < 0.7 and running:
                running.pop(rng.randrange(len(running)))[0].free()
            elif choice > 0.85:
                pool.compact(most=rng.choice([2, 10, 100]))
                device.synchronize()
            for sequence, number in running:
                for place, block in enumerate(sequence.table):
                    assert pool.view(block, 0)[0, 0, 0] == np.float32(number + place / 8)
            pool.check()
