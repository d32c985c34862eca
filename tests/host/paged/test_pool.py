"""KVPool: rows are committed when blocks need them and given back when they are empty; refusals change nothing."""

import numpy as np
import pytest

import paged
import vmm

STREAMS = ("eager", "deferred")

MIB = 1 << 20


@pytest.mark.parametrize("order", ["block", "layer"])
def test_rows_come_with_blocks_and_go_with_them(rules, make_layout, order):
    layout = make_layout(512, order=order, layers=2)  # four blocks a row
    with paged.KVPool(rules, layout, budget=8 * layout.row_bytes) as pool:
        row = {"block": 2 * MIB, "layer": 4 * MIB}[order]
        assert (pool.committed, pool.live, pool.blocks_total, pool.blocks_free) == (0, 0, 32, 32)
        assert pool.reserved == 2 * 8 * row  # twice as many blocks have addresses
        first = pool.allocate(1)
        assert pool.committed == row
        rest = pool.allocate(4)
        assert pool.committed == 2 * row
        pool.check()
        pool.free(rest)
        assert pool.committed == row
        pool.free(first)
        assert pool.committed == 0
        pool.check()


def test_an_append_inside_committed_memory_takes_no_new_row(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=16 * MIB) as pool:
        sequence = pool.sequence()
        for length in range(1, 130):
            slots = sequence.append(1)
            assert slots.tolist() == [sequence.table[(length - 1) // 16] * 16 + (length - 1) % 16]
            assert pool.committed == -(-length // 64) * 2 * MIB
            assert pool.live == length * pool.layout.spec.token_bytes
            pool.check()


def test_reserve_rows_stay_mapped(rules, make_layout):
    with paged.KVPool(rules, make_layout(2048), budget=16 * MIB, reserve_rows=2) as pool:
        blocks = pool.allocate(6)
        pool.free(blocks)
        assert (pool.committed, pool.empty_rows) == (4 * MIB, 2)
        assert pool.range.committed_chunks() == [0, 1]  # the lowest stay
        pool.check()
        assert sorted(pool.allocate(2)) == [0, 1]
        assert pool.committed == 4 * MIB
        pool.free([0, 1])
        assert pool.trim() == 4 * MIB
        assert pool.committed == 0
        pool.check()


def test_prealloc_commits_everything_once(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=8 * MIB, prealloc=True) as pool:
        assert (pool.reserved, pool.committed, pool.blocks_free) == (8 * MIB, 8 * MIB, 16)
        blocks = pool.allocate(16)
        assert not pool.can_allocate(1)
        pool.free(blocks)
        assert (pool.committed, pool.trim()) == (8 * MIB, 0)
        pool.check()


def test_the_budget_binds_before_the_addresses_do(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget="5 MiB") as pool:  # two whole rows
        assert (pool.blocks_total, pool.reserved) == (8, 8 * MIB)
        assert pool.can_allocate(8)
        assert not pool.can_allocate(9)
        with pytest.raises(
            vmm.OutOfMemoryError,
            match="9 blocks asked, 8 can be had: budget; 0 B of 4 MiB committed; raise the budget to 6 MiB",
        ):
            pool.allocate(9)
        pool.allocate(8)
        pool.check()


def test_blocks_without_a_budget(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), blocks=6) as pool:
        assert (pool.blocks_total, pool.reserved) == (6, 4 * MIB)
        pool.allocate(6)
        assert not pool.can_allocate(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a pool needs blocks=, budget= or both"),
        ({"blocks": 0}, "blocks must be at least 1, not 0"),
        ({"budget": "1 MiB"}, "budget 1 MiB holds no block of 524288 bytes; give 2 MiB"),
        ({"budget": "many"}, "budget 'many' is not a size"),
        ({"blocks": 4, "reserve_rows": -1}, "reserve_rows must be 0 or more, not -1"),
    ],
)
def test_a_wrong_option_is_named(rules, make_layout, options, message):
    with pytest.raises(ValueError, match=message):
        paged.KVPool(rules, make_layout(512), **options)
    assert rules.driver.api.live().reservations == 0


def test_a_supply_with_another_chunk_is_refused(rules, make_layout):
    with vmm.ChunkSupply(rules, "4 MiB") as supply, pytest.raises(ValueError, match="is not the supply's of 4194304"):
        paged.KVPool(rules, make_layout(512), blocks=4, supply=supply)


def test_two_pools_share_one_supply(rules, make_layout):
    with vmm.ChunkSupply(rules, budget="8 MiB") as supply:
        one = paged.KVPool(rules, make_layout(2048), blocks=8, supply=supply)
        other = paged.KVPool(rules, make_layout(512), blocks=64, supply=supply)
        with one, other:
            assert (one.blocks_free, other.blocks_free) == (4, 16)
            blocks = one.allocate(3)
            assert (one.blocks_free, other.blocks_free) == (1, 4)
            assert not other.can_allocate(5)
            with pytest.raises(vmm.OutOfMemoryError, match="5 blocks asked, 4 can be had"):
                other.allocate(5)
            other.check()
            one.free(blocks)
            assert other.blocks_free == 16
            other.allocate(16)
            assert not one.can_allocate(1)


def test_case_5_memory_once_given_back_is_used_again(make_layout):
    """rmm#1957: limit 1024, map 256, free them, ask 1024: only 768 are created anew."""
    recorder = vmm.Recorder()
    api = vmm.HostDriver(memory="4 GiB", backing="none")
    with vmm.Device(driver=api, recorder=recorder) as device:
        unit = 2 * MIB
        with vmm.ChunkSupply(device, budget=1024 * unit, cache=1024 * unit) as supply:
            with paged.KVPool(device, make_layout(2048), blocks=1024, supply=supply) as pool:
                pool.free(pool.allocate(256))
                recorder.clear()
                blocks = pool.allocate(1024)
                assert recorder.counts()["cuMemCreate"] == 768
                pool.free(blocks)
            with paged.KVPool(device, make_layout(2048), blocks=16, budget=8 * unit, supply=supply) as pool:
                first, four = pool.allocate(1), pool.allocate(4)
                pool.free(four)
                second = pool.allocate(1)
                pool.free(first)
                assert len(pool.allocate(1) + pool.allocate(4)) == 5
                assert second not in (first, four)


def test_case_8_not_now_maps_nothing(rules, make_layout, picture):
    with paged.KVPool(rules, make_layout(512), budget=8 * MIB) as pool:
        pool.allocate(10)
        before = picture(pool)
        assert not pool.can_allocate(7)
        with pytest.raises(vmm.OutOfMemoryError):
            pool.allocate(7)
        assert picture(pool) == before
        assert len(pool.allocate(6)) == 6
        pool.check()


@pytest.mark.parametrize(("every", "rows"), [(1, 4), (2, 8), (16, 64)])
def test_case_12_kept_blocks_keep_their_rows(rules, make_layout, every, rows):
    """kvcached#359: 8192 blocks of 16 KiB over 64 chunks; every s-th of the first 512 s is kept."""
    with paged.KVPool(rules, make_layout(16), budget=128 * MIB) as pool:
        blocks = pool.allocate(8192)
        assert blocks == list(range(8192))
        kept = set(range(0, 512 * every, every))
        pool.free([block for block in blocks if block not in kept])
        assert pool.committed == rows * 2 * MIB
        pool.check()


def test_case_11_straddling_blocks_fill_their_chunks(rules, make_layout):
    with paged.KVPool(rules, make_layout(80), budget=64 * 2 * MIB) as pool:
        assert (pool.blocks_total, pool.blocks_free) == (1638, 1638)
        pool.allocate(1638)
        assert pool.committed == 64 * 2 * MIB
        assert not pool.can_allocate(1)
        pool.check()


def test_claim_takes_the_very_blocks(rules, make_layout, picture):
    with paged.KVPool(rules, make_layout(512), blocks=128) as pool:
        pool.claim([7, 42, 9, 103])
        assert pool.range.committed_chunks() == [1, 2, 10, 25]
        pool.check()
        before = picture(pool)
        with pytest.raises(vmm.StateError, match="block 9 is held already"):
            pool.claim([50, 9])
        with pytest.raises(vmm.RangeError, match="block 128 is unknown"):
            pool.claim([50, 128])
        assert picture(pool) == before
    with paged.KVPool(rules, make_layout(512), blocks=128, budget=4 * MIB) as pool:
        with pytest.raises(vmm.OutOfMemoryError, match="3 more rows asked, 2 can be had"):
            pool.claim([0, 50, 100])
        assert pool.committed == 0


def test_memory_that_an_array_views_is_not_given_back(device, make_layout, picture):
    with paged.KVPool(device, make_layout(512), budget=8 * MIB) as pool:
        blocks = pool.allocate(6)
        array = pool.view(blocks[5], 0)
        array[...] = 1
        before = picture(pool)
        with pytest.raises(vmm.StateError, match="an array still views them"):
            pool.free(blocks)
        assert picture(pool) == before
        pool.check()
        del array
        pool.free(blocks)
        pool.collect(wait=True)
        assert pool.committed == 0


def test_a_pinned_row_is_not_given_back(device, make_layout, picture):
    with paged.KVPool(device, make_layout(512), budget=8 * MIB) as pool:
        blocks = pool.allocate(4)
        with pool.range.pin(0, "2 MiB", "a captured graph"):
            before = picture(pool)
            with pytest.raises(vmm.StateError, match="pinned for a captured graph"):
                pool.free(blocks)
            assert picture(pool) == before
        pool.free(blocks)


@pytest.mark.parametrize("order", ["block", "layer"])
def test_views_are_the_memory_at_the_address(device, make_layout, order):
    with paged.KVPool(device, make_layout(512, order=order, layers=2), budget=32 * MIB) as pool:
        pool.allocate(6)
        pool.view(5, 1, component=1)[...] = 7
        raw = pool.range.array("float32", 1, pool.address(block=5, layer=1, component=1) - pool.range.base)
        assert raw[0] == 7
        del raw
        assert not np.any(pool.view(5, 0))
        assert not np.any(pool.view(4, 1, component=1))


@pytest.mark.parametrize("order", ["block", "layer"])
def test_copy_block_moves_every_layer(device, make_layout, order):
    with paged.KVPool(device, make_layout(512, order=order, layers=2), budget=32 * MIB) as pool:
        pool.allocate(6)
        for layer in range(2):
            for component in range(2):
                pool.view(1, layer, component)[...] = 10 * layer + component
        pool.copy_block(1, 5)
        device.synchronize()
        for layer in range(2):
            for component in range(2):
                assert np.all(pool.view(5, layer, component) == 10 * layer + component)
                assert not np.any(pool.view(4, layer, component))


def test_a_closed_pool_says_so(rules, make_layout):
    pool = paged.KVPool(rules, make_layout(512), budget=8 * MIB)
    pool.close()
    pool.close()
    with pytest.raises(vmm.ClosedError, match="kv is closed"):
        pool.allocate(1)


def test_a_pool_belongs_to_one_thread_at_a_time(rules, make_layout, monkeypatch):
    """A second thread that comes while a row is being committed is told so, and the first one is not disturbed."""
    with paged.KVPool(rules, make_layout(512), budget=8 * MIB) as pool:
        blocks = pool.allocate(1)
        commit, told = pool.range.commit, []

        def slow(chunks):
            for act in (lambda: pool.allocate(1), lambda: pool.free(blocks), pool.trim):
                with pytest.raises(vmm.StateError, match="being changed by another thread") as info:
                    act()
                told.append(info.value)
            commit(chunks)

        monkeypatch.setattr(pool.range, "commit", slow)
        assert len(pool.allocate(8)) == 8
        assert len(told) == 3
        pool.check()
