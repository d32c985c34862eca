"""Block ids: counts and placement. Seeded runs against a naive model are in test_block_life."""

import numpy as np
import pytest

from paged import BlockPool, Rows
from vmm import RangeError, StateError


def pool_of(blocks, stride=4, chunk=16, max_rows=None):
    return BlockPool(Rows(blocks, stride, chunk), max_rows)


def test_blocks_come_from_the_lowest_rows_and_go_back():
    pool = pool_of(16)
    assert pool.choose(5).rows == (0, 1)
    assert pool.committed.count == 0  # choose only looks
    assert pool.allocate(5) == [0, 1, 2, 3, 4]
    assert (pool.used, pool.available, list(pool.committed)) == (5, 3, [0, 1])
    assert pool.free([4]) == [1]
    pool.decommit([1])
    assert (pool.used, pool.available, list(pool.committed)) == (4, 0, [0])
    pool.check()


def test_the_fullest_row_that_has_room_comes_first():
    pool = pool_of(16)
    pool.allocate(12)
    pool.free([1, 5, 6, 8, 9, 10])  # rows 0, 1, 2 hold 3, 2 and 1 blocks
    assert pool.allocate(1) == [1]
    assert sorted(pool.allocate(2)) == [5, 6]
    assert sorted(pool.allocate(3)) == [8, 9, 10]
    pool.check()


def test_committed_rows_are_used_before_new_ones():
    pool = pool_of(16)
    pool.commit([2])
    assert sorted(pool.allocate(4)) == [8, 9, 10, 11]
    assert pool.choose(1).rows == (0,)


def test_a_straddling_block_keeps_both_rows():
    pool = pool_of(5, stride=6, chunk=8)  # block 1 lies in rows 0 and 1, block 2 in rows 1 and 2
    assert pool.choose(2).rows == (0, 1)
    assert pool.allocate(2) == [0, 1]
    assert pool.free([0]) == []
    assert list(pool.empty) == []
    assert sorted(pool.free([1])) == [0, 1]
    pool.check()


def test_a_straddling_block_comes_available_with_its_second_row():
    pool = pool_of(5, stride=6, chunk=8)
    pool.commit([1])
    assert pool.available == 0  # row 1 alone holds no whole block
    pool.commit([0])
    assert sorted(pool.allocate(pool.available)) == [0, 1]
    pool.check()


