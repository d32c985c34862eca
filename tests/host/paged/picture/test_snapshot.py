"""The snapshot, chunk by chunk and block by block against ``KVPool.explain``; what the bytes are spent on."""

import itertools

import numpy as np
import pytest

import paged
import vmm
from paged.explain import explain_chunk, live_block
from paged.picture import BlockKind, ChunkState, picture_of, spending_of
from paged.picture.row_kinds import RowKind, chunk_kinds
from paged.picture.stretches import handle_runs, stretches_of

SHAPES = [*itertools.product(("block", "layer"), (192, 2048, 5376)), ("block", 1536)]  # KiB: fits, straddles, spans


@pytest.mark.parametrize(("order", "block_kib"), SHAPES)
def test_every_chunk_is_what_explain_says(device, scenes, order, block_kib):
    with scenes["full"](device, order, block_kib) as pool:
        found = picture_of(pool)
        states = set()
        for chunk in range(pool.range.chunk_count):
            told = explain_chunk(pool, chunk)
            states.add(told.state)
            assert ChunkState(found.states[told.plane, told.row]).name.lower() == told.state
            assert found.handles[told.plane, told.row] == told.handle
            touching = found.rows.touching(told.row)
            held = [block for block in touching if found.kinds[block] != BlockKind.FREE]
            assert held == [one.block for one in told.blocks]
            assert len(touching) - len(held) == told.free
        assert states == {"committed", "retiring", "reserved"}


@pytest.mark.parametrize(("order", "block_kib"), SHAPES)
def test_every_block_is_what_explain_says(device, scenes, order, block_kib):
    with scenes["full"](device, order, block_kib) as pool:
        found = picture_of(pool)
        holders, size = found.holders(), found.block_size
        for block, kind in enumerate(found.kinds):
            told = live_block(pool, block)
            if told is None:
                assert (kind, found.counts[block], found.cached[block]) == (BlockKind.FREE, 0, False)
                continue
            assert (found.counts[block], found.cached[block]) == (told.count, told.cached)
            places = holders.of(block)
            assert [found.tables.names[place] for place in places] == [one.row for one in told.holders]
            assert found.filled[block] == max((one.stop - one.start for one in told.holders), default=0)
            for place, one in zip(places, told.holders, strict=True):
                column = found.tables.held(place).tolist().index(block) + found.tables.dropped[place]
                assert column * size == one.start
            expected = BlockKind.IDLE if not told.count else BlockKind.OWN if told.holders else BlockKind.BY_ID
            assert kind == (BlockKind.SHARED if told.count > 1 else expected)
        assert {int(kind) for kind in found.kinds} == set(range(5))


@pytest.mark.parametrize(("order", "block_kib"), SHAPES)
def test_sequences_and_sums_are_the_pools(device, scenes, order, block_kib):
    with scenes["full"](device, order, block_kib) as pool:
        found, spent = picture_of(pool), spending_of(picture_of(pool))
        tables = found.tables
        assert tables.names.tolist() == sorted(sequence.row for sequence in pool.sequences)
        for sequence in pool.sequences:
            place = tables.names.tolist().index(sequence.row)
            assert tables.held(place).tolist() == sequence.held
            assert (tables.lengths[place], tables.dropped[place] * 4) == (sequence.length, sequence.dropped)
            partly = sequence.length % 4 and pool.count(sequence.held[-1]) > 1
            assert found.copies_next(place) == bool(partly)
        sizes = (found.reserved, found.committed, found.retiring, found.live)
        assert sizes == (pool.reserved, pool.committed, pool.retiring, pool.live)
        assert spent.total == pool.committed
        assert (spent.live, spent.retiring) == (pool.live, pool.retiring)
        assert spent.idle == pool.blocks_idle * pool.layout.block_bytes
        assert spent.by_id == 2 * pool.layout.block_bytes
        held = sum(pool.count(block) > 0 for block in range(len(found.counts))) * pool.layout.block_bytes
        assert spent.live + spent.unfilled + spent.by_id == held
        assert all(part >= 0 for part in (spent.unfilled, spent.free))


