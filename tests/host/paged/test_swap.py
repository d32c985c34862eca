"""Preempted sequences go to pinned host memory and come back with the same bytes, in the order of streams."""

import gc
import random

import numpy as np
import pytest

import paged
import vmm
from paged.swap import SwapSpace

STREAMS = ("eager", "deferred")
CHUNK = 2 << 20
KINDS = [("block", 512, 1), ("layer", 256, 3), ("block", 768, 1), ("layer", 3072, 2)]


@pytest.fixture(params=KINDS, ids=[f"{order}-{size}-{layers}" for order, size, layers in KINDS])
def pool(request, device, make_layout):
    order, size, layers = request.param
    layout = make_layout(size, order=order, layers=layers)
    with paged.KVPool(device, layout, blocks=48, budget=128 << 20, name="kv") as made:
        yield made


@pytest.fixture
def space(device):
    with SwapSpace(device, "64 MiB") as made:
        yield made


def write(pool, sequence, seed, *, stream=0):
    """Queue writes of one byte a block and plane."""
    layout, device = pool.layout, pool.device
    stride = layout.plane_stride(pool.block_pool.rows.blocks)
    with device.current():
        for place, block in enumerate(sequence.held):
            for plane in range(layout.planes):
                at = pool.range.base + plane * stride + block * layout.block_stride
                device.driver.fill_async(at, (seed + place * 7 + plane) % 251 + 1, layout.block_stride, stream)


def check(pool, sequence, seed):
    layout = pool.layout
    pool.device.synchronize()
    stride = layout.plane_stride(pool.block_pool.rows.blocks)
    for place, block in enumerate(sequence.held):
        for plane in range(layout.planes):
            at = plane * stride + block * layout.block_stride
            found = pool.range.array("uint8", layout.block_stride, at)
            assert (found == (seed + place * 7 + plane) % 251 + 1).all(), (place, plane)


def test_a_round_trip_keeps_every_byte_and_frees_the_blocks_meanwhile(pool, space):
    """The work that wrote the blocks, the copies and the next owner's writes are only queued."""
    sequence = pool.sequence()
    sequence.append(100)  # the seventh block is partly filled
    write(pool, sequence, 3)
    swapped = space.put(sequence)
    assert not sequence.is_open
    assert (pool.block_pool.used, pool.tokens) == (0, 0)
    assert (space.used, swapped.host_bytes, swapped.blocks) == (7 * pool.layout.block_bytes,) * 2 + (7,)
    other = pool.sequence()
    other.append(112)  # on the same blocks
    write(pool, other, 77)
    again = space.restore(swapped)
    assert (again.length, len(again.table), pool.tokens) == (100, 7, 212)
    assert not set(again.table) & set(other.table)
    check(pool, again, 3)
    check(pool, other, 77)
    space.collect()
    assert (space.used, space.leaving, space.free) == (0, 0, space.size)
    pool.check()
    again.append(20)
    with pytest.raises(vmm.StateError, match="restored or discarded\\) is not in this swap space"):
        space.restore(swapped)


def finish(device, stream):
    """Let the work of one stream be done, and no other's."""
    with device.current():
        device.driver.stream_synchronize(stream)


def test_streams_have_an_order_of_their_own(device, make_layout, space, streams):
    """Out on one stream and in on another: the second waits for the first."""
    one, two = streams
    with paged.KVPool(device, make_layout(512), budget="16 MiB", reserve_rows=8) as pool:
        sequence = pool.sequence()
        sequence.append(50)
        write(pool, sequence, 9, stream=one)
        swapped = space.put(sequence, stream=one)
        pool.allocate(4)  # on which the bytes still are, or come to be
        again = space.restore(swapped, stream=two)
        finish(device, two)
        check(pool, again, 9)


def test_host_memory_is_not_used_again_under_a_copy(device, make_layout, streams):
    one, two = streams
    with paged.KVPool(device, make_layout(512), budget="32 MiB") as pool, SwapSpace(device, 4 * (512 << 10)) as space:
        first, second = pool.sequence(), pool.sequence()
        for seed, sequence in ((1, first), (2, second)):
            sequence.append(60)
            write(pool, sequence, seed, stream=one)
        swapped = space.put(first, stream=one)
        assert not space.can_put(second)
        with pytest.raises(vmm.OutOfMemoryError, match="2 MiB of host memory asked, 0 B of 2 MiB left"):
            space.put(second, stream=one)
        assert second.is_open
        back = space.restore(swapped, stream=two)  # queued
        assert space.can_put(second)
        later = space.put(second, stream=one)  # has to wait for the copy in
        finish(device, one)
        check(pool, back, 1)
        check(pool, space.restore(later), 2)
        assert space.swapped == []


def test_not_now_changes_nothing(device, make_layout, space, picture):
    with paged.KVPool(device, make_layout(512), budget=4 * CHUNK, blocks=64) as pool:
        sequence = pool.sequence()
        sequence.append(100)
        write(pool, sequence, 4)
        swapped = space.put(sequence)
        held = pool.allocate(12)
        before = picture(pool), space.used
        assert not space.can_restore(swapped)
        with pytest.raises(vmm.OutOfMemoryError):
            space.restore(swapped)
        assert (picture(pool), space.used) == before
        pool.free(held)
        assert space.can_restore(swapped)
        check(pool, space.restore(swapped), 4)


def test_shared_blocks_are_copied_and_come_back_unshared(pool, space):
    parent = pool.sequence()
    parent.append(40)
    write(pool, parent, 5)
    child = parent.fork()
    swapped = space.put(child)
    assert (parent.length, pool.block_pool.used, pool.block_pool.shared) == (40, 3, 0)
    again = space.restore(swapped)
    assert not set(again.table) & set(parent.table)
    for sequence in (parent, again):
        check(pool, sequence, 5)
    pool.check()


