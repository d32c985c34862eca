"""Supplies, ranges and heaps over the real bindings: the order of the calls and their bytes; nothing is left."""

import struct
from itertools import pairwise

import pytest
from cuda.bindings import driver as cuda

import vmm

UNIT = 2 << 20
STREAM, EVENT = 0x57E400001230, 0xE7E100004560
CHANGES = (
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuCtxSynchronize",
    "cuCtxRecordEvent",
    "cuEventQuery",
    "cuEventDestroy",
    "cuMemcpyDtoDAsync",
    "cuMemsetD8Async",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
)
RESERVE, CREATE, MAP, ACCESS, WAIT, RECORD, ASK, FORGET, COPY, FILL, UNMAP, RELEASE, FREE = CHANGES[:-2]
RETAIN_CONTEXT, RELEASE_CONTEXT = CHANGES[-2:]


def u64(*values):
    return tuple(struct.pack("=Q", value) for value in values)


def grant(access):
    """CUmemAccessDesc for device 0: location type DEVICE, id, flags."""
    return struct.pack("=iii", 1, 0, access)


def grow_and_shrink():
    with vmm.Device(0, driver="cuda") as device:
        memory = vmm.GrowableRange(device, "64 MiB")
        memory.grow("5 MiB")
        memory.grow("1 MiB")  # inside the chunk that is there
        memory.shrink("4 MiB")
        left = memory.committed, device.memory_info()
        memory.close()
        return memory.base, left


def test_grow_shrink_and_close(stub):
    (base, (committed, info)), calls = stub(grow_and_shrink)
    assert committed == UNIT
    assert info == vmm.MemoryInfo((8 << 30) - UNIT, 8 << 30)
    handles = [call.out for call in calls.of(CREATE)]
    assert calls.names(*CHANGES) == [
        *(RETAIN_CONTEXT, RESERVE, CREATE, CREATE, CREATE, MAP, MAP, MAP, ACCESS),
        *(RECORD, ASK, UNMAP, RELEASE, RELEASE, FORGET),
        *(WAIT, UNMAP, FREE, RELEASE, WAIT, RELEASE_CONTEXT),
    ]
    assert calls.args(RESERVE) == [u64(64 << 20, 0, 0, 0)]
    assert calls.args(MAP) == [u64(base + index * UNIT, UNIT, 0, handles[index], 0) for index in range(3)]
    assert calls.args(ACCESS) == [(*u64(base, 3 * UNIT), grant(3), *u64(1))]
    assert calls.args(UNMAP) == [u64(base + UNIT, 2 * UNIT), u64(base, UNIT)]
    assert {call.args for call in calls.of(RELEASE)} == {u64(handle) for handle in handles}
    assert calls.args(FREE) == [u64(base, 64 << 20)]


def shrink_under_work(polls):
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "64 MiB") as memory:
        memory.grow("4 MiB")
        memory.shrink("2 MiB")
        seen = [memory.retiring]
        for _ in range(polls):
            memory.collect()
            seen.append(memory.retiring)
        return seen


@pytest.mark.parametrize("pending", [0, 1, 3])
def test_a_shrink_unmaps_when_the_event_of_all_streams_has_completed(stub, pending):
    """Nothing waits: each look is one query, and the unmap follows the one that says yes."""
    seen, calls = stub(shrink_under_work, 3, STUB_PENDING=pending)
    assert seen == [UNIT if look < pending else 0 for look in range(4)]
    event, context = calls.of("cuEventCreate")[0].out, calls.of(RETAIN_CONTEXT)[0].out
    assert calls.args(RECORD) == [u64(context, event)]
    order = calls.names(ASK, UNMAP, FORGET)
    assert order[: pending + 3] == [*[ASK] * pending, ASK, UNMAP, FORGET]
    assert calls.args(FORGET) == [u64(event)]


def shrink_after(kind):
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "64 MiB") as memory:
        memory.grow("4 MiB")
        wrapped = {"stream": STREAM, "CUstream": cuda.CUstream(STREAM), "CUevent": cuda.CUevent(EVENT)}
        memory.shrink("2 MiB", after=wrapped[kind])
        memory.shrink("2 MiB", after=[wrapped[kind], wrapped["CUstream"]])


@pytest.mark.parametrize("kind", ["stream", "CUstream", "CUevent"])
def test_a_shrink_after_streams_and_events_asks_those(stub, kind):
    _, calls = stub(shrink_after, kind)
    made = [call.out for call in calls.of("cuEventCreate")]
    assert calls.of(RECORD) == []
    assert calls.args("cuEventRecord") == [u64(event, STREAM) for event in made]
    asked = [int.from_bytes(call.args[0], "little") for call in calls.of(ASK)]
    own = [EVENT] if kind == "CUevent" else []
    assert sorted(asked) == sorted(2 * own + made)
    assert sorted(calls.args(FORGET)) == sorted(u64(event) for event in made)  # the caller's event stays


