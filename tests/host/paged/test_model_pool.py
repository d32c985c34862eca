"""A model of several groups: full and windowed layers and a latent, each with a pool, on one budget; all or none."""

import random

import numpy as np
import pytest

import paged
import vmm
from paged.model_pool import ModelPool

STREAMS = ("eager", "deferred")
CHUNK = 2 << 20
FULL = paged.KVSpec(2, 1, 2048, "float32")  # 512 KiB a block of 16 tokens
WINDOWED = paged.KVSpec(4, 1, 1024, "float32", window=40)  # as much
LATENT = paged.KVSpec(3, 1, 4096, "float32", components=1)  # 768 KiB: blocks straddle


@pytest.fixture(params=["block", "layer"])
def model(request, device):
    with ModelPool(device, [FULL, WINDOWED, LATENT], budget=40 * CHUNK, order=request.param, name="m") as made:
        yield made


def write(sequence, seed):
    for group, part in enumerate(sequence.parts):
        for place, block in enumerate(part.held):
            for layer in range(part.pool.layout.spec.layers):
                part.pool.view(block, layer)[...] = seed + group * 100 + place


def check(sequence, seed, places):
    for group, part in enumerate(sequence.parts):
        for place, block in zip(places[group], part.held[: len(places[group])], strict=True):
            assert np.all(part.pool.view(block, 0) == seed + group * 100 + place)


def books(model):
    return [
        (pool.tokens, pool.block_pool.used, pool.block_pool.shared, [one.table for one in pool.sequences])
        for pool in model.pools
    ]


def test_a_sequence_has_its_tokens_in_every_group(model):
    sequence = model.sequence()
    slots = sequence.append(40)
    assert [len(one) for one in slots] == [40, 40, 40]
    assert (sequence.length, [len(part.table) for part in sequence.parts]) == (40, [3, 3, 3])
    sequence.append([1, 2, 3])  # ids, which nobody keeps without a prefix cache
    assert model.live == 43 * (FULL.token_bytes + WINDOWED.token_bytes + LATENT.token_bytes)
    use = model.groups()
    assert [one.spec for one in use] == [FULL, WINDOWED, LATENT]
    assert [one.blocks for one in use] == [3, 3, 3]
    assert sum(one.committed for one in use) == model.committed == model.supply.in_use
    model.check()
    sequence.free()
    sequence.free()
    model.device.synchronize()
    assert (model.live, model.sequences, model.supply.in_use) == (0, [], 0)


def test_one_group_that_lacks_memory_stops_all_of_them(model):
    """Each group alone could have its blocks; together they cannot."""
    held = model.sequence()
    while held.can_append(16):
        held.append(16)
    before = books(model)
    with pytest.raises(vmm.OutOfMemoryError, match=r"1 of 'm\.0', which alone could have 0, 1 of 'm\.1'"):
        held.append(16)
    assert books(model) == before
    model.check()
    other = model.sequence()
    assert not other.can_append(1)
    with pytest.raises(vmm.OutOfMemoryError):
        other.append(1)
    assert books(model)[0][:3] == before[0][:3]
    held.free()
    assert other.can_append(1)
    other.append(1)


def test_windows_leave_by_themselves_and_no_query_misses_a_token(model):
    sequence = model.sequence()
    for step in range(1, 200):
        start = sequence.length
        sequence.append(step % 3 + 1)
        full, windowed, latent = sequence.parts
        assert full.dropped == latent.dropped == 0
        first_seen = max(0, start - WINDOWED.window + 1)  # by the first of the new tokens
        assert first_seen - 16 < windowed.dropped <= first_seen
        assert len(windowed.held) <= (WINDOWED.window + 3) // 16 + 2
        if step % 40 == 0:
            model.check()


def test_a_fork_shares_in_every_group_and_a_shared_tail_is_copied_in_every_group(model):
    parent = model.sequence()
    parent.append(56)  # half a block
    write(parent, 1)
    child = parent.fork()
    assert [part.table for part in child.parts] == [part.table for part in parent.parts]
    child.append(1)
    for one, two in zip(parent.parts, child.parts, strict=True):
        left = len(two.table) - len(two.held)  # what the window of a group let go as it went on
        assert one.table[left:3] == two.table[left:3]
        assert one.table[3] != two.table[3]
    model.device.synchronize()
    whole = [range(4), range(4), range(4)]
    check(parent, 1, whole)
    model.check()
    parent.free()
    child.free()
    assert model.live == 0


def test_memory_flows_between_the_groups(device):
    """Windowed groups need little of a long sequence and as much as others of many short ones."""
    with ModelPool(device, [FULL, WINDOWED], budget=16 * CHUNK) as model:
        long = model.sequence()
        for _ in range(45):
            long.append(16)
        full, windowed = model.groups()
        assert full.committed > 2.5 * windowed.committed
        long.free()
        several = [model.sequence() for _ in range(8)]
        for sequence in several:
            sequence.append(48)
        full, windowed = model.groups()
        assert full.committed == windowed.committed == 6 * CHUNK
        model.check()


