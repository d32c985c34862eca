"""Attention over a list, a batch, and tables on the device; and over sequences that have dropped their beginning."""

import numpy as np
import pytest

import paged
import vmm
from kernels_cu import reference
from paged import attention

STREAMS = ("eager", "deferred")
MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.fixture
def pool(device):
    layout = paged.KVLayout(paged.KVSpec(1, 2, 64, "float16"), 16, "block")
    with paged.KVPool(device, layout, budget=32 * MIB) as made:
        yield made
        made.check()


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def filled(pool, lengths):
    """A batch of sequences of these lengths, and their K and V."""
    batch, keys, values = paged.Batch(pool), [], []
    for number, length in enumerate(lengths):
        key, value = drawn(number, 2, length, 2, 64)
        sequence = pool.sequence()
        attention.append(pool, 0, key, value, sequence.append(length))
        batch.add(sequence)
        keys.append(key)
        values.append(value)
    return batch, keys, values


def error_of(out, expected):
    return np.abs(out.astype(np.float64) - expected).max()


@pytest.mark.parametrize("kernel", ["simple", "fast"])
def test_lists_batches_and_device_tables_are_the_same_sequences(pool, device, kernel):
    batch, keys, values = filled(pool, [33, 1, 16])
    query = drawn(9, 3, 4, 64)
    with paged.DeviceTables(batch, 4, 8) as tables:
        tables.update()
        outs = [attention.decode(pool, 0, query, form, kernel=kernel) for form in (list(batch), batch, tables)]
        device.synchronize()
    expected = reference.paged_attention(query, keys, values)
    for out in outs:
        assert error_of(out, expected) <= 2e-3 * 4
        assert (out == outs[0]).all()


def test_decode_steps_from_device_tables(pool, device):
    """Three steps are queued before one of them runs: each attends over what there was in its own time."""
    batch, keys, values = filled(pool, [15, 40])
    outs, expected = [], []
    with paged.DeviceTables(batch, 2, 8) as tables:
        for step in range(3):
            batch.append()
            tables.update()
            key, value = drawn(100 + step, 2, 2, 2, 64)
            attention.append(pool, 0, key, value, tables.slots[:2])
            query = drawn(200 + step, 2, 4, 64)
            outs.append(attention.decode(pool, 0, query, tables))
            keys = [np.concatenate((old, new[None])) for old, new in zip(keys, key, strict=True)]
            values = [np.concatenate((old, new[None])) for old, new in zip(values, value, strict=True)]
            expected.append(reference.paged_attention(query, keys, values))
        device.synchronize()
    for out, wanted in zip(outs, expected, strict=True):
        assert error_of(out, wanted) <= 2e-3 * 4


@pytest.mark.parametrize("poison", [0x7F, 0x00])
def test_slots_on_the_device_are_not_looked_at_before_they_are_there(poison):
    """Of fresh memory they would be refused, or those of another step be taken for good."""
    api = vmm.HostDriver(memory="256 MiB", streams="deferred", poison=poison)
    layout = paged.KVLayout(paged.KVSpec(1, 2, 64, "float16"), 16, "block")
    with vmm.Device(driver=api) as device, paged.KVPool(device, layout, budget=32 * MIB) as pool:
        batch, keys, values = filled(pool, [15, 40])
        with paged.DeviceTables(batch, 2, 8) as tables:
            batch.append()
            tables.update()
            key, value = drawn(100, 2, 2, 2, 64)
            attention.append(pool, 0, key, value, tables.slots[:2])
            query = drawn(200, 2, 4, 64)
            out = attention.decode(pool, 0, query, tables)
            keys = [np.concatenate((old, new[None])) for old, new in zip(keys, key, strict=True)]
            values = [np.concatenate((old, new[None])) for old, new in zip(values, value, strict=True)]
            device.synchronize()
        assert error_of(out, reference.paged_attention(query, keys, values)) <= 2e-3 * 4
        with pytest.raises(vmm.RangeError, match=r"slot \d+ is not there"):
            attention.append(pool, 0, key, value, np.array([0, 10**9]))


def test_tables_that_are_older_than_their_batch_are_refused(pool):
    batch, _keys, _values = filled(pool, [16, 5])
    query = drawn(9, 2, 4, 64)
    with paged.DeviceTables(batch, 4, 8) as tables:
        changes = [
            lambda: None,
            batch.append,
            lambda: next(iter(batch)).append(3),
            lambda: (batch.remove(list(batch)[1]), batch.add(pool.sequences[1])),
        ]
        for change in changes:
            change()
            with pytest.raises(vmm.StateError, match=r"has changed since its tables were updated; call update\(\)"):
                attention.decode(pool, 0, query, tables)
            tables.update()
            assert attention.decode(pool, 0, query, tables).shape == query.shape


def test_another_pools_batch_is_refused(pool, device):
    batch, _keys, _values = filled(pool, [16])
    with paged.KVPool(device, pool.layout, budget=8 * MIB, name="other") as other:
        for form in (batch, list(batch)):
            with pytest.raises(ValueError, match="was given to 'other', another pool"):
                attention.decode(other, 0, drawn(9, 1, 4, 64), form)


# -- sequences that drop their beginning ------------------------------------------------------------------------