def shrink_on_an_old_driver():
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "64 MiB") as memory:
        memory.grow("8 MiB")
        memory.shrink("2 MiB")
        memory.collect()
        seen = [memory.retiring]
        device.synchronize()
        seen.append(memory.retiring)
        memory.shrink("2 MiB")
        memory.collect(wait=True)
        return [*seen, memory.retiring]


def test_a_driver_without_an_event_of_all_streams_unmaps_at_the_next_wait(stub):
    seen, calls = stub(shrink_on_an_old_driver, STUB_MISSING="cuCtxRecordEvent")
    assert seen == [UNIT, 0, 0]
    assert calls.of(RECORD) == []
    assert calls.names(WAIT, UNMAP)[:4] == [WAIT, UNMAP, WAIT, UNMAP]


def commit_in_pieces():
    with vmm.Device(0, driver="cuda") as device:
        memory = vmm.GrowableRange(device, "64 MiB", chunk="4 MiB", access="r")
        memory.commit([1, 2, 5])
        memory.protect("4 MiB", "12 MiB", "none")
        memory.decommit([1, 2, 5])
        memory.close()
        return memory.base


def test_runs_take_one_call_each(stub):
    base, calls = stub(commit_in_pieces)
    chunk = 2 * UNIT
    assert {call.args[0] for call in calls.of(CREATE)} == set(u64(chunk))
    runs = [(base + chunk, 2 * chunk), (base + 5 * chunk, chunk)]
    assert calls.args(ACCESS) == [(*u64(at, size), grant(1), *u64(1)) for at, size in runs] + [
        (*u64(*runs[0]), grant(0), *u64(1))
    ]
    assert calls.args(UNMAP) == [u64(at, size) for at, size in runs]


def move_a_chunk():
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "8 MiB") as memory:
        memory.commit([1])
        with memory.pin(0, UNIT, "a graph"):
            moved = memory.remap(1)
        return memory.base, moved.handle


def test_remap_copies_through_a_window_and_keeps_the_address(stub):
    (base, now), calls = stub(move_a_chunk)
    old, new = (call.out for call in calls.of(CREATE))
    window = calls.of(RESERVE)[1].out
    assert now == new
    assert calls.args(COPY) == [u64(window, base + UNIT, UNIT, 0)]
    assert calls.args(MAP) == [
        u64(base + UNIT, UNIT, 0, old, 0),
        u64(window, UNIT, 0, new, 0),
        u64(base + UNIT, UNIT, 0, new, 0),
    ]
    after = calls.names(*CHANGES)[calls.names(*CHANGES).index(COPY) :]
    assert after[:4] == [COPY, WAIT, UNMAP, FREE]
    assert after[4:8] == [UNMAP, MAP, ACCESS, RELEASE]


def share_a_supply():
    with vmm.Device(0, driver="cuda") as device, vmm.ChunkSupply(device, cache="2 MiB", budget="8 MiB") as supply:
        with vmm.GrowableRange(device, "8 MiB", supply=supply) as first:
            first.grow("2 MiB")
        with vmm.GrowableRange(device, "8 MiB", supply=supply, access="r") as second:
            second.grow("2 MiB")
            return second.base


def test_a_chunk_of_another_range_is_zeroed_before_its_bytes_can_be_read(stub):
    second, calls = stub(share_a_supply)
    assert len(calls.of(CREATE)) == 1
    assert calls.args(FILL) == [(*u64(second), b"\0", *u64(UNIT, 0))]
    assert calls.args(ACCESS)[1:] == [(*u64(second, UNIT), grant(access), *u64(1)) for access in (3, 1)]
    where = calls.names(ACCESS, FILL, WAIT).index(FILL)
    assert calls.names(ACCESS, FILL, WAIT)[where - 1 : where + 3] == [ACCESS, FILL, WAIT, ACCESS]


def use_a_heap():
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "1 GiB") as heap:
        blocks = [heap.allocate(size) for size in (123_456, "3 MiB", 1)]
        addresses = [block.address for block in blocks]
        committed = heap.committed
        for block in blocks:
            block.free()
        heap.trim()
        return addresses, committed, heap.committed


def test_a_heap_commits_where_blocks_lie(stub):
    (addresses, committed, left), calls = stub(use_a_heap)
    assert all(address % 512 == 0 for address in addresses)
    assert (committed, left) == (3 * UNIT, 0)  # small blocks have a chunk of their own
    assert len(calls.of(CREATE)) == len(calls.of(MAP)) == 3


