"""KVPool.can_begin: whether a whole prompt has room, with what others hold of its known prefix shared."""

import random

import numpy as np
import pytest

import paged
import vmm

MIB = 1 << 20
SPEC = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")  # 1 KiB a token


def prompt_of(draw: random.Random) -> np.ndarray:
    """One of few beginnings, and an end of its own."""
    start = np.full(draw.choice((0, 16, 64, 200, 500)), draw.randint(1, 3), np.int32)
    return np.concatenate((start, np.array([draw.randint(10, 10**6) for _ in range(draw.randint(1, 60))], np.int32)))


def begins(pool: paged.KVPool, prompt: np.ndarray, spare: int) -> bool:
    """Do it, undo it, and say whether it went."""
    sequence = pool.sequence(prompt)
    try:
        sequence.append(prompt[sequence.length :])
        return pool.can_allocate(spare)
    except vmm.OutOfMemoryError:
        return False
    finally:
        sequence.free()


@pytest.mark.parametrize("block_size", [16, 24, 100])  # 24 and 100: blocks lie across two rows
@pytest.mark.parametrize("order", ["block", "layer"])
def test_it_is_so_exactly_if_it_can_be_done(rules, block_size, order):
    draw, said = random.Random(f"{block_size}{order}"), {True: 0, False: 0}
    layout = paged.KVLayout(SPEC, block_size=block_size, order=order)
    with paged.KVPool(rules, layout, budget=4 * layout.row_bytes, prefix_cache=True) as pool:
        held: list[paged.Sequence] = []
        longest = pool.blocks_total * block_size
        for _ in range(400):
            prompt, spare = np.resize(prompt_of(draw), draw.randint(1, longest // 2)), draw.choice((0, 0, 1, 5, 40))
            can = pool.can_begin(prompt, spare=spare)
            said[can] += 1
            assert begins(pool, prompt, spare) == can
            if can:
                held.append(pool.sequence(prompt))
                held[-1].append(prompt[held[-1].length :])
                held[-1].publish()
            while held and draw.random() < 0.4:
                held.pop(draw.randrange(len(held))).free()
            pool.check()
    assert min(said.values()) > 40


def test_only_what_others_hold_takes_no_room(device):
    prompt = np.arange(1024, dtype=np.int32)
    with paged.KVPool(device, paged.KVLayout(SPEC), budget="2 MiB", prefix_cache=True) as pool:
        first = pool.sequence(prompt)
        first.append(prompt)
        first.publish()
        rest = pool.allocate(pool.blocks_free - 1)
        assert pool.can_begin(prompt)  # one block, for the last is never shared
        assert not pool.can_begin(prompt, spare=1)
        assert not pool.can_begin(prompt, salt=7)
        asked = pool.prefix.cache.counters.asked
        assert asked == 1024  # a question counts for nothing
        first.free()
        assert pool.can_begin(prompt)  # idle blocks are shared, or go
        assert pool.can_begin(prompt, spare=1) and not pool.can_begin(prompt, spare=2)
        pool.free(rest)


def test_a_prompt_is_token_ids_and_the_pool_has_a_cache(device):
    refused = pytest.raises(ValueError, match="has no prefix cache; make it with prefix_cache=True")
    with paged.KVPool(device, paged.KVLayout(SPEC), budget="2 MiB") as pool, refused:
        pool.can_begin([1, 2, 3])


def test_not_while_the_pool_sleeps_and_nothing_is_known_after_it_lost_its_bytes(device):
    prompt = np.arange(64, dtype=np.int32)
    with paged.KVPool(device, paged.KVLayout(SPEC), budget="2 MiB", prefix_cache=True) as pool:
        sequence = pool.sequence(prompt)
        sequence.append(prompt)
        sequence.publish()
        residency = vmm.Residency(device)
        residency.add(pool.range, "kv")
        residency.sleep("kv", backup=False)
        assert not pool.can_begin(prompt)
        residency.wake("kv")
        pool.allocate(pool.blocks_free - 1)
        assert not pool.can_begin(prompt)
        sequence.free()


@pytest.mark.parametrize("spare", [-1, -1000])
def test_less_than_no_blocks_to_spare_is_refused(rules, spare):
    with (
        paged.KVPool(rules, paged.KVLayout(SPEC), budget="4 MiB", prefix_cache=True) as pool,
        pytest.raises(vmm.RangeError, match=f"^spare must be 0 blocks or more, not {spare}$"),
    ):
        pool.can_begin([1, 2, 3], spare=spare)
