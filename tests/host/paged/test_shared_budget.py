"""Pools of several models on one budget: memory flows to where it is needed, and nobody's working set is taken."""

import random
import threading

import numpy as np
import pytest

import paged
import vmm

STREAMS = ("eager", "deferred")
CHUNK = 2 << 20
BLOCK = 16  # tokens


@pytest.fixture
def supply(device):
    with vmm.ChunkSupply(device, budget=8 * CHUNK) as made:
        yield made


def pool_of(supply, layout, name, **options):
    return paged.KVPool(supply.device, layout, blocks=64, supply=supply, name=name, **options)


def prompt(seed, blocks):
    return np.random.default_rng(seed).integers(0, 1000, blocks * BLOCK + 1).astype(np.int32)


def served(pool, ids):
    """A request from its start to its end; its whole blocks stay in the prefix cache."""
    sequence = pool.sequence(ids)
    found = sequence.length
    sequence.append(ids[found:])
    sequence.free()
    return found


@pytest.mark.parametrize("shared", [True, False])
def test_idle_blocks_of_one_pool_go_when_another_needs_their_memory(supply, make_layout, shared):
    """With shares, and of two pools on one plain supply."""
    layout = make_layout(1024)  # two blocks a row
    a, b = (supply.share("a"), supply.share("b")) if shared else (supply, supply)
    with pool_of(a, layout, "one", prefix_cache=True) as one, pool_of(b, layout, "two") as two:
        old, new = prompt(1, 6), prompt(2, 6)
        served(one, old)
        served(one, new)
        working = one.sequence()
        working.append(4 * BLOCK)
        for block in working.table:
            one.view(block, 0)[...] = block + 1
        assert (one.blocks_idle, one.range.committed, supply.available) == (12, 8 * CHUNK, 0)
        assert (two.blocks_free, one.spare(cached=False), one.spare(cached=True)) == (12, 0, 6)
        other = two.sequence()
        other.append(4 * BLOCK)
        one.check()
        two.check()
        assert one.range.committed + two.range.committed <= 8 * CHUNK
        assert served(one, new) == 6 * BLOCK  # what was used longest ago went first
        other.append(2 * BLOCK)
        assert all(np.all(one.view(block, 0) == block + 1) for block in working.table)
        other.append(6 * BLOCK)
        assert (one.range.committed, one.blocks_idle, two.range.committed) == (2 * CHUNK, 0, 6 * CHUNK)
        one.check()
        before = one.committed, other.table
        assert not other.can_append(1)
        with pytest.raises(vmm.OutOfMemoryError):
            other.append(1)
        assert (one.committed, other.table) == before


def test_rows_in_reserve_go_before_anything_cached(supply, make_layout):
    layout = make_layout(1024)
    with (
        supply.share("a") as a,
        supply.share("b") as b,
        pool_of(a, layout, "one", prefix_cache=True, reserve_rows=3) as one,
        pool_of(b, layout, "two") as two,
    ):
        served(one, prompt(1, 8))
        sequence = one.sequence()
        sequence.append(6 * BLOCK)
        sequence.free()
        assert (one.empty_rows, one.blocks_idle, one.range.committed) == (3, 8, 7 * CHUNK)
        two.allocate(8)
        assert (one.empty_rows, one.blocks_idle) == (0, 8)
        assert one.sequence(prompt(1, 8)).length == 8 * BLOCK
        for pool in (one, two):
            pool.check()


def test_own_idle_blocks_go_before_others_are_asked(supply, make_layout):
    layout = make_layout(1024)
    with (
        pool_of(supply, layout, "one", prefix_cache=True) as one,
        pool_of(supply, layout, "two", prefix_cache=True) as two,
    ):
        served(one, prompt(1, 7))
        served(two, prompt(2, 7))
        assert (one.blocks_idle, two.blocks_idle, supply.available) == (7, 7, 0)
        two.allocate(8)
        assert (one.blocks_idle, two.blocks_idle) == (7, 0)
        two.allocate(4)
        assert one.range.committed < 4 * CHUNK


def test_a_floor_keeps_what_is_cached_and_a_ceiling_what_is_not(supply, make_layout):
    layout = make_layout(1024)
    with (
        supply.share("a", floor=5 * CHUNK) as a,
        supply.share("b", ceiling=4 * CHUNK) as b,
        pool_of(a, layout, "one", prefix_cache=True) as one,
        pool_of(b, layout, "two") as two,
    ):
        served(one, prompt(1, 14))
        one.collect(wait=True)
        assert one.range.committed == 7 * CHUNK
        assert two.blocks_free == 6
        held = two.allocate(6)
        assert one.range.committed == 5 * CHUNK
        assert not two.can_allocate(1)
        with pytest.raises(vmm.OutOfMemoryError, match="1 block asked, 0 can be had"):
            two.allocate(1)
        two.free(held)
        one.trim(cache=True)
        one.range.collect(wait=True)
        assert two.blocks_free == 6  # five are promised to the other
        a.set_bounds(floor=0)
        assert two.blocks_free == 8  # the ceiling


def test_what_an_array_or_a_pin_relies_on_is_not_spared(supply, make_layout):
    layout = make_layout(1024)
    with pool_of(supply, layout, "one", prefix_cache=True) as one, pool_of(supply, layout, "two") as two:
        served(one, prompt(1, 14))
        whole = one.spare(cached=True)
        with one.range.pin(0, CHUNK, "a graph"):
            assert one.spare(cached=True) == whole - 1
            assert two.blocks_free == 2 * (whole - 1) + 2  # and a row that nobody has
            two.allocate(two.blocks_free)
            assert one.range.is_committed(0)
        one.check()


