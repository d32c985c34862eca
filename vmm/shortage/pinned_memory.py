"""Pinned host memory that is not to be had: what the driver would give nobody can ask, what the host has, one can."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..sizes import format_size
from .report import Held, Limit, Portion, Remedy, Shortage

if TYPE_CHECKING:
    from ..device import Device

_MEMINFO = Path("/proc/meminfo")


def pinned_shortage(device: Device, asked: int, mine: int = 0) -> Shortage:
    """Why ``asked`` bytes are not to be had; ``mine`` of what is pinned was for them, and is given back."""
    available, total = host_memory()
    held = device.pinned - mine
    known = available is not None and available + mine < asked
    allows = (available or 0) + mine if known else None
    stands = "the host does not say how much it has"
    if available is not None:
        stands = f"{format_size(available + mine)} of {format_size(total or 0)} are available on the host"
    text = stands if known else f"the driver refuses although {stands}"
    lacking = asked - (allows or 0)
    remedies = []
    if allows is not None and held >= lacking:
        what = f"free {format_size(lacking)} of the pinned memory here"
        remedies.append(Remedy("free here", lacking, asked, what, "the bytes in it"))
    return Shortage(
        name="pinned memory",
        unit="bytes",
        asked=asked,
        granted=allows,
        cause="pinned memory",
        limits=(Limit("pinned memory", allows, text),),
        portions=(Portion("pinned here", held),),
        holders=(Held("this device's pinned memory", held),),
        remedies=tuple(remedies),
    )


def host_memory() -> tuple[int | None, int | None]:
    """(available, total) bytes of the host: what could be had without swapping, as Linux estimates it (proc(5))."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None, None
    found = {line.split(":")[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    available, total = found.get("MemAvailable"), found.get("MemTotal")
    return (None if available is None else int(available) << 10), (None if total is None else int(total) << 10)