def test_dropped_blocks_come_free_and_nothing_else_changes(pool):
    sequence = pool.sequence()
    sequence.append(100)
    table = sequence.table
    assert sequence.drop_before(40) == 2
    assert (sequence.table, sequence.held) == ([-1, -1, *table[2:]], table[2:])
    assert (sequence.length, sequence.dropped, pool.tokens, pool.block_pool.used) == (100, 32, 68, 5)
    assert sequence.drop_before(47) == 0  # no whole block more
    assert sequence.drop_before(100) == 4
    assert sequence.append(20).tolist() == [table[6] * 16 + 4 + token for token in range(12)] + [
        sequence.table[7] * 16 + token for token in range(8)
    ]
    sequence.free()
    assert (pool.tokens, pool.block_pool.used) == (0, 0)


def test_what_a_fork_shares_is_dropped_by_one_of_them_only(pool):
    parent = pool.sequence()
    parent.append(40)
    child = parent.fork()
    assert parent.drop_before(32) == 2
    assert (child.table[:2], pool.tokens) == (child.held[:2], 40)
    other = parent.fork()
    assert (other.dropped, other.held) == (32, parent.held)
    child.free()
    assert pool.tokens == 8
    parent.free()
    other.free()
    assert pool.tokens == 0


def test_what_is_not_there_is_not_dropped(pool):
    sequence = pool.sequence()
    sequence.append(20)
    for token in (-1, 21):
        with pytest.raises(vmm.RangeError, match=f"token {token} cannot be dropped up to; the sequence has 20"):
            sequence.drop_before(token)
    sequence.free()
    with pytest.raises(vmm.ClosedError):
        sequence.drop_before(0)


@pytest.mark.parametrize("window", [40, 64])
def test_a_window_does_not_see_what_was_dropped(pool, device, window):
    batch, keys, values = filled(pool, [100, 30])
    query = drawn(9, 2, 4, 64)
    long = next(iter(batch))
    long.drop_before(100 - window)
    keep = pool.allocate(2)  # the blocks that came free, with bytes that nobody may see
    for block in keep:
        pool.view(block, 0)[...] = np.nan
    out = attention.decode(pool, 0, query, batch, window=window, kernel="fast")
    device.synchronize()
    seen = [part[-window:] for part in keys], [part[-window:] for part in values]
    assert error_of(out, reference.paged_attention(query, *seen)) <= 2e-3 * 4
    key, _value = attention.gather(pool, 0, long)
    assert (key == keys[0][long.dropped :]).all()
    pool.free(keep)


def test_attention_that_would_look_at_what_was_dropped_is_refused(pool):
    batch, _keys, _values = filled(pool, [100, 30])
    next(iter(batch)).drop_before(60)
    query = drawn(9, 2, 4, 64)
    with pytest.raises(ValueError, match="sequence 0 has dropped its first 48 of 100 tokens and attention with no win"):
        attention.decode(pool, 0, query, batch)
    with pytest.raises(ValueError, match="attention with a window of 53 would look at them"):
        attention.decode(pool, 0, query, batch, window=53, kernel="fast")
    attention.decode(pool, 0, query, batch, window=52, kernel="fast")
    chunk = drawn(9, 11, 4, 64)
    with pytest.raises(ValueError, match="attention with a window of 44 would look at them"):
        attention.prefill(pool, 0, chunk, batch, [10, 1], window=44, kernel="fast")
    attention.prefill(pool, 0, chunk, batch, [10, 1], window=43, kernel="fast")


def test_a_chain_goes_on_behind_what_was_dropped(device, make_layout):
    with paged.KVPool(device, make_layout(64), budget=32 * MIB, prefix_cache=True) as pool:
        prompt = np.arange(64, dtype=np.int32)
        sequence = pool.sequence(prompt)
        sequence.append(50)
        assert sequence.drop_before(40) == 2  # three blocks were published, the third is held still
        sequence.append(14)
        sequence.free()
        pool.check()
        assert pool.sequence(prompt).length == 48  # and at least one token is left to compute
        assert pool.sequence(np.append(prompt, 64)).length == 64


def test_a_chain_whose_last_block_was_dropped_ends_there(device, make_layout):
    with paged.KVPool(device, make_layout(64), budget=32 * MIB, prefix_cache=True) as pool:
        prompt = np.arange(65, dtype=np.int32)
        sequence = pool.sequence(prompt)
        sequence.append(40)
        assert sequence.drop_before(40) == 2
        sequence.append(25)
        sequence.free()
        pool.check()
        assert pool.sequence(prompt).length == 32


def test_a_chain_whose_beginning_was_dropped_does_not_go_on_behind_another(device, make_layout):
    """A dropped place of the table reads as block 0, which is somebody's: nothing may hang on it, nor on keys alone."""
    with paged.KVPool(device, make_layout(64), budget=32 * MIB, prefix_cache=True) as pool:
        pool.prefix.cache._hash = lambda tokens, size, *_before: np.full(len(tokens) // size, 7, np.uint64)
        first, prompt = np.arange(1000, 1017, dtype=np.int32), np.arange(65, dtype=np.int32)
        holder = pool.sequence(first)
        holder.append(17)
        holder.publish()
        assert holder.table[0] == 0
        sequence = pool.sequence(prompt)
        sequence.append(40)
        sequence.drop_before(40)
        sequence.append(25)
        sequence.publish()
        assert pool.sequence(np.concatenate((first[:16], prompt[32:]))).length == 16