@pytest.mark.parametrize(("order", "block_kib"), SHAPES)
def test_kinds_of_rows(device, scenes, order, block_kib):
    with scenes["full"](device, order, block_kib) as pool:
        found = picture_of(pool)
        kinds = chunk_kinds(found)
        for chunk in range(pool.range.chunk_count):
            told = explain_chunk(pool, chunk)
            inside = RowKind.EMPTY
            if told.blocks:
                inside = RowKind.LIVE if any(one.count for one in told.blocks) else RowKind.CACHED
            expected = {"reserved": RowKind.FREE, "retiring": RowKind.RETIRING, "committed": inside}[told.state]
            assert kinds[told.plane, told.row] == expected


def test_a_picture_stays_what_it_was(device, scenes):
    with scenes["full"](device, "layer", 192) as pool:
        found = picture_of(pool)
        before = (found.counts.copy(), found.tables.blocks.copy(), found.committed)
        for sequence in pool.sequences:
            sequence.free()
        pool.trim(cache=True)
        assert np.array_equal(found.counts, before[0])
        assert np.array_equal(found.tables.blocks, before[1])
        assert found.committed == before[2]
        with pytest.raises(ValueError, match="read-only"):
            found.counts[0] = 7


def test_an_empty_pool_and_a_closed_one(device):
    layout = paged.KVLayout(paged.KVSpec(2, 1, 64, "float16"), 16)
    with paged.KVPool(device, layout, blocks=100, name="kv") as pool:
        found = picture_of(pool)
        assert (len(found.tables), found.committed, found.live, spending_of(found).total) == (0, 0, 0, 0)
        assert found.reserved == pool.reserved
        assert [(one.start, one.stop, one.free) for one in stretches_of(found)] == [(0, found.rows.count, False)]
    with pytest.raises(vmm.ClosedError, match="kv is closed and has no page table; take the picture before"):
        picture_of(pool)


def test_a_pool_that_sleeps(device, scenes):
    with scenes["full"](device, "layer", 192) as pool:
        pool.collect(wait=True)
        awake, residency = picture_of(pool), vmm.Residency(device)
        residency.add(pool.range, "kv")
        residency.sleep("kv", backup=False)
        found = picture_of(pool)
        assert (found.committed, found.asleep) == (0, awake.committed)
        assert np.array_equal(found.states == ChunkState.ASLEEP, awake.states == ChunkState.COMMITTED)
        assert not found.handles.any()
        assert spending_of(found) == spending_of(awake)
        assert set(np.unique(chunk_kinds(found))) == {RowKind.FREE, RowKind.ASLEEP}
        residency.wake("kv")
        assert picture_of(pool).asleep == 0


@pytest.mark.parametrize("order", ["block", "layer"])
def test_stretches_and_runs_of_handles_have_every_row_once(device, scenes, order):
    with scenes["full"](device, order, 2048) as pool:
        found = picture_of(pool)
        stretches = stretches_of(found)
        assert [one.start for one in stretches[1:]] == [one.stop for one in stretches[:-1]]
        assert (stretches[0].start, stretches[-1].stop) == (0, found.rows.count)
        for one in stretches:
            if one.free:
                assert not found.states[:, one.start : one.stop].any()
                assert len(one) >= 3
        for plane in range(found.planes):
            told, runs = {}, handle_runs(found, plane)
            for run, after in itertools.pairwise(runs):
                assert (run.stop, run.last + 1) != (after.start, after.handle)
            for run in runs:
                told |= {row: run.handle + row - run.start for row in range(run.start, run.stop)}
            assert told == {row: found.handles[plane, row] for row in np.flatnonzero(found.handles[plane])}


def test_ten_thousand_sequences(ten_thousand):
    found, tokens, blocks = ten_thousand
    assert (len(found.tables), int(found.tables.lengths.sum())) == (10_000, tokens)
    assert (int(found.filled.sum()), len(found.tables.blocks)) == (tokens, blocks)
    assert spending_of(found).total == found.committed >= blocks * found.block_bytes
