"""A user's program over vmm: every public name once, as its type is meant to be used. It runs, and mypy reads it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import vmm
import vmm.host
import vmm.settle
from vmm.shortage import Held, Limit, Portion, Remedy

CHUNK = 2 << 20


def sizes(size: vmm.Size = "3 MiB") -> str:
    whole: int = vmm.round_up(vmm.parse_size(size), CHUNK)
    return vmm.format_size(whole - vmm.round_down(whole, CHUNK))


def devices() -> tuple[vmm.Device, vmm.Recorder]:
    host: vmm.HostDriver = vmm.HostDriver(memory="256 MiB", devices=2)
    recorder = vmm.Recorder(capacity=1000)
    device = vmm.Device(0, driver=host, recorder=recorder)
    driver: vmm.Driver = device.driver
    info: vmm.MemoryInfo = device.memory_info()
    assert driver.name == "host" and info.free <= info.total
    return device, recorder


def one_call_after_another(device: vmm.Device) -> int:
    memory = vmm.PhysicalMemory(device, CHUNK)
    addresses = vmm.AddressRange(device, "16 MiB")
    mapping: vmm.Mapping = addresses.map(0, memory)
    addresses.set_access([mapping], vmm.Access.READWRITE)
    owner: vmm.Owner = vmm.describe(device, mapping.address)
    addresses.unmap([mapping])
    addresses.close()
    memory.close()
    return owner.size


class Cache:
    """Holds chunks of a supply that others may have: a Giver by its shape."""

    def __init__(self, supply: vmm.Supply) -> None:
        self.chunks = supply.take(2)
        self.supply = supply

    def spare(self, *, cached: bool) -> int:
        return len(self.chunks) if cached else 0

    def give_up(self, chunks: int, *, cached: bool) -> int:
        going = self.chunks[: chunks if cached else 0]
        self.chunks = self.chunks[len(going) :]
        self.supply.give(going)
        return len(going)


def budgets(device: vmm.Device) -> list[vmm.Holder]:
    supply = vmm.ChunkSupply(device, budget="32 MiB", exportable=True)
    share: vmm.Share = supply.share("model", floor="8 MiB", ceiling="16 MiB")
    cache = Cache(share)
    giver: vmm.Giver = cache
    share.register(giver)
    holders = supply.holders()
    share.give(cache.chunks)
    share.close()
    supply.close()
    return holders


def ranges(device: vmm.Device, after: vmm.After = None) -> list[vmm.Run]:
    with vmm.ChunkedRange(device, "64 MiB") as chunked:
        chunked.commit([0, 1, 5])
        window: vmm.ZeroWindow = chunked.zero_window(0, "16 MiB")
        pin: vmm.Pin = chunked.pin(0, CHUNK, "a graph has captured it")
        pin.close()
        window.close()
        runs = chunked.runs()
    with vmm.GrowableRange(device, "64 MiB") as kv:
        kv.grow("8 MiB")
        numbers: NDArray[np.float32] = kv.array("float32", (2, 3))
        numbers[:] = 1
        del numbers
        view: vmm.TensorView = kv.tensor("float32", (2, 3))
        assert view.address == kv.base and np.asarray(view).tolist() == [[1, 1, 1], [1, 1, 1]]
        del view
        table: vmm.PageTable = vmm.snapshot(kv)
        first: vmm.PageTableRun = table.runs[0]
        assert table.translate(first.address) == (first.handle, 0)
        kv.shrink("4 MiB", after=after)
    return runs


def allocator(device: vmm.Device) -> int:
    limited: vmm.Allocator = vmm.LimitedHeap(vmm.Heap(device, "64 MiB"), "32 MiB")
    with vmm.StatisticsHeap(limited) as heap:
        block: vmm.Block = heap.allocate(123_456, stream=0, alignment="64 KiB")
        block.free()
        statistics: vmm.HeapStatistics = heap.statistics
        assert (statistics.count, statistics.peak, statistics.fragmentation) == (0, 123_904, 0.0)
        heap.trim()
        return heap.committed


def sleeping(device: vmm.Device) -> vmm.Slept:
    residency = vmm.Residency(device)
    with vmm.GrowableRange(device, "64 MiB") as weights:
        weights.grow("8 MiB")
        residency.add(weights, "weights")
        slept = residency.sleep("weights", backup=True)
        residency.wake("weights")
    return slept


class MyStream:
    """A stream of another library."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0)


