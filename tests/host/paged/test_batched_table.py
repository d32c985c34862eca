"""The batched table: rows that open and close, entries that move, and what those who watch are told."""

import numpy as np
import pytest

from paged.tables.batched_table import BatchedTable


@pytest.fixture
def table():
    return BatchedTable(4)


def row_of(table, blocks, length):
    row = table.open(0)
    table.put(row, 0, blocks)
    table.lengths[row] = length
    return row


def test_the_lowest_closed_row_is_opened_and_rows_are_never_short(table):
    rows = [table.open(0) for _ in range(20)]
    assert rows == list(range(20))
    for row in (17, 3, 9):
        table.close(row)
    assert [table.open(0) for _ in range(4)] == [3, 9, 17, 20]
    assert table.open_rows() == list(range(21))


def test_a_row_that_is_opened_again_is_another(table):
    row = table.open(2)
    first = int(table.turns[row])
    table.lengths[row] = 9
    table.close(row)
    assert table.open(5) == row
    assert (int(table.turns[row]) - first, table.lengths[row], table.epochs[row]) == (2, 0, 5)


def test_a_row_reads_as_its_blocks(table):
    row = row_of(table, [7, 42, 9, 103], 13)
    other = row_of(table, list(range(200, 230)), 120)  # more columns than there were
    assert table.table(row) == [7, 42, 9, 103]
    assert table.table(other) == list(range(200, 230))
    table.drop(row, 2)
    assert (table.table(row), table.held(row)) == ([-1, -1, 9, 103], [9, 103])
    assert table.holders() == {9: 1, 103: 1, **dict.fromkeys(range(200, 230), 1)}


def test_moved_blocks_are_renamed_where_they_are_held_and_nowhere_else(table):
    first, second = row_of(table, [5, 6, 7], 12), row_of(table, [6, 7, 8, 5], 9)  # the last column means nothing
    table.rename([7, 5, 6], [5, 50, 7])  # as if simultaneous
    assert (table.table(first), table.table(second)) == ([50, 7, 5], [7, 5, 8])
    assert table.blocks[second, 3] == 5
    table.rename([], [])
    assert table.table(first) == [50, 7, 5]


def test_who_watches_hears_of_each_entry(table):
    row = row_of(table, [1], 4)
    changes = table.watch()
    table.put(row, 1, [2, 3])
    table.lengths[row] = 12
    table.put_each(np.array([row]), np.array([3]), [4])
    rows, columns = changes.take()
    assert (rows.tolist(), columns.tolist()) == ([row] * 3, [1, 2, 3])
    assert [part.tolist() for part in changes.take()] == [[], []]
    table.rename([2], [9])
    assert changes.take()[1].tolist() == [1]
    for _ in range(5000):
        table.put(row, 0, [1])
    assert changes.take() is None  # too many to tell
    table.unwatch(changes)
    table.put(row, 0, [8])
    assert [part.tolist() for part in changes.take()] == [[], []]


def test_one_long_row_does_not_leave_all_rows_long(table):
    short, long = row_of(table, [7, 42, 9], 12), row_of(table, list(range(40_000)), 160_000)
    assert table.columns >= 40_000
    table.close(short)
    short = row_of(table, [7, 42, 9], 12)
    assert table.columns >= 40_000  # somebody needs them still
    table.close(long)
    other = row_of(table, list(range(200, 230)), 120)
    assert table.columns < 64
    assert (table.table(short), table.table(other)) == ([7, 42, 9], list(range(200, 230)))
