"""The table of keys against a dict of sets: many keys a bucket, several blocks a key, blocks that come, go and move."""

import random

import numpy as np

from paged.prefix.key_table import KeyTable

BLOCKS = 24


def holds(table, model):
    """What the model says: which blocks each key has."""
    assert sorted(table.listed()) == sorted(block for blocks in model.values() for block in blocks)
    for key in range(70):
        assert set(table.all_of(key)) == model.get(key, set())
        assert table.has(key) == (key in model)


def array(numbers, kind=np.int64):
    return np.array(numbers, kind)


def test_blocks_come_and_go_by_their_keys():
    draw, table, model = random.Random(5), KeyTable(BLOCKS), {}
    for _ in range(300):
        free = sorted(set(range(BLOCKS)).difference(*model.values()))
        held = [block for blocks in model.values() for block in blocks]
        if draw.random() < 0.5:
            new = draw.sample(free, draw.randint(0, min(len(free), 6)))
            keys = [draw.randrange(70) for _ in new]  # buckets are 32: some have two keys, some keys two blocks
            if len(new) == 1:
                table.add(keys[0], new[0])
            else:
                table.add_all(array(keys, np.uint64), array(new))
            for key, block in zip(keys, new, strict=True):
                model.setdefault(key, set()).add(block)
        elif draw.random() < 0.7:
            going = draw.sample(held, draw.randint(0, len(held)))
            table.remove(array(going))
            model = {key: left for key, blocks in model.items() if (left := blocks - set(going))}
        else:
            count = min(len(held), len(free), 3)
            old, new = draw.sample(held, count), draw.sample(free, count)
            table.rename(array(old), array(new))
            names = dict(zip(old, new, strict=True))
            model = {key: {names.get(block, block) for block in blocks} for key, blocks in model.items()}
        holds(table, model)
    table.clear()
    holds(table, {})


def test_a_block_of_each_key_up_to_the_first_without():
    table = KeyTable(8)
    table.add_all(array([3, 11, 19, 4], np.uint64), array([0, 1, 2, 5]))  # 3, 11 and 19 are of one bucket
    assert table.first_of(array([19, 4, 3, 11], np.uint64)).tolist() == [2, 5, 0, 1]
    assert table.first_of(array([4, 27, 3], np.uint64)).tolist() == [5]
    assert table.first_of(array([12], np.uint64)).tolist() == []
