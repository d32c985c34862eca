"""Prompts that begin alike share blocks: hits are exact, nothing live is lost, and what is idle goes when it must."""

import random

import numpy as np
import pytest

import paged
import vmm
from paged.prefix.chain_hash import chain_keys, multipliers, root_key, weights
from paged.prefix.prefix_cache import PrefixCache

MIB = 1 << 20
SIZE = 16


@pytest.fixture
def pool(rules, make_layout):
    """Room for 64 blocks of 512 KiB, four a row."""
    with paged.KVPool(rules, make_layout(512), budget=32 * MIB, prefix_cache=True, name="kv") as made:
        yield made


def prompt(*parts):
    """Token ids: each part is (first id, how many)."""
    return np.concatenate([np.arange(first, first + count, dtype=np.int32) for first, count in parts])


def run(pool, ids, generated=0, salt=0):
    """A sequence of a prompt whose rest is computed; and how many of its tokens were known."""
    sequence = pool.sequence(ids, salt=salt)
    known = sequence.length
    sequence.append(len(ids) - known)
    for token in range(generated):
        sequence.append([token])
    return sequence, known


# -- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 16, 22])
@pytest.mark.parametrize("step", [1, 3])  # every third id of an array: they do not lie side by side
def test_the_chain_in_one_step_is_the_chain_step_by_step(size, step):
    mask = (1 << 64) - 1
    tokens = np.random.default_rng(1).integers(0, 1 << 31, step * (200 * size + size // 2)).astype(np.int32)[::step]
    keys = chain_keys(tokens, size, 5).tolist()
    assert len(keys) == 200
    total = 5  # 5 ^ (5 >> 32)
    for index in range(200):
        row = tokens[index * size : (index + 1) * size].tolist()
        words = row if size % 2 else [low + (high << 32) for low, high in zip(row[::2], row[1::2], strict=True)]
        alone = 1 + sum(word * number for word, number in zip(words, multipliers(len(words)).tolist(), strict=True))
        total = (total + weights(256).tolist()[index] * alone) & mask
        assert keys[index] == total ^ (total >> 32)


def test_blocks_of_padding_have_keys_of_their_own():
    keys = chain_keys(np.zeros(8 * SIZE, np.int32), SIZE, root_key(0)).tolist()
    assert len({root_key(0), *keys}) == 9


def test_two_blocks_in_the_order_of_thue_and_morse_have_other_keys_than_the_other_way_round():
    """What makes every hash by powers of one number collide, whatever the number: (x - 1)(x^2 - 1)(x^4 - 1)..."""
    one, other = prompt((0, SIZE)), prompt((500, SIZE))
    order = [bin(index).count("1") % 2 for index in range(2048)]
    keys = [
        chain_keys(np.concatenate([(one, other)[number ^ way] for number in order]), SIZE, 0).tolist() for way in (0, 1)
    ]
    assert not set(keys[0]) & set(keys[1])


def test_keys_go_on_from_where_they_stopped_and_depend_on_everything_before():
    tokens = np.arange(10 * SIZE, dtype=np.int32)
    whole = chain_keys(tokens, SIZE, root_key(0))
    rest = chain_keys(tokens[4 * SIZE :], SIZE, int(whole[3]), 4)
    assert rest.tolist() == whole[4:].tolist()
    for changed in (0, 5 * SIZE - 1):
        other = tokens.copy()
        other[changed] += 1
        keys = chain_keys(other, SIZE, root_key(0))
        block = changed // SIZE
        assert keys[:block].tolist() == whole[:block].tolist()
        assert not set(keys[block:].tolist()) & set(whole.tolist())
    assert not set(chain_keys(tokens, SIZE, root_key(1)).tolist()) & set(whole.tolist())
    assert len(chain_keys(tokens[:SIZE], SIZE, 0)) == 1
    assert len(chain_keys(tokens[:3], SIZE, 0)) == 0


# -- hits -----------------------------------------------------------------------------------------------------------


def test_a_prompt_finds_the_blocks_of_one_that_began_alike(pool):
    first, known = run(pool, prompt((0, 100)))
    assert known == 0
    first.publish()
    second, known = run(pool, prompt((0, 70), (500, 60)))
    assert known == 64
    assert second.table[:4] == first.table[:4]
    assert not set(second.table[4:]) & set(first.table)
    assert pool.live == (100 + 130 - 64) * pool.layout.spec.token_bytes
    pool.check()


def test_what_has_ended_is_found_until_its_memory_is_needed(pool):
    sequence, _ = run(pool, prompt((0, 100)), generated=30)
    table = list(sequence.table)
    sequence.free()
    assert (pool.live, pool.blocks_idle, pool.block_pool.used) == (0, 8, 8)  # 130 tokens: eight whole blocks
    again = pool.sequence(np.concatenate([prompt((0, 100)), np.arange(30, dtype=np.int32), prompt((7, 9))]))
    assert (again.length, again.table) == (128, table[:8])  # generated tokens are known by their ids too
    assert pool.blocks_idle == 0
    again.free()
    everything = pool.allocate(pool.blocks_free)
    assert len(everything) == 64
    assert pool.blocks_idle == 0
    assert pool.sequence(prompt((0, 100))).length == 0
    pool.check()


def test_tokens_that_are_given_by_their_number_end_what_is_known(pool):
    sequence, _ = run(pool, prompt((0, 40)))
    sequence.append(8)  # whatever they are
    sequence.append([1] * 16)
    sequence.free()
    assert pool.blocks_idle == 2
    pool.check()


def test_a_prompt_that_is_not_followed_is_known_by_what_was_appended(pool):
    """The caller says one thing and appends another: only what was appended can be found."""
    said, done = prompt((0, 6 * SIZE)), prompt((0, 2 * SIZE), (700, 4 * SIZE))
    sequence = pool.sequence(said)
    sequence.append(done)
    sequence.free()
    assert pool.sequence(np.append(said, 0)).length == 2 * SIZE
    assert pool.sequence(np.append(done, 0)).length == 6 * SIZE
    pool.check()


def test_case_24_a_block_that_is_reused_loses_its_old_tokens(pool):
    """nano-vllm#163, kvcached#362: cache X in a block, free it, the block is reused for Y: X misses, Y hits."""
    x, y = prompt((0, 64 * SIZE)), prompt((5000, 64 * SIZE))
    run(pool, x)[0].free()
    assert pool.blocks_idle == 64
    second, known = run(pool, y)
    assert known == 0
    second.free()
    assert pool.sequence(x).length == 0
    assert pool.sequence(y).length == 63 * SIZE
    pool.check()


def test_case_25_two_equal_prompts_computed_at_once(pool):
    """nano-vllm#219: one ends and its blocks are reused: the other copy is found; when both are gone, none."""
    ids = prompt((0, 4 * SIZE + 1))
    first, second = pool.sequence(ids), pool.sequence(ids)
    for sequence in (first, second):
        sequence.append(len(ids) - sequence.length)
    for sequence in (first, second):
        sequence.publish()
    assert not set(first.table) & set(second.table)
    pool.check()
    kept = list(second.table)
    first.free()
    taken = pool.allocate(pool.blocks_free)  # evicts the first copy
    found = pool.sequence(ids)
    assert found.table == kept[:4]
    pool.check()
    found.free()
    second.free()
    pool.free(taken)
    taken = pool.allocate(pool.blocks_free)
    assert pool.sequence(ids).length == 0
    pool.check()


def test_case_26_a_token_is_always_left_to_compute(pool):
    """nano-vllm#144, #211: a prompt of exactly k blocks, all cached; then again after a preemption."""
    ids = prompt((0, 6 * SIZE))
    run(pool, ids)[0].free()
    for _ in range(3):
        sequence = pool.sequence(ids)
        assert sequence.length == 5 * SIZE
        slots = sequence.append(len(ids) - sequence.length)
        assert len(slots) == SIZE
        assert len(sequence.table) == 6
        sequence.free()
        pool.check()
    assert pool.sequence(ids[:1]).length == 0
    assert pool.sequence([]).length == 0


def test_case_27_with_one_key_for_everything_different_tokens_never_share():
    """vllm#8229, openvino.genai#3722: a hash that is always the same costs time only."""
    cache = PrefixCache(40, 2, hash=lambda tokens, size, *_: np.full(len(tokens) // size, 7, np.uint64))
    lists = [[1, 2, 3, 4], [1, 2, 3, 5], [9, 2, 3, 4], [3, 4, 1, 2], [1, 2, 1, 2]]
    for number, ids in enumerate(lists):
        tokens = np.array(ids, np.int32)
        cache.store(tokens, cache.keys(tokens, 0), 0, np.array([2 * number, 2 * number + 1]), 0)
    for number, ids in enumerate(lists):
        found, _ = cache.match(np.array([*ids, 0], np.int32), 0)
        assert [cache.chains.tokens(block) for block in found] == [ids[:2], ids[2:]]
        assert found[1] == 2 * number + 1
    for ids in ([1, 2, 9, 9, 0], [5, 5, 3, 4, 0]):
        found, _ = cache.match(np.array(ids, np.int32), 0)
        assert len(found) == (1 if ids[:2] == [1, 2] else 0)
    assert len(cache.match(np.array([1, 2, 3, 4, 0], np.int32), 1)[0]) == 0


def test_with_one_key_for_everything_the_same_tokens_after_others_are_another_block():
    cache = PrefixCache(40, 2, hash=lambda tokens, size, *_: np.full(len(tokens) // size, 7, np.uint64))
    for ids, blocks, known in (([5, 6], [0], 0), ([1, 2], [1], 0), ([1, 2, 3, 4], [1, 2], 1)):
        tokens = np.array(ids, np.int32)
        cache.store(tokens, cache.keys(tokens, 0), 0, np.array(blocks), known)
    assert cache.match(np.array([5, 6, 3, 4, 0], np.int32), 0)[0].tolist() == [0]
    assert cache.match(np.array([3, 4, 0], np.int32), 0)[0].tolist() == []


def test_the_same_block_after_another_prefix_is_another(pool):
    first, _ = run(pool, prompt((0, SIZE), (100, SIZE), (0, 1)))
    first.publish()
    second = pool.sequence(prompt((50, SIZE), (100, SIZE), (0, 1)))
    assert second.length == 0
    pool.check()


def test_salts_that_pythons_hash_does_not_tell_apart_have_keys_of_their_own():
    salts = [-1, -2, 0, 2**61 - 1, 1, 2**61, 2**62 - 1, 10**30, 10**5000]
    assert len({root_key(salt) for salt in salts}) == len(salts)


def test_salts_keep_tenants_apart(pool):
    ids = prompt((0, 50))
    run(pool, ids, salt=1)[0].free()
    assert pool.sequence(ids).length == 0
    assert pool.sequence(ids, salt=2).length == 0
    assert pool.sequence(ids, salt=1).length == 48


def test_forks_share_what_they_know(pool):
    parent, _ = run(pool, prompt((0, 40)))
    child = parent.fork()
    parent.append(prompt((900, 30)))
    child.append(prompt((800, 30)))
    for sequence in (parent, child):
        sequence.publish()
    pool.check()
    for tail in (900, 800):
        assert pool.sequence(prompt((0, 40), (tail, 30))).length == 64
    child.free()
    parent.free()
    pool.check()


# -- memory ---------------------------------------------------------------------------------------------------------


def test_case_31_free_and_held_and_idle_are_always_all(pool):
    """sglang#35270: a shared block counts once."""
    rng = random.Random(3)
    running = []
    for step in range(400):
        if running and rng.random() < 0.45:
            running.pop(rng.randrange(len(running))).free()
        else:
            ids = prompt((rng.choice([0, 1000]), rng.randrange(1, 60)), (rng.choice([0, 50, 70]), rng.randrange(1, 60)))
            sequence = pool.sequence(ids)
            if sequence.can_append(len(ids) - sequence.length):
                sequence.append(len(ids) - sequence.length)
                running.append(sequence)
            else:
                sequence.free()
        held = {block for sequence in running for block in sequence.table}
        assert pool.blocks_free + len(held) == pool.blocks_total == 64, step
        assert pool.block_pool.used == len(held) + pool.blocks_idle
        pool.check()


def test_the_least_recently_used_goes_first_and_the_deepest_of_it(pool):
    old, new = prompt((0, 20 * SIZE)), prompt((5000, 20 * SIZE))
    for ids in (old, new):
        run(pool, ids)[0].free()
    held = pool.allocate(64 - 40 + 5)  # five more than are free
    assert pool.blocks_idle == 35
    found = pool.sequence(np.append(old, 0))
    assert found.length == 15 * SIZE
    found.free()
    pool.free(held)
    held = pool.allocate(64 - 35 + 20)  # now the other prompt is the older one
    assert pool.sequence(np.append(old, 0)).length == 15 * SIZE
    assert pool.sequence(np.append(new, 0)).length == 0
    pool.check()


def test_can_counts_what_is_idle_and_do_takes_it(pool):
    run(pool, prompt((0, 40 * SIZE)))[0].free()
    assert pool.can_allocate(64)
    assert not pool.can_allocate(65)
    before = pool.blocks_idle
    with pytest.raises(vmm.OutOfMemoryError):
        pool.allocate(65)
    assert pool.blocks_idle == before
    assert len(pool.allocate(64)) == 64


def test_trim_gives_back_what_is_idle_only_when_told(pool):
    run(pool, prompt((0, 40 * SIZE)))[0].free()
    committed = pool.committed
    pool.trim()
    assert pool.committed == committed
    assert pool.trim(cache=True) == committed
    assert (pool.committed, pool.blocks_idle) == (0, 0)
    pool.check()


def test_a_commit_that_fails_evicts_nothing(failing, make_layout, picture):
    device, api = failing
    with paged.KVPool(device, make_layout(512), blocks=64, budget=32 * MIB, prefix_cache=True) as pool:
        run(pool, prompt((0, 16 * SIZE)))[0].free()
        before = picture(pool)
        api.arm("cuMemMap", 3, code=1)
        with pytest.raises(vmm.DriverError):
            pool.allocate(pool.blocks_free)
        assert picture(pool) == before
        assert pool.blocks_idle == 16


def test_after_a_sleep_without_a_backup_nothing_is_known(pool):
    """Case 17, vllm#29341."""
    ids = prompt((0, 100))
    kept, _ = run(pool, ids)
    kept.publish()
    residency = vmm.Residency(pool.device)
    residency.add(pool.range, "kv")
    residency.sleep("kv", backup=False)
    residency.wake("kv")
    assert pool.sequence(ids).length == 0
    kept.free()
    assert pool.sequence(ids).length == 0
    assert pool.block_pool.used == 0
    pool.check()


@pytest.mark.parametrize("wrong", [[[1, 2]], [1.5], [-1], [1 << 31], "text", 5])
def test_prompts_are_token_ids(pool, wrong):
    with pytest.raises(ValueError, match="token ids"):
        pool.sequence(wrong)
    assert pool.sequences == []


def test_a_pool_without_a_cache_says_so(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget=32 * MIB) as pool:
        with pytest.raises(ValueError, match="make it with prefix_cache=True"):
            pool.sequence([1, 2, 3])
        sequence = pool.sequence()
        assert len(sequence.append([1, 2, 3])) == 3


def random_life(pool, steps, seed):
    """Against a model that knows for each block which tokens it holds: every hit must be the prompt's own tokens."""
    rng = random.Random(seed)
    content, running = {}, []
    for _ in range(steps):
        choice = rng.random()
        if choice < 0.4:
            ids = prompt((rng.choice([0, 3]), rng.randrange(1, 80)), (rng.choice([0, 9]), rng.randrange(0, 80)))
            salt = rng.randrange(2)
            sequence = pool.sequence(ids, salt=salt)
            for place, block in enumerate(sequence.table):
                assert content[block] == (salt, tuple(ids[: (place + 1) * SIZE].tolist()))
            missing = len(ids) - sequence.length
            if not sequence.can_append(missing):
                sequence.free()
                continue
            sequence.append(missing)
            running.append((sequence, salt, ids.tolist()))
        elif choice < 0.7 and running:
            sequence, salt, ids = rng.choice(running)
            more = [rng.randrange(3) for _ in range(rng.randrange(1, 20))]
            if sequence.can_append(len(more)):
                sequence.append(more)
                ids += more
        elif choice < 0.75 and running:
            sequence, salt, ids = rng.choice(running)
            running.append((sequence.fork(), salt, list(ids)))
        elif running:
            running.pop(rng.randrange(len(running)))[0].free()
        for sequence, salt, ids in running:
            for place, block in enumerate(sequence.table[: len(ids) // SIZE]):
                content[block] = (salt, tuple(ids[: (place + 1) * SIZE]))
        pool.check()
    assert pool.prefix.cache.counters.hit > steps
    assert pool.prefix.cache.counters.evicted > steps // 20


@pytest.mark.parametrize("seed", range(3))
def test_every_hit_holds_the_tokens_of_its_prompt(pool, seed):
    random_life(pool, 500, seed)


@pytest.mark.exhaustive
def test_every_hit_holds_the_tokens_of_its_prompt_at_length(pool):
    random_life(pool, 100_000, 77)


def test_a_pool_chooses_the_order_and_tells_of_what_it_stores(device, make_layout):
    heard = []
    layout = make_layout(512)
    with paged.KVPool(device, layout, budget="16 MiB", prefix_cache="row", cache_events=heard.append) as pool:
        sequence = pool.sequence(np.arange(40, dtype=np.int32))
        sequence.append(40)
        sequence.free()
        assert pool.sequence(np.arange(40, dtype=np.int32)).length == 32
        pool.sequences[0].free()
        pool.trim(cache=True)
    kinds = [event.record()[0] for event in heard if hasattr(event, "record") and event.record()]
    assert kinds[0] == "BlockStored"
    assert "BlockRemoved" in kinds
    with pytest.raises(ValueError, match="order must be one of lru, row, blend, not 'oldest'"):
        paged.KVPool(device, layout, budget="16 MiB", prefix_cache="oldest")