def test_a_prompt_begins_with_what_every_group_knows(device):
    with ModelPool(device, [FULL, WINDOWED], budget=32 * CHUNK, prefix_cache=True) as model:
        ids = np.arange(33, dtype=np.int32)
        first = model.sequence(ids)
        first.append(ids)
        first.publish()
        again = model.sequence(np.arange(40, dtype=np.int32))
        assert [part.length for part in again.parts] == [32, 32]
        again.append(np.arange(32, 90, dtype=np.int32))
        again.append([90])  # the window has left the beginning of one group
        again.publish()
        first.free()
        model.pools[1].trim(cache=True)
        third = model.sequence(np.arange(200, dtype=np.int32))
        assert {part.length for part in third.parts} == {min(part.length for part in third.parts)}
        third.append(np.arange(third.length, 60, dtype=np.int32))
        model.check()


def test_a_group_uses_its_idle_blocks_where_another_needs_the_last_row(device):
    """Taken in turn, the first group would take the row and leave the second without."""
    with ModelPool(device, [FULL, FULL], budget=4 * CHUNK, prefix_cache=True) as model:
        ids = np.arange(32, dtype=np.int32)
        cached = model.sequence(ids)
        cached.append(ids)
        cached.free()
        sequence = model.sequence()
        sequence.append(32)
        first, second = model.pools
        second.trim(cache=True)
        second.allocate(2)
        first.allocate(4)
        state = [(pool.block_pool.available, pool.blocks_idle) for pool in model.pools]
        assert (state, model.supply.available) == ([(0, 2), (0, 0)], CHUNK)
        assert sequence.can_append(1)
        sequence.append(1)
        model.check()
        assert model.supply.available == 0


def test_two_models_on_one_budget(device):
    with vmm.ChunkSupply(device, budget=24 * CHUNK) as supply:
        shares = supply.share("a", floor=4 * CHUNK), supply.share("b", floor=4 * CHUNK, ceiling=20 * CHUNK)
        one = ModelPool(device, [FULL, WINDOWED], supply=shares[0], name="one", prefix_cache=True)
        two = ModelPool(device, [FULL, LATENT], supply=shares[1], name="two")
        for round_ in range(3):
            ids = np.arange(round_, round_ + 200, dtype=np.int32)
            busy = one.sequence(ids)
            busy.append(ids[busy.length :])
            busy.free()
            other = two.sequence()
            while other.can_append(32):
                other.append(32)
            assert two.committed >= 16 * CHUNK
            for model in (one, two):
                model.check()
            assert shares[0].in_use <= 8 * CHUNK
            other.free()
        by_name = {holder.name: holder.in_use for holder in supply.holders()}
        assert by_name["a"] == one.committed
        for model in (one, two):
            model.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_what_can_be_appended_is_appended(rules, seed, prefix_cache):
    """``can_append`` is the truth for all groups together, whatever is idle and shared."""
    draw = random.Random(seed)
    with ModelPool(rules, [FULL, WINDOWED, LATENT], budget=48 * CHUNK, prefix_cache=prefix_cache) as model:
        seen = {True: 0, False: 0}
        for step in range(250):
            choice = draw.random()
            if choice < 0.3 or not model.sequences:
                prompt = np.arange(draw.choice([0, 1000]), 3000, dtype=np.int32) if prefix_cache else None
                model.sequence(prompt)
            elif choice < 0.4:
                draw.choice(model.sequences).fork()
            elif choice < 0.55:
                draw.choice(model.sequences).free()
            if model.sequences:
                sequence = draw.choice(model.sequences)
                tokens = draw.randint(1, 90)
                if prefix_cache:
                    tokens = np.arange(sequence.length, sequence.length + tokens, dtype=np.int32)
                can = sequence.can_append(len(tokens) if prefix_cache else tokens)
                seen[can] += 1
                before = books(model)
                if can:
                    sequence.append(tokens)
                else:
                    with pytest.raises(vmm.OutOfMemoryError):
                        sequence.append(tokens)
                    assert books(model) == before
            if step % 10 == 0:
                model.check()
        assert min(seen.values()) > 5


def test_what_makes_no_model_is_refused(device):
    with pytest.raises(ValueError, match="0 groups"):
        ModelPool(device, [], budget="16 MiB")
    with pytest.raises(ValueError, match="4 MiB for 3 groups, which need 6 MiB for a block each"):
        ModelPool(device, [FULL, WINDOWED, LATENT], budget="4 MiB")
    with pytest.raises(ValueError, match="either budget=, or supply="):
        ModelPool(device, [FULL])
    with vmm.ChunkSupply(device) as endless, pytest.raises(ValueError, match="either budget=, or supply="):
        ModelPool(device, [FULL], supply=endless)
    assert device.driver.api.live().reservations == 0


def test_a_published_model_is_a_pool_a_group(rules):
    spec = paged.model("mistral-7b")  # a window of 4,096 tokens
    with ModelPool(rules, spec, budget="8 GiB") as model:
        assert [one.spec for one in model.groups()] == list(spec.groups)
        sequence = model.sequence()
        sequence.append(6000)
        assert model.live == 6000 * spec.token_bytes
        sequence.append(1)
        assert model.live == (6001 - (6000 - 4096 + 1) // 16 * 16) * spec.token_bytes
        model.check()
