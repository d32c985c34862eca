"""What callers give that is no number, too much, or for a pool that is gone; and listeners that raise."""

import warnings

import numpy as np
import pytest

import paged
import vmm
from paged.row_memory import MOST_BLOCKS

MIB = 1 << 20
IDS = np.arange(64, dtype=np.int32)


@pytest.fixture
def pool(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=32 * MIB, prefix_cache=True, name="kv") as made:
        yield made
        made.check()


# -- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [2.5, "4", float("nan")])
@pytest.mark.parametrize("name", ["blocks", "reserve_rows"])
def test_a_pool_takes_whole_numbers(rules, make_layout, name, wrong):
    with pytest.raises(TypeError, match=f"{name} must be a whole number, not {wrong!r}"):
        paged.KVPool(rules, make_layout(512), **{"blocks": 4, name: wrong})


def test_numpys_numbers_make_a_pool_and_ask_it(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), blocks=np.uint8(200), reserve_rows=np.uint8(255)) as pool:
        assert pool.blocks_total == 200
        assert pool.can_allocate(np.uint8(200)) and not pool.can_allocate(np.uint8(201))
        assert pool.shortage(np.uint8(255)).asked == 255
        sequence = pool.sequence()
        sequence.append(np.int8(100))
        assert sequence.drop_before(np.int8(100)) == 6
        pool.check()


def test_more_blocks_than_a_table_can_name_are_refused(rules, make_layout):
    with pytest.raises(ValueError, match=f"at most {MOST_BLOCKS}, .* not {MOST_BLOCKS + 1}"):
        paged.KVPool(rules, make_layout(512), blocks=MOST_BLOCKS + 1)


@pytest.mark.parametrize("wrong", [2.5, 0.0, float("nan"), "1", None])
def test_what_is_no_number_is_named(pool, wrong):
    sequence = pool.sequence()
    asked = [
        pool.allocate,
        pool.allocate_array,
        pool.can_allocate,
        pool.shortage,
        sequence.drop_before,
        lambda value: pool.sequence(IDS, salt=value),
    ]
    for question in asked:
        with pytest.raises((TypeError, ValueError), match=f"(whole number|number of tokens).*, not {wrong!r}"):
            question(wrong)
    if wrong is not None:
        with pytest.raises(TypeError, match="most must be a whole number"):
            pool.compact(most=wrong)
    assert (sequence.length, pool.sequences) == (0, [sequence])


def test_compaction_takes_no_negative_number(pool):
    with pytest.raises(vmm.RangeError, match="cannot move -1 blocks"):
        pool.compact(most=-1)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_a_place_may_be_numpys_number(pool, kind):
    zero = kind(0)
    assert pool.address(block=kind(3), layer=zero, head=zero, slot=zero, d=zero) == pool.address(block=3)
    for wrong in (0.0, None, "0"):
        with pytest.raises(vmm.RangeError, match=f"layer {wrong} is not there"):
            pool.kv(wrong)


def test_tables_of_numpys_sizes(device, make_layout):
    with paged.KVPool(device, make_layout(64), budget=8 * MIB) as pool:
        with paged.DeviceTables(paged.Batch(pool), np.uint8(200), np.uint8(100)) as tables:
            assert tables.blocks.shape == (200, 100)
        with pytest.raises(TypeError, match=r"max_blocks must be a whole number, not 2\.5"):
            paged.DeviceTables(paged.Batch(pool), 4, 2.5)


def test_a_range_is_a_prompt(pool):
    first = pool.sequence(range(64))
    first.append(range(64))
    first.free()
    assert pool.sequence(range(64)).length == 48


def test_what_is_given_back_must_be_a_chunk(rules):
    with vmm.ChunkSupply(rules, budget=8 * MIB) as supply:
        chunks = supply.take(np.uint8(2))
        with pytest.raises(vmm.StateError, match="None was given back"):
            supply.give([chunks[0], None])
        assert supply.in_use == 4 * MIB
        supply.give(chunks)


