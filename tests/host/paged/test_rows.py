"""Blocks and rows against a drawing byte by byte."""

import pytest

from paged import Rows

SHAPES = [(4, 12), (12, 4), (5, 12), (12, 5), (7, 7), (1, 9), (10, 4), (6, 4)]  # (block stride, chunk)


@pytest.mark.parametrize(("stride", "chunk"), SHAPES)
def test_rows_of_blocks_byte_by_byte(stride, chunk):
    rows = Rows(9, stride, chunk)
    bytes_of = {block: range(block * stride, (block + 1) * stride) for block in range(9)}
    rows_of = {block: sorted({byte // chunk for byte in bytes_of[block]}) for block in range(9)}
    assert rows.count == max(rows_of[8]) + 1
    for block in range(9):
        assert list(rows.of(block)) == rows_of[block]
        assert (rows.first(block), rows.last(block)) == (rows_of[block][0], rows_of[block][-1])
        assert rows.needed(block + 1) == max(rows_of[block]) + 1
    for row in range(rows.count):
        assert list(rows.touching(row)) == [block for block in range(9) if row in rows_of[block]]
        assert rows.ending_by(row) == sum(rows_of[block][-1] < row for block in range(9))
    assert rows.straddles == any(len(found) > 1 for found in rows_of.values())


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_a_number_that_is_not_positive_is_refused(wrong):
    with pytest.raises(ValueError, match="must be at least 1, not"):
        Rows(*wrong)
