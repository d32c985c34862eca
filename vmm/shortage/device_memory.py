"""The memory of a device: how much could be allocated, and who has the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from ..errors import VmmError
from ..sizes import format_size, round_down
from .nvml import processes_of
from .report import Held, Limit, Portion, Remedy, Shortage

if TYPE_CHECKING:
    from ..device import Device
    from ..memory_range import MemoryRange

OTHERS = "others on the device"
"""Who has what nobody else is known to have."""


def device_shortage(device: Device, asked: int) -> Shortage:
    """Why one allocation of ``asked`` bytes was refused. Nothing is waited for, and no cache was emptied."""
    limit = device_limit(device, free_now(device))
    holders = holders_on(device)
    if limit.allows is None or limit.allows >= asked:
        limit = Limit("driver", None, f"the driver refuses although {limit.text}")
    return Shortage(
        name=f"device {device.ordinal}",
        unit="bytes",
        asked=asked,
        granted=limit.allows,
        cause=limit.name,
        limits=(limit,),
        portions=tuple(Portion(one.name, one.bytes) for one in holders if one.bytes),
        holders=holders,
        remedies=tuple(_remedies(asked, limit, holders)),
    )


def free_now(device: Device) -> int | None:
    """Bytes that the driver reports as free, in whole pieces of the granularity; None where it does not answer."""
    try:
        return round_down(device.memory_info().free, device.granularity)
    except VmmError:
        return None


def device_limit(device: Device, allows: int | None) -> Limit:
    """How full the device is; with its memory alone ``allows`` could be had."""
    try:
        memory = device.memory_info()
    except VmmError:  # a device that does not answer hides no lack of memory
        return Limit("device", None, "the device does not say how much is free")
    text = f"{format_size(memory.free)} of {format_size(memory.total)} are free on device {device.ordinal}"
    return Limit("device", allows, text)


def holders_on(device: Device) -> tuple[Held, ...]:
    """Who has the memory of a device: ranges of this process, what supplies keep, other processes, and the rest."""
    try:
        memory = device.memory_info()
    except VmmError:
        return ()
    known = [Held(f"range {one.name!r}", one.committed) for one in ranges_on(device)]
    known.append(Held("cached by supplies", sum(cache.releasable for cache in list(device.caches.values()))))
    ours = sum(one.bytes or 0 for one in known)
    used = memory.total - memory.free
    found = [*known, *_beside(device, ours, used)]
    return tuple(one for one in found if one.bytes != 0)


def ranges_on(device: Device) -> list[MemoryRange]:
    """The open ranges of this process whose memory is of the device, by name. What others share with it is theirs."""
    found = [one for one in list(device.driver.ranges) if hasattr(one, "supply")]
    ranges = cast("list[MemoryRange]", found)
    return sorted((one for one in ranges if one.device is device and not one.closed), key=lambda one: one.name)


def _beside(device: Device, ours: int, used: int) -> list[Held]:
    """Who has what this process's ranges and supplies do not."""
    bus_id = _bus_id(device)
    processes = processes_of(bus_id) if bus_id else None
    if processes is None or processes.unknown:
        why = f" ({processes.unknown})" if processes else ""
        return [Held(f"{OTHERS}{why}", max(0, used - ours))]
    found, total = [], 0
    for one in processes.found:
        total += one.bytes or 0
        if one.pid != os.getpid():
            found.append(Held(str(one), one.bytes))
        elif one.bytes is not None:
            found.append(Held("other memory of this process", max(0, one.bytes - ours)))
    return [*found, Held("the driver, and what NVML does not tell", max(0, used - max(total, ours)))]


def _bus_id(device: Device) -> str:
    try:
        return device.driver.pci_bus_id(device.ordinal)
    except VmmError:
        return ""


def _remedies(asked: int, limit: Limit, holders: tuple[Held, ...]) -> list[Remedy]:
    """Each was tried on the counts: what comes free with it is enough."""
    if limit.allows is None:
        return []
    lacking, found = asked - limit.allows, []
    cached = next((one.bytes or 0 for one in holders if one.name == "cached by supplies"), 0)
    if cached >= lacking:
        cost = "they create chunks anew"
        found.append(Remedy("trim", cached, limit.allows + cached, "trim() the supplies", cost))
    inside = sum(one.bytes or 0 for one in holders if one.name.startswith("range "))
    if inside >= lacking:
        text = f"decommit {format_size(lacking)} of the ranges here"
        found.append(Remedy("free here", lacking, asked, text, "their bytes"))
    elsewhere = sum(one.bytes or 0 for one in holders) - inside - cached
    if elsewhere >= lacking:
        text = f"free {format_size(lacking)} of what else is on the device"
        found.append(Remedy("free elsewhere", lacking, asked, text, "not these ranges'"))
    return found