def waiting(device: vmm.Device) -> bool:
    stream: vmm.Stream = MyStream()
    fence: vmm.Fence = device.fence(after=stream)
    fence.wait()
    done = fence.done
    fence.close()
    return done and vmm.handles_of(MyStream()) == [(False, 0)] and vmm.stream_handle(MyStream()) == 0


def two_processes(device: vmm.Device) -> int:
    supply = vmm.ChunkSupply(device, exportable=True)
    with vmm.GrowableRange(device, "16 MiB", supply=supply) as kv, tempfile.TemporaryDirectory() as folder:
        kv.grow("4 MiB")
        with vmm.sharing.Exporter(kv, access="r", folder=folder) as exporter:
            shared: vmm.sharing.SharedRange = vmm.sharing.attach(device, Path(exporter.path))
            committed = shared.committed
            shared.close()
    supply.close()
    return committed


def why(report: vmm.Shortage | None) -> str:
    """A report read by a program: what binds, what fills memory up, who has it, what helps."""
    if report is None:
        return "nobody knows more"
    binds: Limit = report.limit
    portions: tuple[Portion, ...] = report.portions
    holders: tuple[Held, ...] = report.holders
    remedies: tuple[Remedy, ...] = report.remedies
    used = sum(portion.bytes for portion in portions) + sum(holder.bytes or 0 for holder in holders)
    return f"{binds.name}: {used} bytes in use; {', '.join(remedy.action for remedy in remedies)}"


def refused(device: vmm.Device) -> list[type[vmm.VmmError]]:
    kinds: list[type[vmm.VmmError]] = [
        vmm.AlignmentError,
        vmm.ClosedError,
        vmm.DriverError,
        vmm.DriverMissingError,
        vmm.OutOfMemoryError,
        vmm.RangeError,
        vmm.ReleaseError,
        vmm.SharingError,
        vmm.SizeError,
        vmm.StateError,
    ]
    try:
        vmm.GrowableRange(device, "2 GB")
    except vmm.SizeError as error:
        assert "GiB" in str(error)
    try:
        vmm.PhysicalMemory(device, "1 TiB")
    except MemoryError as error:
        assert isinstance(error, vmm.OutOfMemoryError)
        assert why(error.report)
    return kinds


def failures() -> list[vmm.host.Failed]:
    host = vmm.host.HostDriver(memory="64 MiB", fail=vmm.host.Failure("cuMemCreate", at=99))
    api = vmm.host.FailingDriver(host)
    device = vmm.Device(driver=api)
    kv = vmm.GrowableRange(device, "32 MiB")
    before: vmm.host.Picture = host.picture()
    live: vmm.host.Live = host.live()
    try:
        failed = vmm.host.sweep(api, lambda: kv.grow("4 MiB"), restore=lambda: kv.resize(0))
    except vmm.host.SweepError as error:
        raise SystemExit(str(error)) from None
    assert before.differences(host.picture()) == [] and live.total
    touch = host.diagnosis(700)
    what: vmm.host.Explanation = host.explain(kv.base)
    assert not isinstance(touch, vmm.host.Touch) and what.kind in {"reserved", "mapped"}
    kv.close()
    device.close()
    return failed


def questions() -> list[vmm.settle.Answer]:
    one: vmm.settle.Question = next(iter(vmm.settle.QUESTIONS.values()))
    return list(vmm.settle.examine("host", "none", [one.key]))


def main() -> None:
    device, recorder = devices()
    assert sizes() == "0 B"
    assert one_call_after_another(device) == 16 << 20
    assert {holder.name for holder in budgets(device)} >= {"model"}
    assert len(ranges(device)) == 2
    assert allocator(device) == 0
    assert sleeping(device).backup == 8 << 20
    assert waiting(device)
    assert two_processes(device) == 4 << 20
    assert len(refused(device)) == 10
    assert all(isinstance(each.error, vmm.VmmError) for each in failures())
    assert all(answer.agrees for answer in questions())
    last: vmm.Event = recorder.events()[-1]
    assert last.duration_ns >= 0
    device.close()


if __name__ == "__main__":
    main()
