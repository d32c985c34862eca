"""Tokens to blocks and slots, by hand."""

import numpy as np
import pytest

import paged
from vmm import RangeError

TABLE = [7, 42, 9, 103]


@pytest.mark.parametrize(("token", "place"), [(0, (7, 0)), (15, (7, 15)), (16, (42, 0)), (37, (9, 5)), (63, (103, 15))])
def test_locate(token, place):
    assert paged.locate(token, TABLE, block_size=16) == place


@pytest.mark.parametrize(
    ("token", "table", "size", "message"),
    [
        (64, TABLE, 16, "token 64 is outside the block table: 4 blocks of 16 tokens hold tokens 0 to 63"),
        (-1, TABLE, 16, "token -1 is outside"),
        (0, [], 16, "it is empty"),
        (0, TABLE, 0, "block_size must be at least 1 token, not 0"),
    ],
)
def test_a_token_that_is_not_there(token, table, size, message):
    with pytest.raises(RangeError, match=message):
        paged.locate(token, table, size)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_slots_are_block_times_size_plus_offset(size):
    tokens = len(TABLE) * size
    for start in range(tokens + 1):
        for stop in range(start, tokens + 1):
            slots = paged.slots_of(TABLE, start, stop, size)
            assert slots.dtype == np.int64
            assert slots.tolist() == [TABLE[token // size] * size + token % size for token in range(start, stop)]


def test_slots_pass_32_bits():
    assert paged.slots_of([(1 << 31) - 1], 255, 256, 256).tolist() == [((1 << 31) - 1) * 256 + 255]


def test_tables_of_a_batch_are_padded_with_zeros():
    batched = paged.batch_tables([[7, 42, 9], [], [5]])
    assert (batched.dtype, batched.shape) == (np.int32, (3, 3))
    assert batched.tolist() == [[7, 42, 9], [0, 0, 0], [5, 0, 0]]
    assert paged.batch_tables([[], []]).shape == (2, 1)  # a kernel wants at least one column
    assert paged.batch_tables([]).shape == (0, 1)
    lengths = paged.batch_lengths([33, 0, 4])
    assert (lengths.dtype, lengths.tolist()) == (np.int32, [33, 0, 4])