def test_a_pool_that_sleeps_spares_nothing_and_its_floor_lets_it_wake(supply, make_layout):
    layout = make_layout(1024)
    with (
        supply.share("a", floor=4 * CHUNK) as a,
        supply.share("b") as b,
        pool_of(a, layout, "one", prefix_cache=True) as one,
        pool_of(b, layout, "two") as two,
    ):
        residency = vmm.Residency(supply.device)
        residency.add(one.range, "kv")
        held = one.sequence()
        held.append(6 * BLOCK)
        for block in held.table:
            one.view(block, 0)[...] = block + 1
        served(one, prompt(1, 2))
        assert one.spare(cached=True) == 1
        residency.sleep("kv", backup=True)
        assert (one.spare(cached=True), a.in_use, two.blocks_free) == (0, 0, 8)
        two.allocate(8)
        residency.wake("kv")
        assert all(np.all(one.view(block, 0) == block + 1) for block in held.table)
        one.check()


def test_spared_rows_under_queued_work_wait_for_it(supply, make_layout):
    layout = make_layout(1024)
    with pool_of(supply, layout, "one", prefix_cache=True) as one, pool_of(supply, layout, "two") as two:
        served(one, prompt(1, 14))
        device = supply.device
        with device.current():
            device.driver.fill_async(one.address(block=0), 5, CHUNK // 2)
        two.allocate(12)  # a missing wait would fault
        device.synchronize()
        block = two.sequence()
        block.append(1)
        assert not np.any(two.view(block.table[0], 0))  # what the other left is zeroed


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [("block", 1024, 1), ("layer", 512, 2), ("block", 768, 1), ("layer", 3072, 2)])
def test_case_6_what_is_free_is_exact_for_several_pools_on_one_budget(rules, make_layout, seed, kind):
    """rmm#93: n blocks are granted, n + 1 refused and nothing has changed, with prefix caches, reserves and floors."""
    order, block_kib, layers = kind
    layout, draw = make_layout(block_kib, order=order, layers=layers), random.Random(f"{kind}{seed}")
    supply = vmm.ChunkSupply(rules, budget=24 * CHUNK)
    shares = [supply.share("a", floor=draw.choice([0, 5]) * CHUNK), supply.share("b", ceiling=16 * CHUNK), supply]
    pools = [
        pool_of(share, layout, f"{number}", prefix_cache=number < 2, reserve_rows=draw.choice([0, 2]))
        for number, share in enumerate(shares)
    ]
    held = [[] for _ in pools]
    exact = moved = 0
    for step in range(120):
        which = draw.randrange(3)
        pool = pools[which]
        others = [one.committed for one in pools if one is not pool]
        most = pool.blocks_free
        assert pool.can_allocate(most)
        assert not pool.can_allocate(most + 1)
        with pytest.raises(vmm.OutOfMemoryError):
            pool.allocate(most + 1)
        assert pool.blocks_free == most
        if draw.random() < 0.4:
            held[which].append(pool.allocate(most if draw.random() < 0.5 else draw.randint(0, most)))
            exact += 1
            moved += [one.committed for one in pools if one is not pool] != others
        elif which < 2 and pool.blocks_free > 6:
            served(pool, prompt(draw.randint(0, 5), draw.randint(1, 5)))
        while held[which] and draw.random() < 0.5:
            pool.free(held[which].pop(draw.randrange(len(held[which]))))
        for one in pools:
            one.check()
        assert sum(one.in_use for one in supply.holders()) == sum(one.committed for one in pools)
        assert supply.in_use <= 24 * CHUNK, step
    assert exact > 20
    assert moved
    for pool in pools:
        pool.close()
    for share in shares:
        share.close()


def test_two_threads_that_serve_a_pool_each_take_from_each_other(rules, make_layout):
    layout = make_layout(1024)
    supply = vmm.ChunkSupply(rules, budget=16 * CHUNK)
    pools = [pool_of(supply.share(name), layout, name, prefix_cache=True) for name in ("a", "b")]
    errors, served_by = [], [0, 0]

    def serve(which):
        draw, pool = random.Random(which), pools[which]
        try:
            for _ in range(150):
                ids = prompt(draw.randint(0, 9), draw.randint(1, 9))
                try:
                    served(pool, ids)
                    served_by[which] += 1
                except vmm.OutOfMemoryError:
                    for left in pool.sequences:
                        left.free()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert min(served_by) > 50  # how often both want the same memory at once is up to the threads
    for pool in pools:
        pool.check()
        pool.close()
    assert supply.in_use == 0
    supply.close()


def test_two_models_in_opposite_phase_need_less_than_two_fixed_halves(rules, make_layout):
    """Each needs 12 rows at its peak and one at its low; together 13, which fixed halves would need 24 for."""
    layout = make_layout(1024)
    peaks = []
    with vmm.ChunkSupply(rules, budget=13 * CHUNK) as supply:
        pools = [pool_of(supply.share(name, floor=CHUNK), layout, name, prefix_cache=True) for name in ("a", "b")]
        for phase in range(6):
            busy, quiet = pools[phase % 2], pools[1 - phase % 2]
            small = quiet.sequence()
            small.append(2 * BLOCK)
            running = [busy.sequence(ids) for ids in (prompt(3 * phase + number, 7) for number in range(3))]
            for sequence in running:
                sequence.append(7 * BLOCK)
            peaks.append(max(pool.block_pool.used for pool in pools))
            for sequence in [*running, small]:
                sequence.free()
            for pool in pools:
                pool.check()
        assert min(peaks) >= 21
        assert 2 * 12 * CHUNK / supply.budget > 1.6
        for pool in pools:
            pool.close()
