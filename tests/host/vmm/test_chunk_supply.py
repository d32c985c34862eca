import gc
import threading

import pytest

import vmm

MIB = 1 << 20


def test_chunks_are_reused_before_any_is_created(device):
    with vmm.ChunkSupply(device, cache="4 MiB") as supply:
        first = supply.take(3)
        handles = {chunk.handle for chunk in first}
        supply.give(first)
        assert (supply.in_use, supply.cached) == (0, 4 * MIB)
        again = supply.take(3)
        assert len({chunk.handle for chunk in again} & handles) == 2
        supply.give(again)


def test_without_a_cache_memory_goes_back_at_once(device):
    free = device.memory_info().free
    with vmm.ChunkSupply(device) as supply:
        supply.give(supply.take(5))
        assert device.memory_info().free == free


def test_the_budget_bounds_what_is_in_use_and_a_refusal_changes_nothing(device):
    with vmm.ChunkSupply(device, budget="9 MiB") as supply:  # room for four chunks of 2 MiB, not for a part of one
        assert supply.available == 8 * MIB
        held = supply.take(3)
        assert supply.can_take(1)
        assert not supply.can_take(2)
        with pytest.raises(vmm.OutOfMemoryError, match=r"4 MiB asked, 2 MiB left"):
            supply.take(2)
        assert (supply.in_use, supply.cached, supply.available) == (6 * MIB, 0, 2 * MIB)
        held += supply.take(1)
        supply.give(held)


def test_case_7_a_cached_chunk_never_stands_in_the_way(device):
    """cupy#7678: limit of 2 chunks, one cached: asking for 2 is never refused while nothing is in use."""
    with vmm.ChunkSupply(device, budget="4 MiB", cache="4 MiB") as supply:
        supply.give(supply.take(1))
        assert supply.cached == 2 * MIB
        both = supply.take(2)
        assert device.memory_info().total - device.memory_info().free == 4 * MIB
        supply.give(both)


def test_case_5_only_what_is_missing_is_created(rules):
    """rmm#1957: 256 units used and given back, then one contiguous 1024: 768 new ones."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=rules.driver.api, recorder=recorder) as device:
        supply = vmm.ChunkSupply(device, budget=1024 * 2 * MIB, cache=1024 * 2 * MIB)
        with supply, vmm.GrowableRange(device, 2048 * 2 * MIB, supply=supply) as memory:
            memory.commit(range(256))
            memory.decommit(range(256))
            recorder.clear()
            memory.commit(range(512, 1536))
            assert recorder.counts()["cuMemCreate"] == 768


def test_a_device_that_runs_full_midway_leaves_nothing_created(failing):
    device, api = failing
    with vmm.ChunkSupply(device, cache="2 MiB") as supply:
        supply.give(supply.take(1))
        for at in (1, 2, 3):
            api.arm("cuMemCreate", at)
            with pytest.raises(vmm.OutOfMemoryError, match=f"chunk {at} of 3"):
                supply.take(4)
            assert (supply.in_use, supply.cached) == (0, 2 * MIB)
            assert device.driver.api.live().allocations == 1
        supply.give(supply.take(4))


@pytest.mark.parametrize("chunk", [1, "1 MiB", "3 MiB"])
def test_a_chunk_that_is_no_multiple_of_the_granularity_is_refused(device, chunk):
    with pytest.raises(vmm.AlignmentError, match=r"granularity 2 MiB"):
        vmm.ChunkSupply(device, chunk)


def test_only_what_was_given_comes_back_and_once(device):
    supply, other = vmm.ChunkSupply(device, cache="8 MiB"), vmm.ChunkSupply(device, "4 MiB")
    with supply, other, vmm.PhysicalMemory(device, "2 MiB") as stray:
        held, foreign = supply.take(2), other.take(1)
        for wrong in ([stray], [held[0], held[0]], [held[0], *foreign]):
            with pytest.raises(vmm.StateError, match="was given back"):
                supply.give(wrong)
            assert (supply.in_use, supply.cached) == (4 * MIB, 0)
        supply.give([held[0]])
        with pytest.raises(vmm.StateError, match="was given back"):
            supply.give([held[0]])
        held[1].close()
        supply.give([held[1]])
        assert (supply.in_use, supply.cached) == (0, 2 * MIB)  # a closed chunk is not kept for the next taker
        other.give(foreign)


def test_a_closed_supply_gives_nothing_and_still_takes_back(device):
    supply = vmm.ChunkSupply(device, cache="8 MiB")
    held = supply.take(2)
    supply.close()
    with pytest.raises(vmm.ClosedError):
        supply.take(1)
    supply.give(held)
    assert device.driver.api.live().allocations == 0


def test_a_dropped_supply_releases_its_cache_with_a_warning(device):
    supply = vmm.ChunkSupply(device, cache="8 MiB")
    supply.give(supply.take(2))
    with pytest.warns(ResourceWarning, match="2 cached chunks"):
        del supply
        gc.collect()
    assert device.driver.api.live().allocations == 0


def test_threads_share_a_supply_without_exceeding_its_budget(rules):
    supply = vmm.ChunkSupply(rules, budget="64 MiB", cache="16 MiB")
    refusals, errors = [], []

    def work():
        try:
            for _ in range(300):
                try:
                    held = supply.take(5)
                except vmm.OutOfMemoryError as refusal:
                    refusals.append(refusal)
                    continue
                assert supply.in_use <= 64 * MIB
                supply.give(held)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert supply.in_use == 0
    assert 0 < supply.cached <= 16 * MIB
    assert rules.driver.api.live().allocations == supply.cached // (2 * MIB)
    supply.close()
    assert rules.driver.api.live().allocations == 0