def look_inside():
    recorder = vmm.Recorder()
    device = vmm.Device(0, driver="cuda", recorder=recorder)
    with device, vmm.GrowableRange(device, "8 MiB", name="kv") as memory:
        memory.commit([0, 2])
        table = vmm.snapshot(memory)
    events = [event for event in recorder.events() if event.address or event.handle]
    return table, [(event.call, event.address, event.size, event.handle, event.result) for event in events]


def test_page_table_and_recorder_see_what_the_library_saw(stub):
    (table, events), calls = stub(look_inside)
    base, [first, second] = calls.of(RESERVE)[0].out, [call.out for call in calls.of(CREATE)]
    readwrite = vmm.Access.READWRITE
    assert table == vmm.PageTable(
        "kv",
        base,
        8 << 20,
        (
            vmm.PageTableRun(base, UNIT, first, 0, readwrite),
            vmm.PageTableRun(base + 2 * UNIT, UNIT, second, 0, readwrite),
        ),
    )
    assert events == [
        (RESERVE, base, 8 << 20, 0, 0),
        (CREATE, 0, UNIT, first, 0),
        (CREATE, 0, UNIT, second, 0),
        (MAP, base, UNIT, first, 0),
        (MAP, base + 2 * UNIT, UNIT, second, 0),
        (ACCESS, base, UNIT, 0, 0),
        (ACCESS, base + 2 * UNIT, UNIT, 0, 0),
        (UNMAP, base, UNIT, 0, 0),
        (UNMAP, base + 2 * UNIT, UNIT, 0, 0),
        (FREE, base, 8 << 20, 0, 0),
        (RELEASE, 0, 0, first, 0),
        (RELEASE, 0, 0, second, 0),
    ]


def live(driver):
    """Something of everything; only what both drivers can answer."""
    recorder = vmm.Recorder()
    if driver == "host":
        driver = vmm.HostDriver(memory="256 MiB")
    device = vmm.Device(0, driver=driver, recorder=recorder)
    with device, vmm.ChunkSupply(device, cache="4 MiB") as supply:
        memory = vmm.GrowableRange(device, "64 MiB", supply=supply)
        memory.grow("9 MiB")
        memory.protect("2 MiB", "6 MiB", "r")
        memory.remap(3)
        memory.shrink("5 MiB")
        with vmm.Heap(device, "1 GiB", supply=supply) as heap:
            heap.allocate("3 MiB")
        vmm.describe(device, memory.base)
        memory.close()
    return [(event.call, event.size, event.result) for event in recorder.events()]


def test_the_host_driver_gets_the_same_calls(stub):
    """What is tested on the host driver is what a GPU's driver gets."""
    on_host, none = stub(live, "host")
    assert none == []
    on_cuda, calls = stub(live, "cuda")
    assert on_cuda == on_host
    assert len(calls) >= len(on_cuda)


def fail_in_the_middle():
    """Leave an error behind at the end of nested owners."""
    device = vmm.Device(0, driver="cuda")
    supply = vmm.ChunkSupply(device, cache="8 MiB")
    with pytest.raises(ZeroDivisionError), device, supply, vmm.GrowableRange(device, "8 MiB", supply=supply) as memory:
        memory.grow("4 MiB")
        raise ZeroDivisionError


@pytest.mark.parametrize("scenario", [grow_and_shrink, move_a_chunk, share_a_supply, use_a_heap, fail_in_the_middle])
def test_each_end_is_wait_unmap_release_free_context(stub, scenario):
    """A handle is released and a reservation freed only after the unmap of what lay in it; the context goes last."""
    _, calls = stub(scenario)
    order = calls.names(*CHANGES)
    assert order[-1] == RELEASE_CONTEXT
    earlier = [before for before, call in pairwise(order) if call == UNMAP]
    assert set(earlier) <= {WAIT, ASK, UNMAP, FREE}
    assert all(call.code == 0 for call in calls.of(ASK))  # nothing was pending
    mapped = {}  # address -> (size, handle)
    for call in calls:
        numbers = [int.from_bytes(arg or b"", "little") for arg in call.args]
        if call.name == MAP:
            mapped[numbers[0]] = numbers[1], numbers[3]
        elif call.name == UNMAP:
            gone = [at for at in mapped if numbers[0] <= at < sum(numbers)]
            assert sum(mapped.pop(at)[0] for at in gone) == numbers[1]
        elif call.name == FREE:
            assert not [at for at in mapped if numbers[0] <= at < sum(numbers)]
        elif call.name == RELEASE:
            assert numbers[0] not in {handle for _, handle in mapped.values()}
    assert not mapped