# -- too much -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [10**6, 10**9, 10**11, 2**62, 10**30])
def test_an_append_that_is_refused_leaves_the_table_as_narrow_as_it_was(pool, tokens):
    sequence = pool.sequence()
    sequence.append(5)
    fork = sequence.fork()
    before = pool.table.blocks.shape
    for one in (sequence, fork):
        with pytest.raises(vmm.OutOfMemoryError, match="blocks asked") as caught:
            one.append(tokens)
        assert caught.value.report.asked > 16
    assert pool.table.blocks.shape == before
    assert (sequence.length, pool.tokens) == (5, 5)


# -- copies ---------------------------------------------------------------------------------------------------------


def test_a_copy_stays_among_blocks_that_have_memory(pool):
    block = pool.allocate(1)[0]
    for wrong, error, message in (
        (-1, vmm.RangeError, "block -1 is unknown"),
        (10**6, vmm.RangeError, "block 1000000 is unknown"),
        (1.5, vmm.RangeError, "1.5 is no block id"),
        (100, vmm.StateError, "block 100 has no memory"),
        (block, vmm.StateError, "onto itself"),
    ):
        for pair in ((block, wrong), (wrong, block)):
            with pytest.raises(error, match=message):
                pool.copy_block(*pair)
    pool.free([block])


# -- pools that are gone ----------------------------------------------------------------------------------------------


def test_a_closed_pool_has_nothing_to_give(rules, make_layout):
    pool = paged.KVPool(rules, make_layout(512), budget=32 * MIB, prefix_cache=True)
    pool.sequence().append(40)
    pool.close()
    assert (pool.blocks_free, pool.can_allocate(1), pool.can_allocate(0)) == (0, False, False)
    for change in (
        lambda: pool.fork([0]),
        lambda: pool.set_budget(8 * MIB),
        lambda: pool.shortage(1),
        lambda: pool.copy_block(0, 1),
        lambda: pool.explain(pool.range.base),
    ):
        with pytest.raises(vmm.ClosedError, match="closed; make a new pool"):
            change()
    pool.check()


def test_a_sleeping_pool_has_nothing_to_give_now(pool):
    pool.free(pool.allocate(1))
    residency = vmm.Residency(pool.device)
    residency.add(pool.range, "kv")
    residency.sleep("kv", backup=True)
    assert (pool.blocks_free, pool.can_allocate(1)) == (0, False)
    with pytest.raises(vmm.StateError, match="asleep"):
        pool.shortage(1)
    residency.wake("kv")
    assert pool.can_allocate(1)


def test_a_pool_that_its_supply_refuses_leaves_no_range(make_layout):
    api = vmm.HostDriver(memory="64 MiB", backing="none")
    with vmm.Device(driver=api) as device, vmm.ChunkSupply(device, budget=8 * MIB) as supply:
        share = supply.share("mine")
        share.close()
        with pytest.raises(vmm.ClosedError, match="share 'mine' is closed"):
            paged.KVPool(device, make_layout(512), budget=8 * MIB, supply=share)
        assert api.live().reservations == 0


# -- listeners ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_error", [False, True])
@pytest.mark.parametrize("fails_at", range(1, 12))
@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_a_listener_that_raises_stops_nothing(rules, make_layout, fails_at, as_error, kind):
    told = []

    def listen(event):
        told.append(event)
        if len(told) >= fails_at:
            raise kind("a listener's own")

    with warnings.catch_warnings(record=not as_error) as heard:
        warnings.simplefilter("error" if as_error else "always")
        with paged.KVPool(rules, make_layout(512), budget=8 * MIB, prefix_cache=True, cache_events=listen) as pool:
            for turn in range(8):
                sequence = pool.sequence(IDS + turn % 5 * 100)
                sequence.append(IDS[sequence.length :] + turn % 5 * 100)
                pool.check()
                sequence.free()
                pool.check()
            assert len(told) >= 12
            assert isinstance(pool.cache_events_error, kind)
    if heard is not None:
        assert [str(one.message)[:31] for one in heard] == ["the listener of cache events ra"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix_cache": True, "cache_events": 5}, "cache_events must be a function, not 5"),
        ({"cache_events": print}, "cache_events needs prefix_cache=True"),
    ],
)
def test_a_listener_that_would_hear_nothing_is_refused(rules, make_layout, options, message):
    with pytest.raises(ValueError, match=message):
        paged.KVPool(rules, make_layout(512), budget=8 * MIB, **options)
