"""What goes first when room is wanted: the order of last use, rows, or both; deepest blocks first; salts forgotten."""

import numpy as np
import pytest

from paged import BlockPool, Rows
from paged.prefix.cache_events import AllBlocksCleared, BlocksHit, BlocksRemoved, BlocksStored
from paged.prefix.cache_invariants import check_prefix
from paged.prefix.cached_blocks import CachedBlocks
from paged.prefix.known_tokens import KnownTokens
from vmm import StateError

SIZE = 4


def cached(pool, chains, order="lru", **options):
    """A cache in which the blocks of each chain came to rest in turn; chain number n has tokens that begin with n."""
    prefix = CachedBlocks(pool, SIZE, order=order, **options)
    for number, chain in enumerate(chains):
        publish(prefix, chain, number)
        rest(prefix, chain)
    return prefix


def publish(prefix, chain, number, salt=0):
    tokens = np.arange(len(chain) * SIZE, dtype=np.int32)
    tokens[0] = 1000 + number
    prefix.publish(KnownTokens(tokens, salt), chain, len(tokens))


def rest(prefix, chain):
    prefix.pool.free(chain)
    prefix.rest(chain)
    check_prefix(prefix, ())


def filled(blocks, stride, chunk):
    """A pool all of whose blocks are held."""
    pool = BlockPool(Rows(blocks, stride, chunk))
    pool.allocate(blocks)
    return pool


