"""Why memory runs out in vmm alone: each situation has its cause, and the remedy that is named first works."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import vmm
from vmm import host_copy
from vmm.shortage import pinned_memory
from vmm.shortage.report import Held, Limit, Portion, Remedy, Shortage

MIB = 1 << 20
CHUNK = 2 * MIB
ROOT = Path(__file__).parents[3]


def report_of(call, *args, error=vmm.OutOfMemoryError, **names):
    """What the refused call says, in five lines."""
    with pytest.raises(error) as refused:
        call(*args, **names)
    report = refused.value.report
    lines = str(report).splitlines()
    assert len(lines) == 5
    assert all(lines)
    return report


# -- nobody raises without a report -----------------------------------------------------------------------------


def test_no_error_goes_out_without_a_report():
    """The constructor needs one; this finds a call that would only fail when it is made."""
    calls = [
        (path.name, call)
        for package in ("vmm", "paged", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "OutOfMemoryError(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "OutOfMemoryError"
    ]
    assert len(calls) > 8
    assert [name for name, call in calls if len(call.args) != 2] == []
    with pytest.raises(TypeError):
        vmm.OutOfMemoryError("full")


def test_a_refused_call_has_a_report_whoever_made_it(failing):
    device, api = failing
    with vmm.GrowableRange(device, 4 * CHUNK) as memory:
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
            api.arm(call)
            report = report_of(memory.grow, CHUNK)
            assert (report.cause, report.granted, report.remedies) == ("driver", None, ())
        memory.grow(CHUNK)
    with vmm.ChunkSupply(device, budget="1 GiB") as supply:  # more than the device has
        api.arm("cuMemCreate")
        text = report_of(supply.take, 1).limit.text
        assert text == "the driver refuses although 64 MiB of 64 MiB are free on device 0"
    api.arm("cuMemAddressReserve")
    assert report_of(vmm.AddressRange, device, CHUNK).cause == "virtual range"
    api.arm("cuMemAlloc")
    with device.current():
        report = report_of(device.driver.alloc, 3 * MIB)
        assert (report.name, report.cause, report.asked) == ("cuMemAlloc", "device", 3 * MIB)
        api.arm("cuEventCreate")
        assert report_of(device.driver.event_create).cause == "driver"


def test_an_error_goes_to_another_process_with_its_report(device):
    with vmm.ChunkSupply(device, budget=CHUNK) as supply, pytest.raises(vmm.OutOfMemoryError) as refused:
        supply.take(2)
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), copy.report) == (str(refused.value), refused.value.report)


# -- the budget, ceilings and floors ----------------------------------------------------------------------------


def test_a_budget_that_its_own_ranges_fill(device):
    with (
        vmm.ChunkSupply(device, budget=4 * CHUNK) as supply,
        vmm.GrowableRange(device, 8 * CHUNK, supply=supply, name="kv") as memory,
    ):
        memory.grow(3 * CHUNK)
        report = report_of(memory.grow, 2 * CHUNK)
        assert report == supply.shortage(2)
        assert (report.unit, report.asked, report.granted, report.cause) == ("bytes", 2 * CHUNK, CHUNK, "budget")
        assert [one.name for one in report.limits] == ["budget", "device"]
        free, larger = report.remedies
        assert (free.action, free.value) == ("free here", CHUNK)
        assert (larger.action, larger.value) == ("raise budget", 5 * CHUNK)
        memory.shrink(free.value)
        memory.grow(2 * CHUNK)
        assert supply.shortage(0) is None
    with (
        vmm.ChunkSupply(device, budget=larger.value) as supply,
        vmm.GrowableRange(device, 8 * CHUNK, supply=supply) as memory,
    ):
        memory.grow(3 * CHUNK)
        memory.grow(2 * CHUNK)


def test_no_larger_budget_is_advised_than_the_device_has(device):
    with vmm.ChunkSupply(device, budget=4 * CHUNK) as supply:
        assert supply.shortage(200).remedies == ()
        assert supply.shortage(200).lines()[-1] == "nothing that was tried helps alone; ask for less"


def test_the_ceiling_of_a_share(device):
    with vmm.ChunkSupply(device, budget=8 * CHUNK) as supply, supply.share("a", ceiling=2 * CHUNK) as share:
        held = share.take(1)
        report = report_of(share.take, 2)
        assert (report.name, report.cause, report.granted) == ("a", "ceiling", CHUNK)
        first = report.remedies[0]
        assert (first.action, first.value) == ("raise ceiling", 3 * CHUNK)
        share.set_bounds(ceiling=first.value)
        share.give(held + share.take(2))


def test_a_ceiling_is_not_raised_where_the_budget_binds_next(device):
    with vmm.ChunkSupply(device, budget=3 * CHUNK) as supply, supply.share("a", ceiling=2 * CHUNK) as share:
        other, held = supply.take(1), share.take(1)
        assert [one.action for one in report_of(share.take, 2).remedies] == ["free here"]
        assert [one.action for one in report_of(share.take, 3).remedies] == []
        supply.give(other)
        share.give(held)


def test_a_floor_that_another_does_not_use(device):
    with (
        vmm.ChunkSupply(device, budget=4 * CHUNK) as supply,
        supply.share("a") as mine,
        supply.share("b", floor=3 * CHUNK) as other,
    ):
        held = mine.take(1)
        report = report_of(mine.take, 2)
        assert (report.cause, report.limit.name, report.granted) == ("floor", "budget", 0)
        assert report.limit.text == "2 MiB of 8 MiB are in use, 6 MiB more are promised to others"
        first = report.remedies[0]
        assert (first.action, first.value) == ("lower floor", ("b", CHUNK))
        other.set_bounds(floor=first.value[1])
        mine.give(held + mine.take(2))


def test_a_floor_that_nobody_can_be_promised_now(device):
    with vmm.ChunkSupply(device, budget=4 * CHUNK) as supply, supply.share("a") as greedy:
        held = greedy.take(3)
        report = report_of(supply.share, "b", floor=2 * CHUNK)
        assert (report.asked, report.granted, report.cause) == (2 * CHUNK, CHUNK, "shared budget")
        first = report.remedies[0]
        assert (first.action, first.value) == ("free elsewhere", CHUNK)
        greedy.give(held[: first.value // CHUNK])
        with supply.share("b", floor=2 * CHUNK):
            pass
        greedy.give(held[1:])


def test_only_who_has_so_much_is_asked_for_the_memory_of_a_floor(device):
    with (
        vmm.ChunkSupply(device, budget=4 * CHUNK) as supply,
        supply.share("rich") as rich,
        supply.share("poor") as poor,
    ):
        held = rich.take(2), poor.take(1)
        report = report_of(supply.share, "b", floor=3 * CHUNK)
        assert [one.text for one in report.remedies] == ["free 4 MiB of rich"]
        rich.give(held[0])
        poor.give(held[1])


def test_what_another_could_free_below_its_floor_helps_nobody(device):
    with (
        vmm.ChunkSupply(device, budget=4 * CHUNK) as supply,
        supply.share("a") as mine,
        supply.share("b", floor=3 * CHUNK) as other,
    ):
        held = mine.take(1), other.take(3)
        assert [(one.action, one.value) for one in report_of(mine.take, 1).remedies] == [
            ("free here", CHUNK),
            ("raise budget", 5 * CHUNK),
        ]
        mine.give(held[0])
        other.give(held[1])


# -- the device -------------------------------------------------------------------------------------------------


def test_others_fill_the_device(device):
    with vmm.GrowableRange(device, 128 * CHUNK, name="mine") as mine, vmm.GrowableRange(device, 256 * MIB) as other:
        mine.grow(CHUNK)
        other.grow(device.memory_info().free - CHUNK)
        report = report_of(mine.grow, 3 * CHUNK)
        assert (report.cause, report.granted) == ("device", CHUNK)
        assert report.limit.text == "2 MiB of 256 MiB are free on device 0"
        assert {(one.name, one.bytes) for one in report.holders} == {
            ("range 'mine'", CHUNK),
            (f"range {other.name!r}", other.committed),
        }
        first = report.remedies[0]
        assert (first.action, first.value) == ("free elsewhere", 2 * CHUNK)
        other.shrink(first.value)
        mine.grow(3 * CHUNK)


def test_one_allocation_asks_nobody_to_give_up_a_cache(device):
    supply = vmm.ChunkSupply(device, cache=8 * CHUNK)
    supply.give(supply.take(8))
    report = report_of(vmm.PhysicalMemory, device, 124 * CHUNK)
    assert (report.cause, report.granted) == ("device", 120 * CHUNK)
    assert [(one.name, one.bytes) for one in report.portions] == [("cached by supplies", 8 * CHUNK)]
    assert report.remedies[0].action == "trim"
    supply.trim()
    vmm.PhysicalMemory(device, 124 * CHUNK).close()
    supply.close()


def test_a_sleeper_that_cannot_wake(device):
    residency = vmm.Residency(device)
    with vmm.GrowableRange(device, 8 * CHUNK, name="kv") as memory, vmm.GrowableRange(device, 256 * MIB) as other:
        memory.grow(4 * CHUNK)
        residency.add(memory, "kv")
        residency.sleep("kv", backup=False)
        other.grow(device.memory_info().free - CHUNK)
        report = report_of(residency.wake, "kv")
        assert (report.cause, report.asked, report.granted) == ("device", 4 * CHUNK, CHUNK)
        other.shrink(report.remedies[0].value)
        residency.wake("kv")


# -- addresses --------------------------------------------------------------------------------------------------


def test_no_addresses_are_left(rules):
    small = vmm.GrowableRange(rules, 1 << 40, name="small")
    with small, vmm.GrowableRange(rules, 100 << 40, name="large") as large:
        report = report_of(vmm.GrowableRange, rules, 64 << 40)
        assert (report.cause, report.granted, report.unit) == ("virtual range", None, "bytes")
        assert report.holders == (Held("range 'small'", 1 << 40), Held("range 'large'", 100 << 40))
        assert (report.remedies[0].action, report.remedies[0].value) == ("close", "large")
        large.close()
        vmm.GrowableRange(rules, 64 << 40).close()


def test_a_reservation_that_is_too_small(device):
    with vmm.GrowableRange(device, 4 * CHUNK, name="kv") as memory:
        memory.grow(3 * CHUNK)
        report = report_of(memory.grow, 2 * CHUNK, error=vmm.RangeError)
        assert (report.cause, report.asked, report.granted) == ("virtual range", 2 * CHUNK, CHUNK)
        assert (report.remedies[0].action, report.remedies[0].value) == ("more addresses", 5 * CHUNK)
    with vmm.GrowableRange(device, report.remedies[0].value) as memory:
        memory.grow(3 * CHUNK)
        memory.grow(2 * CHUNK)


def test_a_heap_whose_free_addresses_are_in_pieces(device):
    with vmm.Heap(device, 2 * CHUNK) as heap:
        blocks = [heap.allocate(CHUNK // 2) for _ in range(4)]
        blocks[0].free()
        blocks[2].free()
        report = report_of(heap.allocate, CHUNK)
        assert (report.cause, report.granted, report.limit.name) == ("fragmentation", CHUNK // 2, "virtual range")
        assert report_of(heap.allocate, 3 * CHUNK).cause == "virtual range"
    with vmm.Heap(device, report.remedies[0].value) as heap:
        blocks = [heap.allocate(CHUNK // 2) for _ in range(4)]
        blocks[0].free()
        blocks[2].free()
        heap.allocate(CHUNK)


# -- pinned host memory -----------------------------------------------------------------------------------------


def test_pinned_memory_that_the_host_has_not(failing, monkeypatch, tmp_path):
    device, api = failing
    monkeypatch.setattr(pinned_memory, "_MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal:       8192 kB\nMemFree:         512 kB\nMemAvailable:   1024 kB\n")
    held = vmm.pinned.PinnedMemory(device, 4 * MIB)
    api.arm("cuMemHostAlloc")
    report = report_of(vmm.pinned.PinnedMemory, device, 3 * MIB)
    assert (report.cause, report.asked, report.granted) == ("pinned memory", 3 * MIB, MIB)
    assert report.limit.text == "1 MiB of 8 MiB are available on the host"
    assert report.portions == (Portion("pinned here", 4 * MIB),)
    assert (report.remedies[0].action, report.remedies[0].value) == ("free here", 2 * MIB)
    held.close()
    assert device.pinned == 0
    (tmp_path / "meminfo").write_text("MemTotal:       8192 kB\nMemAvailable:   8000 kB\n")
    api.arm("cuMemHostAlloc")
    report = report_of(vmm.pinned.PinnedMemory, device, 3 * MIB)
    assert (report.granted, report.remedies) == (None, ())
    assert report.limit.text.startswith("the driver refuses although 7.81 MiB")
    (tmp_path / "meminfo").unlink()
    api.arm("cuMemHostAlloc")
    assert "does not say how much" in report_of(vmm.pinned.PinnedMemory, device, MIB).limit.text


def test_what_was_pinned_for_the_very_backup_is_no_holder_of_it(failing, monkeypatch, tmp_path):
    device, api = failing
    monkeypatch.setattr(host_copy, "_PIECE", CHUNK)
    monkeypatch.setattr(pinned_memory, "_MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 8192 kB\nMemAvailable: 1024 kB\n")
    api.arm("cuMemHostAlloc", 3)
    report = report_of(host_copy.HostCopy, device, CHUNK, 4)
    assert (report.asked, report.granted) == (4 * CHUNK, 2 * CHUNK + MIB)
    assert report.portions == (Portion("pinned here", 0),)
    assert report.remedies == ()


def test_a_backup_for_which_the_host_has_no_room(failing):
    device, api = failing
    residency = vmm.Residency(device)
    with vmm.GrowableRange(device, 8 * CHUNK) as memory:
        memory.grow(4 * CHUNK)
        residency.add(memory, "weights")
        api.arm("cuMemHostAlloc")
        report = report_of(residency.sleep, "weights", backup=True)
        assert (report.cause, report.asked) == ("pinned memory", 4 * CHUNK)
        assert device.pinned == 0


# -- the form ---------------------------------------------------------------------------------------------------


def test_the_five_lines():
    limits = Limit("budget", 3 * MIB, "1 MiB of 4 MiB are in use"), Limit("device", None, "no answer")
    holders = tuple(Held(f"h{index}", size) for index, size in enumerate((MIB, None, 3 * MIB, 2 * MIB, MIB)))
    remedies = tuple(Remedy(f"a{index}", index, MIB, f"do {index}", f"cost {index}") for index in range(3))
    report = Shortage(
        "it", "bytes", 4 * MIB, 3 * MIB, "budget", limits, (Portion("live", MIB), Portion("none", 0)), holders, remedies
    )
    assert str(report).splitlines() == [
        "it: 4 MiB asked, 3 MiB can be had: budget; 1 MiB of 4 MiB are in use",
        "in use: live 1 MiB",
        "the other limits allow: device unknown",
        "held by h2 3 MiB, h3 2 MiB, h0 1 MiB, and 2 more 1 MiB",
        "do 0 (cost 0); or do 1 (cost 1)",
    ]
    bare = Shortage("it", "tokens", 4, None, "driver", limits[1:])
    assert re.fullmatch(r"it: 4 tokens asked, nobody knows how much can be had: driver; no answer", bare.lines()[0])
    assert bare.lines()[1:] == [
        "in use: nothing",
        "no other limit applies",
        "held by nobody",
        "nothing that was tried helps alone; ask for less",
    ]
