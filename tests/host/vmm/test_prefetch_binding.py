"""The prefetching thread over the real bindings: it asks for the same bytes as a taker, and needs no context."""

import vmm

UNIT = 2 << 20


def grow_from_prefetched():
    with (
        vmm.Device(0, driver="cuda") as device,
        vmm.ChunkSupply(device, budget=4 * UNIT, prefetch=3 * UNIT) as supply,
        vmm.GrowableRange(device, "64 MiB", supply=supply) as memory,
    ):
        supply.wait_prefetched(30)
        ready = supply.cached
        memory.grow(3 * UNIT)  # all of these lay ready
        supply.wait_prefetched(30)
        return ready, supply.cached, memory.committed


def test_a_range_maps_what_the_thread_has_created(stub):
    seen, calls = stub(grow_from_prefetched)
    assert seen == (3 * UNIT, UNIT, 3 * UNIT)
    created = [call.out for call in calls.of("cuMemCreate")]
    assert len(set(created)) == 4
    mapped = [int.from_bytes(handle, "little") for _, _, _, handle, _ in calls.args("cuMemMap")]
    assert sorted(mapped) == sorted(created[:3])
    first = next(index for index, call in enumerate(calls) if call.name == "cuMemCreate")
    assert "cuCtxPushCurrent" not in [call.name for call in calls[:first]]


def take_created():
    with vmm.Device(0, driver="cuda") as device, vmm.ChunkSupply(device) as supply:
        supply.give(supply.take(1))


def test_the_thread_asks_for_the_same_bytes_as_a_taker(stub):
    _, calls = stub(take_created)
    _, ahead = stub(grow_from_prefetched)
    assert set(ahead.args("cuMemCreate")) == set(calls.args("cuMemCreate"))