@pytest.mark.parametrize("stride", [1, 4, 16])
def test_case_5_rows_that_are_there_already_are_used_first(stride):
    """rmm#1957: of 1,024 rows 256 are committed and free again; what needs them all asks for the other 768."""
    pool = pool_of(2048 * 16 // stride, stride, max_rows=1024)
    pool.free(pool.allocate(256 * 16 // stride))
    assert len(pool.choose(1024 * 16 // stride).rows) == 768
    assert len(pool.allocate(1024 * 16 // stride)) == 1024 * 16 // stride
    assert pool.committed.count == 1024
    pool.check()


def test_case_5_what_was_freed_between_others_is_taken_again():
    """rmm#1664: 8 rows: A takes 1 + 4 and frees the 4, B takes 1, A asks for 1 + 4 once more."""
    pool = pool_of(16, 16, max_rows=8)
    kept, four = pool.allocate(1), pool.allocate(4)
    pool.free(four)
    other = pool.allocate(1)
    more = pool.allocate(1) + pool.allocate(4)
    assert len({*kept, *other, *more}) == 7
    pool.check()


@pytest.mark.parametrize("stride", [3, 4, 16])
def test_case_7_an_empty_row_that_stays_committed_never_stands_in_the_way(stride):
    """cupy#7678: a limit of 2 rows; a block is taken and freed, its row stays; then all of both rows is asked."""
    pool = pool_of(64, stride, max_rows=2)
    most = pool.largest_grantable()
    pool.free(pool.allocate(1))
    assert (pool.largest_grantable(), most) == (most, 2 * 16 // stride)
    assert len(pool.allocate(most)) == most
    pool.check()


def test_case_8_not_now_is_an_answer_and_the_next_smaller_request_works():
    pool = pool_of(16, max_rows=2)
    assert not pool.can_allocate(9)
    assert pool.allocate(8) == list(range(8))


def test_case_22_the_same_block_twice_in_one_list():
    """vllm#42571: the free count rises by one or not at all, and no block stands in the free list twice."""
    pool = pool_of(16)
    held = pool.allocate(6)
    before = (pool.used, pool.available)
    with pytest.raises(StateError, match="block 3 is freed more often than it is held; nothing was freed"):
        pool.free([0, 1, 3, 3, 4])
    assert (pool.used, pool.available) == before
    pool.check()
    pool.fork([3])
    pool.free([3, 3])  # held twice, this is fine
    pool.check()
    assert sorted(pool.allocate(3)) == [3, 6, 7]
    assert held == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_case_23_a_table_with_the_same_block_twice_forked(order):
    pool = pool_of(16)
    block = pool.allocate(1)[0]
    pool.fork([block])
    table = [block, block]
    pool.fork(table)
    assert pool.count(block) == 4
    for _ in order:
        pool.free(table)
        pool.check()
    assert (pool.count(block), pool.used) == (0, 0)


def test_wrong_ids_are_named():
    pool = pool_of(16)
    pool.allocate(4)
    for wrong in (-1, 16, 1 << 40):
        for act in (pool.free, pool.fork, pool.hold):
            with pytest.raises(RangeError, match=f"block {wrong} is unknown; this pool has blocks 0 to 15"):
                act([0, wrong])
        with pytest.raises(RangeError, match=f"block {wrong} is unknown"):
            pool.count(wrong)
    with pytest.raises(StateError, match="block 9 is free and cannot be shared"):
        pool.fork([1, 9])
    with pytest.raises(StateError, match="block 9 is freed more often"):
        pool.free([1, 9])
    with pytest.raises(StateError, match=r"block 9 has no memory yet; commit rows \[2\] first"):
        pool.hold([1, 9])
    with pytest.raises(RangeError, match="cannot allocate -1 blocks"):
        pool.allocate(-1)
    assert [pool.count(block) for block in range(5)] == [1, 1, 1, 1, 0]
    pool.check()


@pytest.mark.parametrize("many", [1, 60])
@pytest.mark.parametrize("odd", [1.5, "1", None, [1], np.array([1.0]), np.array([[1, 2]])])
def test_what_is_no_id_is_named_in_lists_short_and_long(many, odd):
    pool = pool_of(64)
    held = pool.allocate(many)
    wrong = odd if isinstance(odd, np.ndarray) else [*held, odd]
    for act in (pool.free, pool.fork, pool.hold):
        with pytest.raises(RangeError, match="is no block id; give whole numbers"):
            act(wrong)
    assert (pool.used, pool.shared) == (many, 0)
    pool.check()


@pytest.mark.parametrize("kind", [list, np.array, lambda ids: np.array(ids, np.uint8), lambda ids: iter(ids)])
def test_ids_in_any_form_are_ids(kind):
    for stride in (3, 4, 16):
        pool = pool_of(64, stride)
        held = pool.allocate(50)
        pool.fork(kind(held))
        pool.free(kind(held))
        pool.free(kind(held))
        assert (pool.used, pool.shared) == (0, 0)
        pool.check()


def test_live_rows_are_not_decommitted():
    pool = pool_of(16)
    pool.allocate(5)
    with pytest.raises(StateError, match="row 1 holds 1 live blocks"):
        pool.decommit([1])
    with pytest.raises(StateError, match="row 3 holds 0 live blocks or is not committed"):
        pool.decommit([3])
    pool.check()


def test_a_stale_choice_is_refused():
    pool = pool_of(16)
    pool.commit([0])
    choice = pool.choose(4)
    pool.allocate(2)
    with pytest.raises(StateError, match="4 blocks were chosen, 2 are left; choose again"):
        pool.take(choice)


def test_hold_undoes_free():
    pool = pool_of(5, stride=6, chunk=8)
    blocks = pool.allocate(4)
    pool.fork(blocks[:1])
    pool.free(blocks)
    pool.hold(blocks)
    assert [pool.count(block) for block in blocks] == [2, 1, 1, 1]
    pool.check()


@pytest.mark.parametrize("stride", [3, 4, 16])
def test_check_finds_what_is_broken(stride):
    """Each field, spoilt, is noticed; rows of 16 bytes: straddling, four a row, one a row."""
    spoil = [
        lambda pool: pool.counts.one.__setitem__(0, 0),
        lambda pool: pool.counts.one.__setitem__(2, 2),
        lambda pool: pool.counts.one.__setitem__(15, -1),
        lambda pool: setattr(pool, "used", 9),
        lambda pool: setattr(pool, "shared", 1),
        lambda pool: setattr(pool, "max_rows", 1),
        lambda pool: setattr(pool._rooms, "available", 9),
        lambda pool: pool.committed.remove([0]),
        lambda pool: setattr(pool.committed, "count", 9),
    ]
    buckets = [
        lambda pool: pool._rooms.fills.__setitem__(0, 1),
        lambda pool: [rows.clear() for rows in pool._rooms.by_fill],
        lambda pool: pool._rooms.by_fill[1].update({0: None}),
        lambda pool: pool._rooms.empty.update({3: None}),
        lambda pool: setattr(pool._rooms, "top", 0),
    ]
    single = [
        lambda pool: pool._rooms._push(np.array([1])),
        lambda pool: pool._rooms._pop(1),
    ]
    lists = [
        lambda pool: pool._rooms.rooms[0].append(15),
        lambda pool: pool._rooms.rooms[2].append(pool._rooms.rooms[2][0]),
        lambda pool: pool._rooms.rooms[2].pop(),
    ]
    for change in spoil + {3: buckets + lists, 4: buckets + lists, 16: single}[stride]:
        pool = pool_of(32, stride)
        pool.allocate(11 if stride < 16 else 5)
        pool.free(pool.allocate(1))
        pool.check()
        change(pool)
        with pytest.raises(AssertionError):
            pool.check()