@pytest.mark.parametrize(("order", "rows"), [("row", 32), ("lru", 0), ("blend", 32)])
def test_case_12_half_of_what_is_idle_frees_half_of_the_rows_or_none(order, rows):
    """kvcached#359: every 16th of 8,192 blocks stays, eight in each of 64 rows, their ages alternating across rows."""
    pool = filled(8192, 16 << 10, 2 << 20)
    stay = [16 * (place % 64 * 8 + place // 64) for place in range(512)]  # one of each row in turn
    pool.free([block for block in range(8192) if block % 16])
    prefix = cached(pool, [[block] for block in stay], order)
    assert (len(pool.empty), prefix.cache.idle_count) == (0, 512)
    prefix.evict(256)
    assert (len(pool.empty), prefix.cache.idle_count) == (rows, 256)
    pool.check()
    check_prefix(prefix, ())


def test_rows_that_a_held_block_keeps_go_last():
    pool = filled(12, 4, 16)
    prefix = cached(pool, [[0], [1], [2], [4], [5], [6], [7], [8], [9]], "row")
    prefix.evict(4)  # blocks 3, 10 and 11 are held
    assert list(pool.empty) == [1]
    check_prefix(prefix, ())


def test_of_free_rows_the_one_with_the_fewest_blocks_goes_first_then_the_one_unused_for_longest():
    pool = filled(12, 4, 16)
    pool.free([1, 2, 3, 6, 7, 10, 11])  # rows 0, 1 and 2 keep 1, 2 and 2 blocks
    prefix = cached(pool, [[8], [4], [9], [5], [0]], "row")
    assert prefix._eviction._by_row(prefix.cache.idle_blocks.listed()).tolist() == [0, 8, 9, 4, 5]
    for row in (0, 2, 1):
        prefix.evict(1 if not row else 2)
        assert row in pool.empty


@pytest.mark.parametrize("order", ["lru", "row", "blend"])
def test_the_deepest_of_a_chain_goes_first_whatever_its_row(order):
    """The chain goes through rows from the emptiest to the fullest: by rows alone its first block would go first."""
    pool = filled(16, 4, 16)
    pool.free([1, 2, 3, 6, 7, 11])
    prefix = cached(pool, [[0, 4, 8, 12], [5, 9, 13, 10, 14, 15]], order)
    gone = []
    for _ in range(10):
        before = set(prefix.cache.idle)
        prefix.evict(1)
        gone += before - set(prefix.cache.idle)
        check_prefix(prefix, ())
    for chain in ([0, 4, 8, 12], [5, 9, 13, 10, 14, 15]):
        assert [block for block in gone if block in chain] == chain[::-1]


@pytest.mark.parametrize("order", ["row", "blend"])
def test_the_deepest_goes_first_though_those_before_it_came_to_rest_earlier(order):
    """As where a sliding window gives up the first blocks of a sequence one by one."""
    prefix = CachedBlocks(filled(8, 4, 16), SIZE, order=order)
    publish(prefix, [0, 1, 2, 3], 0)
    for block in range(4):
        prefix.pool.free([block])
        prefix.rest([block])
    for left in ([0, 1, 2], [0, 1], [0], []):
        prefix.evict(1)
        assert prefix.cache.idle == left


def test_a_blend_spares_what_was_used_lately():
    pool = filled(16, 4, 16)
    pool.free([1, 2, 3])  # row 0 would be the first to come free, but block 0 was used last
    chains = [[block] for block in (4, 8, 5, 9, 6, 10, 7, 11, 12, 13, 14, 15, 0)]
    prefix = cached(pool, chains, "blend")
    prefix.evict(4)
    assert 0 in prefix.cache.idle
    other = filled(16, 4, 16)
    other.free([1, 2, 3])
    prefix = cached(other, chains, "row")
    prefix.evict(1)
    assert 0 not in prefix.cache.idle


def test_what_is_used_again_is_passed_over():
    pool = filled(64, 4, 16)
    prefix = cached(pool, [[block] for block in range(64)], "row")
    prefix.evict(1)
    chosen = prefix._eviction._chosen[0].tolist()
    assert len(chosen) == 3  # a sixteenth, less the one that went
    kept = chosen[0]
    tokens = np.array([1000 + kept, 1, 2, 3, 0], np.int32)
    assert prefix.hit(tokens, 0)[0].tolist() == [kept]
    prefix.evict(63 - 1)
    assert (prefix.cache.idle_count, kept in prefix.cache) == (0, True)
    check_prefix(prefix, (kept,))


def test_an_idle_block_that_is_forked_twice_at_once_was_idle_once():
    pool = filled(4, 4, 16)
    prefix = cached(pool, [[0, 1]])
    pool.fork([0, 0, 1])
    assert prefix.cache.use([0, 0, 1]) == 2
    check_prefix(prefix, (0, 1))
    pool.free([0, 0, 1])
    prefix.rest([0, 0, 1])
    check_prefix(prefix, ())
    assert prefix.cache.idle == [1, 0]


@pytest.mark.parametrize("order", ["lru", "row", "blend"])
@pytest.mark.parametrize("wrong", [-1, 4])
def test_an_eviction_is_exact_or_refused(order, wrong):
    pool = filled(8, 4, 16)
    prefix = cached(pool, [[0, 1, 2]], order)
    with pytest.raises(StateError, match=f"{wrong} blocks are to be evicted, 3 are idle"):
        prefix.evict(wrong)
    assert (prefix.cache.idle_count, pool.used) == (3, 8)
    prefix.evict(3)
    assert (prefix.cache.idle_count, pool.used) == (0, 5)


def test_an_order_that_is_none_is_named():
    with pytest.raises(ValueError, match="order must be one of lru, row, blend, not 'fifo'"):
        CachedBlocks(BlockPool(Rows(4, 4, 16)), SIZE, order="fifo")


def test_salts_are_forgotten_with_their_last_block():
    pool = filled(64, 4, 16)
    prefix = CachedBlocks(pool, SIZE)
    for salt in range(30):
        publish(prefix, [2 * salt, 2 * salt + 1], 0, salt)
    assert len(prefix.cache.chains.roots) == 30
    for salt in range(30):
        rest(prefix, [2 * salt, 2 * salt + 1])
    prefix.evict(3)  # both blocks of salt 0, and the second of salt 1
    assert len(prefix.cache.chains.roots) == 29
    prefix.evict(1)
    assert len(prefix.cache.chains.roots) == 28
    assert prefix.hit(np.array([1000, 1, 2, 3, 4], np.int32), 1)[0].tolist() == []
    assert prefix.hit(np.array([1000, 1, 2, 3, 4], np.int32), 2)[0].tolist() == [4]
    prefix.clear()
    assert len(prefix.cache.chains.roots) == 0


def test_events_tell_what_a_router_needs():
    events = []
    pool = filled(8, 4, 16)
    prefix = CachedBlocks(pool, SIZE, events=events.append)
    first = KnownTokens(np.arange(9, dtype=np.int32), 3)
    prefix.publish(first, [0, 1], 9)
    prefix.publish(KnownTokens(np.arange(9, dtype=np.int32), 3), [2, 3], 9)  # the same once more: nothing new
    (stored,) = events
    assert stored == BlocksStored(first.keys.tolist(), None, list(range(8)), 4, 3)
    assert stored.record() == ["BlockStored", first.keys.tolist(), None, list(range(8)), 4, None, "GPU"]
    longer = KnownTokens(np.array([*range(8), 50, 51, 52, 53], np.int32), 3)
    longer.stored = 2
    prefix.publish(longer, [0, 1, 4], 12)
    assert events[1] == BlocksStored([int(longer.keys[2])], int(first.keys[1]), [50, 51, 52, 53], 4, 3)
    assert all(type(name) is int for event in events for name in event.block_hashes)
    assert len(prefix.hit(np.arange(9, dtype=np.int32), 3)[0]) == 2
    assert events[2] == BlocksHit(first.keys.tolist(), 9)
    rest(prefix, [0, 1])
    prefix.let_go([4])
    assert events[3] == BlocksRemoved([int(longer.keys[2])])
    assert events[3].record() == ["BlockRemoved", [int(longer.keys[2])], "GPU"]
    del events[:]
    prefix.clear()
    assert events == [AllBlocksCleared()]
    assert events[0].record() == ["AllBlocksCleared"]


def test_a_hash_is_removed_with_the_last_block_of_its_tokens():
    events = []
    prefix = CachedBlocks(filled(8, 4, 16), SIZE, events=events.append)
    for block in (0, 1):
        publish(prefix, [block], 7)
    for block in (0, 1):
        rest(prefix, [block])
    prefix.evict(1)
    assert len(events) == 1
    prefix.evict(1)
    assert events[1] == BlocksRemoved(events[0].block_hashes)
