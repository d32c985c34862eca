"""Addresses that are not to be had: a reservation that was refused, or one that is too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sizes import format_size
from .device_memory import ranges_on
from .report import Held, Limit, Portion, Remedy, Shortage

if TYPE_CHECKING:
    from ..device import Device

RANGE = "virtual range"


def reservation_shortage(device: Device, asked: int) -> Shortage:
    """Why no span of ``asked`` bytes is free. The driver does not say how long the longest is."""
    ranges = sorted(ranges_on(device), key=lambda one: one.reserved)
    held = sum(one.reserved for one in ranges)
    text = f"no free span of addresses is so long; ranges here have {format_size(held)} of them"
    long_enough = next((one for one in ranges if one.reserved >= asked), None)
    remedies = []
    if long_enough is not None:  # its own addresses come free in one span
        what = f"close {long_enough.name!r}, whose addresses are enough"
        remedies.append(Remedy("close", long_enough.name, long_enough.reserved, what, "all that it holds"))
    return Shortage(
        name=f"addresses of device {device.ordinal}",
        unit="bytes",
        asked=asked,
        granted=None,
        cause=RANGE,
        limits=(Limit(RANGE, None, text),),
        portions=(Portion("reserved by ranges", held),),
        holders=tuple(Held(f"range {one.name!r}", one.reserved) for one in ranges),
        remedies=tuple(remedies),
    )


def beyond_shortage(name: str, total: int, size: int, reserved: int) -> Shortage:
    """Why a range of ``reserved`` bytes of addresses, of which ``size`` are used, cannot be ``total`` long."""
    left, more = reserved - size, total - size
    remedy = Remedy("more addresses", total, more, f"make it with reserve={total}", "addresses only, and a new base")
    return Shortage(
        name=name,
        unit="bytes",
        asked=more,
        granted=left,
        cause=RANGE,
        limits=(Limit(RANGE, left, f"{format_size(size)} of {format_size(reserved)} reserved are in use"),),
        portions=(Portion("in front", size),),
        holders=(Held(name, size),),
        remedies=(remedy,),
    )


def span_shortage(name: str, asked: int, reserved: int, allocated: int, largest: int, blocks: int) -> Shortage:
    """Why a heap has no free span of ``asked`` bytes: its ``largest`` is too short for it."""
    free = reserved - allocated
    cause = "fragmentation" if free >= asked else RANGE
    text = f"{format_size(free)} of {format_size(reserved)} of addresses are free, in one span {format_size(largest)}"
    remedy = Remedy("more addresses", reserved + asked, asked, f"make it with reserve={reserved + asked}", "addresses")
    return Shortage(
        name=name,
        unit="bytes",
        asked=asked,
        granted=largest,
        cause=cause,
        limits=(Limit(RANGE, largest, text),),
        portions=(Portion("blocks", allocated),),
        holders=(Held(f"{blocks} blocks", allocated),),
        remedies=(remedy,),
    )
