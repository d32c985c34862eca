"""Batches: one call a step does what a call a sequence does, and nothing where it is refused."""

import random

import numpy as np
import pytest

import paged
import vmm

MIB = 1 << 20


@pytest.fixture
def pool(device, make_layout):
    with paged.KVPool(device, make_layout(512), budget=32 * MIB) as found:
        yield found
        found.check()


@pytest.fixture
def caching(device, make_layout):
    with paged.KVPool(device, make_layout(512), budget=64 * MIB, prefix_cache=True) as found:
        yield found
        found.check()


def sequence_of(pool, tokens):
    sequence = pool.sequence()
    sequence.append(tokens)
    return sequence


def test_each_sequence_gets_a_slot(pool):
    lengths = [0, 1, 15, 16, 17, 40]
    batch = paged.Batch(pool, [sequence_of(pool, tokens) for tokens in lengths])
    for step in range(1, 34):
        slots = batch.append()
        assert slots.dtype == np.int64
        for sequence, tokens, slot in zip(batch, lengths, slots.tolist(), strict=True):
            token = tokens + step - 1
            assert sequence.length == token + 1
            assert slot == sequence.table[token // 16] * 16 + token % 16
    assert batch.lengths.tolist() == [tokens + 33 for tokens in lengths]
    assert pool.live == (sum(lengths) + 33 * 6) * pool.layout.spec.token_bytes


def test_tables_are_the_rows_of_the_sequences(pool):
    batch = paged.Batch(pool, [sequence_of(pool, tokens) for tokens in (33, 1)])
    first, second = batch
    assert batch.tables().shape == (2, 3)
    assert (batch.tables()[0].tolist(), batch.tables()[1, :1].tolist()) == (first.table, second.table)
    assert paged.Batch(pool).tables().shape == (0, 1)


def test_an_empty_batch_appends_nothing(pool):
    batch = paged.Batch(pool)
    assert batch.can_append()
    assert batch.append().tolist() == []
    assert pool.committed == 0


def test_a_full_pool_is_not_now_and_changes_nothing(pool, picture):
    filled = sequence_of(pool, 62 * 16)
    batch = paged.Batch(pool, [sequence_of(pool, 16), sequence_of(pool, 16), filled])
    before = picture(pool)
    assert not batch.can_append()
    with pytest.raises(vmm.OutOfMemoryError, match="3 blocks asked, 0 can be had"):
        batch.append()
    assert picture(pool) == before
    batch.remove(filled)
    filled.free()
    assert batch.can_append()
    assert len(batch.append()) == 2


def test_who_leaves_is_replaced_by_the_last(pool):
    sequences = [sequence_of(pool, tokens) for tokens in (5, 6, 7, 8)]
    batch = paged.Batch(pool, sequences)
    sequences[1].free()
    batch.remove(sequences[1])
    assert list(batch) == [sequences[0], sequences[3], sequences[2]]
    assert batch.lengths.tolist() == [5, 8, 7]
    batch.remove(sequences[2])
    assert (sequences[2] in batch, sequences[3] in batch, len(batch)) == (False, True, 2)
    assert batch.add(sequences[2]) == 2
    assert batch.append().tolist()[2] == sequences[2].table[0] * 16 + 7


def test_wrong_use_is_named(pool, device, make_layout):
    sequence = sequence_of(pool, 5)
    batch = paged.Batch(pool, [sequence])
    with pytest.raises(vmm.StateError, match="is in the batch already, at place 0"):
        batch.add(sequence)
    with pytest.raises(vmm.StateError, match="is not in the batch"):
        batch.remove(sequence_of(pool, 1))
    with pytest.raises(ValueError, match="ids must be one token id for each of the 1 sequences"):
        batch.append(np.zeros(2, np.int32))
    other = paged.KVPool(device, make_layout(512), budget=8 * MIB)
    with other, pytest.raises(ValueError, match="another pool"):
        batch.add(other.sequence())
    sequence.free()
    pool.sequence()  # takes the row
    for act in (batch.append, batch.can_append):
        with pytest.raises(vmm.ClosedError, match="sequence 0 of the batch was freed; remove it"):
            act()


def test_bytes_that_a_sleep_lost_are_not_appended_to(pool):
    batch = paged.Batch(pool, [sequence_of(pool, 5), pool.sequence()])
    first = next(iter(batch))
    residency = vmm.Residency(pool.device)
    residency.add(pool.range, "kv")
    residency.sleep("kv", backup=False)
    with pytest.raises(vmm.StateError, match="sleep"):
        batch.append()
    residency.wake("kv")
    with pytest.raises(vmm.StateError, match="were lost"):
        batch.append()
    batch.remove(first)
    first.free()
    assert len(batch.append()) == 1


@pytest.mark.parametrize("holders", [2, 3])
def test_shared_tails_are_copied_once_less_than_they_are_held(pool, holders):
    parent = sequence_of(pool, 24)
    for place, block in enumerate(parent.table):
        pool.view(block, 0)[:] = place + 1
    family = [parent, *(parent.fork() for _ in range(holders - 1))]
    live = pool.tokens
    slots = paged.Batch(pool, family).append()
    tails = [sequence.table[1] for sequence in family]
    assert (len(set(tails)), pool.tokens - live) == (holders, holders + (holders - 1) * 8)
    assert [pool.count(block) for block in tails] == [1] * holders
    assert slots.tolist() == [block * 16 + 8 for block in tails]
    for block in tails:
        assert (pool.view(block, 0) == 2).all()


def test_a_tail_that_is_shared_outside_the_batch_is_left_alone(pool):
    parent = sequence_of(pool, 24)
    children = [parent.fork(), parent.fork()]
    paged.Batch(pool, children).append()
    assert pool.count(parent.table[1]) == 1
    assert len({sequence.table[1] for sequence in (parent, *children)}) == 3


def test_case_30_no_block_for_the_copy(pool, picture):
    """xllm#1984: copy-on-write with no free block is "not now", and nothing has changed."""
    parent = sequence_of(pool, 24)
    batch = paged.Batch(pool, [parent, parent.fork()])
    sequence_of(pool, 62 * 16)
    before = picture(pool)
    assert not batch.can_append()
    with pytest.raises(vmm.OutOfMemoryError, match="1 block asked, 0 can be had"):
        batch.append()
    assert picture(pool) == before


def test_blocks_of_ids_are_found_by_later_prompts(caching):
    prompt = np.arange(20, dtype=np.int32)
    sequence = caching.sequence(prompt)
    sequence.append(20)
    batch = paged.Batch(caching, [sequence])
    for token in range(20, 48):
        batch.append(np.array([token], np.int32))
    assert caching.sequence(np.arange(60, dtype=np.int32)).length == 32
    batch.append(np.array([48], np.int32))  # the third block is full, and published as the sequence goes on
    assert caching.sequence(np.arange(60, dtype=np.int32)).length == 48
    assert caching.sequence(np.arange(1, 61, dtype=np.int32)).length == 0


def test_ids_reach_the_sequence_before_anything_else_is_asked_of_it(caching):
    prompt = np.arange(10, dtype=np.int32)
    sequence = caching.sequence(prompt)
    sequence.append(10)
    batch = paged.Batch(caching, [sequence])
    for token in range(10, 16):
        batch.append(np.array([token], np.int32))
    child = sequence.fork()
    child.append(np.array([16], np.int32))
    assert caching.sequence(np.arange(40, dtype=np.int32)).length == 16
    sequence.free()
    child.free()
    assert caching.sequence(np.arange(40, dtype=np.int32)).length == 16


def test_tokens_of_a_prompt_are_known_without_ids(caching):
    prompt = np.arange(64, dtype=np.int32)
    sequence = caching.sequence(prompt)
    sequence.append(20)
    batch = paged.Batch(caching, [sequence])
    for _ in range(13):
        batch.append()
    assert sequence.length == 33  # two blocks are full, and it has gone on
    assert caching.sequence(prompt).length == 32


def test_a_token_without_an_id_ends_what_is_known(caching):
    sequence = caching.sequence(np.arange(10, dtype=np.int32))
    sequence.append(10)
    batch = paged.Batch(caching, [sequence])
    batch.append(np.array([10], np.int32))
    batch.append()
    for token in range(12, 33):
        batch.append(np.array([token], np.int32))
    sequence.free()
    assert caching.sequence(np.arange(40, dtype=np.int32)).length == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_does_what_calls_one_by_one_do(rules, make_layout, seed):
    """Two pools, one served by batches and one a sequence at a time, through forks, ends and appended prompts."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    pools = [paged.KVPool(rules, make_layout(512), budget=128 * MIB, prefix_cache=True) for _ in range(2)]
    batch = paged.Batch(pools[0])
    pairs = []
    for _ in range(150):
        kind = rng.choice(("start", "fork", "end", "step", "step", "ids", "ids", "more"))
        if kind == "start" and len(pairs) < 6:
            prompt = np.resize(np.arange(rng.choice((3, 7)), dtype=np.int32), rng.randrange(1, 50))
            pair = [pool.sequence(prompt) for pool in pools]
            for sequence in pair:
                sequence.append(len(prompt) - sequence.length)
            pairs.append(pair)
            batch.add(pair[0])
        elif kind == "fork" and pairs and len(pairs) < 6:
            pair = [sequence.fork() for sequence in rng.choice(pairs)]
            pairs.append(pair)
            batch.add(pair[0])
        elif kind == "end" and pairs:
            pair = pairs.pop(rng.randrange(len(pairs)))
            batch.remove(pair[0])
            for sequence in pair:
                sequence.free()
        elif kind == "more" and pairs:
            for sequence in rng.choice(pairs):
                sequence.append(5)
        elif kind in ("step", "ids"):
            ids = numbers.integers(0, 9, len(batch)).astype(np.int32) if kind == "ids" else None
            other = {pair[0]: pair[1] for pair in pairs}
            batch.append(ids)
            for place, sequence in enumerate(batch):
                other[sequence].append(1 if ids is None else ids[place : place + 1])
        for pool in pools:
            pool.check()
        for first, second in pairs:
            assert first.length == second.length
            first.publish()
            second.publish()
        assert pools[0].tokens == pools[1].tokens
        assert pools[0].block_pool.used == pools[1].block_pool.used
        assert len(pools[0].prefix.cache) == len(pools[1].prefix.cache)
    for pool in pools:
        pool.close()


def test_a_freed_sequence_does_not_take_the_tokens_of_the_next_in_its_row(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=32 * MIB, prefix_cache=True) as pool:
        freed = pool.sequence(np.arange(40))
        freed.append(40)
        freed.free()
        prompt = np.arange(100, 108)
        other = pool.sequence(prompt)
        other.append(8)
        assert other.row == freed.row
        batch = paged.Batch(pool, [other])
        for token in range(5):
            batch.append(np.array([token], np.int32))
        freed.publish()
        for token in range(5, 8):
            batch.append(np.array([token], np.int32))
        other.publish()
        assert pool.sequence(np.concatenate((prompt, np.arange(9)))).length == 16
