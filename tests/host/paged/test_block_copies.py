"""Copies of blocks that behave as if simultaneous: chains, circles, and many targets of one source."""

import random

import pytest

import paged
import vmm
from paged.block_copies import in_order, needs_spare

STREAMS = ("eager", "deferred")
MIB = 1 << 20


@pytest.fixture
def pool(device, make_layout):
    with paged.KVPool(device, make_layout(64), budget=8 * MIB, name="kv") as made:
        yield made
        made.check()


def marked(pool, count):
    """Blocks that hold their own number."""
    blocks = pool.allocate(count)
    for block in blocks:
        pool.view(block, 0)[...] = block + 1
    return blocks


def values(pool, blocks):
    pool.device.synchronize()
    found = []
    for block in blocks:
        view = pool.view(block, 0)
        assert (view == view.flat[0]).all()
        found.append(int(view.flat[0]) - 1)
    return found


def test_case_29_a_circle_of_copies_is_simultaneous(pool):
    """vllm-ascend#16013: 0 to 1 and 1 to 0 in one list."""
    blocks = marked(pool, 4)
    used = pool.block_pool.used
    pool.copy_blocks([(blocks[0], blocks[1]), (blocks[1], blocks[0])])
    assert values(pool, blocks) == [blocks[1], blocks[0], blocks[2], blocks[3]]
    assert pool.block_pool.used == used


def test_a_chain_is_read_before_it_is_written(pool):
    blocks = marked(pool, 5)
    pool.copy_blocks([(blocks[0], blocks[1]), (blocks[1], blocks[2]), (blocks[2], blocks[3]), (blocks[0], blocks[4])])
    assert values(pool, blocks) == [blocks[0], blocks[0], blocks[1], blocks[2], blocks[0]]


@pytest.mark.parametrize("seed", range(30))
def test_any_list_is_simultaneous(pool, seed):
    draw = random.Random(seed)
    blocks = marked(pool, 12)
    targets = draw.sample(blocks, draw.randrange(1, 13))
    pairs = [(draw.choice(blocks), target) for target in targets]
    if seed % 3 == 0:  # only circles
        pairs = list(zip(draw.sample(targets, len(targets)), targets, strict=True))
    wanted = {block: block for block in blocks} | {target: source for source, target in pairs}
    pool.copy_blocks(pairs)
    assert values(pool, blocks) == [wanted[block] for block in blocks]


def test_no_batch_reads_what_it_writes():
    pairs = [(0, 1), (1, 2), (2, 0), (2, 3), (4, 4), (5, 6)]
    assert needs_spare(pairs)
    for batch in in_order(pairs, 99):
        assert {source for source, _ in batch}.isdisjoint(target for _, target in batch)
    assert not needs_spare([(0, 1), (1, 2), (0, 3)])
    assert in_order([], 9) == []


def test_no_block_for_a_circle_is_not_now(pool):
    blocks = marked(pool, pool.blocks_total)
    with pytest.raises(vmm.OutOfMemoryError, match="1 block asked, 0 can be had"):
        pool.copy_blocks([(blocks[0], blocks[1]), (blocks[1], blocks[0])])
    assert values(pool, blocks[:2]) == blocks[:2]
    pool.copy_blocks([(blocks[0], blocks[1]), (blocks[1], blocks[2])])  # a chain needs none
    assert values(pool, blocks[:3]) == [blocks[0], blocks[0], blocks[1]]


def test_wrong_pairs_are_named(pool):
    blocks = marked(pool, 3)
    with pytest.raises(vmm.StateError, match="a block is the target of two copies"):
        pool.copy_blocks([(blocks[0], blocks[2]), (blocks[1], blocks[2])])
    with pytest.raises(vmm.StateError, match="block 250 has no memory and cannot be copied"):
        pool.copy_blocks([(blocks[0], 250)])
    with pytest.raises(vmm.RangeError, match="block 9999 is unknown"):
        pool.copy_blocks([(9999, blocks[0])])
    for odd in ([tuple(blocks), (0,)], [(0, 1, 2, 0)], [(0,), (1,)], [0, 1], 7):
        with pytest.raises(ValueError, match=r"copies are pairs \(source, target\), such as \[\(0, 1\)\], not "):
            pool.copy_blocks(odd)
    pool.copy_blocks([])
    assert values(pool, blocks) == blocks