def test_what_a_window_dropped_stays_dropped(pool, space):
    sequence = pool.sequence()
    sequence.append(100)
    sequence.drop_before(40)
    write(pool, sequence, 6)
    swapped = space.put(sequence)
    assert (swapped.blocks, pool.tokens) == (5, 0)
    again = space.restore(swapped)
    assert (again.length, again.dropped, len(again.held), pool.tokens) == (100, 32, 5, 68)
    check(pool, again, 6)
    pool.check()
    again.append(30)
    pool.check()


def test_token_ids_stay_known(device, make_layout, space):
    layout = make_layout(512)
    with paged.KVPool(device, layout, budget="32 MiB", prefix_cache=True) as pool:
        ids = np.arange(64, dtype=np.int32)
        sequence = pool.sequence(ids)
        sequence.append(ids)
        sequence.append([64, 65])
        write(pool, sequence, 8)
        swapped = space.put(sequence)
        pool.trim(cache=True)
        assert pool.sequence(ids).length == 0
        again = space.restore(swapped)
        check(pool, again, 8)
        again.append(np.arange(66, 90, dtype=np.int32))
        again.publish()
        found = pool.sequence(np.arange(90, dtype=np.int32))
        assert (found.length, found.table) == (80, again.table[:5])
        pool.check()


def test_several_pools_use_one_space_and_small_blocks_fill_its_gaps(device, make_layout):
    small, large = make_layout(64), make_layout(256)
    with (
        paged.KVPool(device, small, budget="16 MiB") as one,
        paged.KVPool(device, large, budget="16 MiB") as two,
        SwapSpace(device, "2 MiB") as space,
    ):
        draw, here, out = random.Random(1), [], []
        seeds = {}
        for step in range(150):
            if draw.random() < 0.5 or not (here or out):
                pool = draw.choice([one, two])
                sequence = pool.sequence()
                sequence.append(draw.randint(1, 70))
                seeds[sequence] = step
                write(pool, sequence, step)
                here.append(sequence)
            if here and draw.random() < 0.6:
                sequence = here.pop(draw.randrange(len(here)))
                seed = seeds.pop(sequence)
                if space.can_put(sequence):
                    out.append((space.put(sequence), seed))
                else:
                    with pytest.raises(vmm.OutOfMemoryError):
                        space.put(sequence)
                    sequence.free()
            if out and draw.random() < 0.6:
                swapped, seed = out.pop(draw.randrange(len(out)))
                if draw.random() < 0.2 or not space.can_restore(swapped):
                    space.discard(swapped)
                    continue
                again = space.restore(swapped)
                check(again.pool, again, seed)
                again.free()
            assert space.used == sum(swapped.host_bytes for swapped, _seed in out)
            assert space.used + space.free + space.leaving == space.size
            for pool in (one, two):
                pool.check()
        for swapped, _seed in out:
            space.discard(swapped)
        device.synchronize()
        space.collect()
        assert space.free == space.size


def test_a_space_says_what_is_wrong(device, make_layout, space):
    with paged.KVPool(device, make_layout(512), budget="16 MiB", name="kv") as pool:
        sequence = pool.sequence()
        sequence.append(5)
        other = SwapSpace(device, "2 MiB")
        swapped = other.put(sequence)
        with pytest.raises(vmm.ClosedError, match="was freed"):
            space.put(sequence)
        with pytest.raises(vmm.StateError, match="is not in this swap space"):
            space.restore(swapped)
        other.discard(swapped)
        with pytest.raises(vmm.StateError, match="restored or discarded"):
            other.discard(swapped)
        other.close()
        other.close()
        with pytest.raises(vmm.ClosedError, match="swap space is closed"):
            other.can_put(sequence)
        lost = pool.sequence()
        lost.append(5)
        residency = vmm.Residency(device)
        residency.add(pool.range, "kv")
        residency.sleep("kv", backup=False)
        residency.wake("kv")
        with pytest.raises(vmm.StateError, match="were lost"):
            space.put(lost)
    with vmm.Device(driver=vmm.HostDriver(memory="16 MiB")) as elsewhere:
        far = paged.KVPool(elsewhere, make_layout(512), budget="8 MiB", name="far")
        sequence = far.sequence()
        with pytest.raises(vmm.RangeError, match="'far' is on"):
            space.put(sequence)
        far.close()


def test_a_space_that_is_dropped_says_so_and_frees_its_memory(device):
    space = SwapSpace(device, "2 MiB")
    assert device.driver.api.live().pinned == 1
    with pytest.warns(ResourceWarning, match="swap space was never closed"):
        del space
        gc.collect()
    assert device.driver.api.live().pinned == 0


def test_what_the_host_has_not_is_refused_and_nothing_is_kept(failing):
    device, api = failing
    api.arm("cuMemHostAlloc", 2)
    with pytest.raises(vmm.OutOfMemoryError, match="pinned host memory"):
        SwapSpace(device, "300 MiB")
    api.disarm()
    assert device.driver.api.live().pinned == 0


def test_without_bytes_the_books_are_the_same(rules, make_layout):
    with paged.KVPool(rules, make_layout(512), budget="1 GiB") as pool, SwapSpace(rules, "1 GiB") as space:
        sequence = pool.sequence()
        sequence.append(1000)
        again = space.restore(space.put(sequence))
        assert (again.length, space.used, pool.tokens) == (1000, 0, 1000)
        pool.check()
