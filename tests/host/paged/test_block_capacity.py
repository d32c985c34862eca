"""How many blocks fit: exact for every block and chunk size, and never less than another choice of rows would give."""

import itertools
import random

import pytest

from paged import BlockPool, Rows
from vmm import OutOfMemoryError

GEOMETRIES = [  # (block stride, chunk): one block a row, several, straddling, larger than a row
    (8, 8),
    (2, 8),
    (3, 8),
    (5, 8),
    (20, 8),
    (13, 6),
    (16, 8),
]


def pool_of(blocks, stride=4, chunk=16, max_rows=None):
    return BlockPool(Rows(blocks, stride, chunk), max_rows)


@pytest.mark.parametrize("rows", range(1, 65))
def test_case_11_capacity_claimed_is_capacity_obtained(rows):
    """kvcached: 80 KiB blocks over 2 MiB chunks; every byte counts, whatever the number of chunks."""
    stride, chunk = 80 << 10, 2 << 20
    expected = rows * chunk // stride
    for blocks in (expected, 2 * expected + 1):
        pool = BlockPool(Rows(blocks, stride, chunk), rows)
        assert pool.largest_grantable() == expected
        assert len(set(pool.allocate(expected))) == expected
        assert not pool.can_allocate(1)
        assert pool.committed.count <= rows
    assert rows < 64 or expected == 1638


@pytest.mark.parametrize("rows", range(1, 65))
def test_case_11_blocks_larger_than_a_chunk(rows):
    pool = BlockPool(Rows(200, 5 << 20, 2 << 20), rows)  # 2.5 chunks, as llama-3-70b has them
    assert pool.largest_grantable() == 2 * rows // 5
    pool.allocate(2 * rows // 5)
    assert not pool.can_allocate(1)
    pool.check()


@pytest.mark.parametrize(("stride", "chunk"), GEOMETRIES)
def test_case_6_largest_grantable_is_exact_and_refusal_changes_nothing(stride, chunk):
    draw = random.Random(stride * 100 + chunk)
    for _ in range(60):
        pool = pool_of(18, stride, chunk, max_rows=draw.randint(1, Rows(18, stride, chunk).count))
        for _ in range(4):
            if pool.can_allocate(size := draw.randint(0, 5)):
                held = pool.allocate(size)
                emptied = pool.free(draw.sample(held, len(held) // 2))
                pool.decommit(draw.sample(emptied, len(emptied) // 2))
        most = pool.largest_grantable()
        before = (pool.used, pool.available, list(pool.committed))
        assert pool.can_allocate(most)
        assert not pool.can_allocate(most + 1)
        with pytest.raises(OutOfMemoryError, match=f"{most + 1} blocks? asked, {most} can be had"):
            pool.choose(most + 1)
        assert (pool.used, pool.available, list(pool.committed)) == before
        assert len(pool.allocate(most)) == most
        assert pool.largest_grantable() == 0
        pool.check()


@pytest.mark.parametrize(("stride", "chunk"), GEOMETRIES)
def test_no_other_choice_of_rows_would_give_more(stride, chunk):
    """Against every set of new rows, in pools small enough to try them all."""
    draw = random.Random(stride)
    tried = 0
    for _ in range(120):
        rows = Rows(draw.randint(2, 12), stride, chunk)
        if rows.count > 10:
            continue
        pool = BlockPool(rows, draw.randint(1, rows.count))
        held = pool.allocate(draw.randint(0, pool.largest_grantable()))
        emptied = pool.free(draw.sample(held, draw.randint(0, len(held))))
        pool.decommit(row for row in emptied if draw.random() < 0.7)
        bare = [row for row in range(rows.count) if row not in pool.committed]
        left = min(pool.max_rows - pool.committed.count, len(bare))
        free = [block for block in range(rows.blocks) if not pool.count(block)]
        best = max(
            sum(all(row in pool.committed or row in chosen for row in rows.of(block)) for block in free)
            for chosen in map(set, itertools.combinations(bare, left))
        )
        assert pool.largest_grantable() == best
        tried += 1
    assert tried > 30


def test_a_row_chosen_for_one_block_completes_another():
    """Rows 5, 7 and 8 are there. Block 2 (rows 4 to 6) takes row 6, which gives block 3 (rows 6 to 8) for nothing."""
    pool = BlockPool(Rows(5, 13, 6), 9)
    pool.commit([5, 7, 8])
    assert pool.largest_grantable() == 4
    assert pool.allocate(4) == [0, 1, 2, 3]
    assert pool.largest_grantable() == 0


def test_the_bound_of_the_caller_counts_besides_max_rows():
    pool = pool_of(16, max_rows=3)
    assert pool.largest_grantable() == 12
    assert pool.largest_grantable(rows=1) == 4
    assert not pool.can_allocate(5, rows=1)
    assert pool.largest_grantable(rows=9) == 12
