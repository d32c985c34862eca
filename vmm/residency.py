"""Residency: which ranges have physical memory now, by tag. They sleep and wake together; addresses never change.

A server that waits, or that trains and serves in turns, gives its memory to others and takes it back: "weights" with a
backup in pinned host memory, "kv" without one, for what it held can be computed again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from .chunked_range import ChunkedRange
from .device import Device
from .errors import StateError
from .sizes import format_size
from .suspended import Suspended
from .uninterrupted import uninterrupted


@dataclass(frozen=True, slots=True)
class Slept:
    """What a sleep brought. ``unmapped`` bytes were given up, ``returned`` of them the driver reports as free.

    ``backup`` is the pinned host memory that the copies take until the wake.
    """

    unmapped: int
    returned: int
    backup: int

    @property
    def shortfall(self) -> int:
        """Bytes given up that the driver does not report as free: another owner holds them, or took them since."""
        return max(0, self.unmapped - self.returned)

    def __str__(self) -> str:
        text = f"{format_size(self.unmapped)} given up, {format_size(self.returned)} free again"
        return f"{text}, {format_size(self.backup)} copied to the host" if self.backup else text


class Residency:
    """The ranges of one device by tag ("weights", "kv", any name). One thread at a time.

    Raises StateError for a tag that it does not know.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._ranges: dict[str, list[ChunkedRange]] = {}

    def __repr__(self) -> str:
        tags = ", ".join(f"{tag} {'asleep' if self.is_asleep(tag) else 'awake'}" for tag in self._ranges)
        return f"Residency({tags})"

    @property
    def tags(self) -> list[str]:
        """The tags that ranges were added under."""
        return list(self._ranges)

    def add(self, range_: ChunkedRange, tag: str) -> None:
        """Let a range sleep and wake with ``tag``.

        Raises TypeError for what is no range (pools and heaps have theirs as ``.range``), StateError for one that has
        a tag or is on another device, or a tag that sleeps.
        """
        if not isinstance(range_, ChunkedRange):
            raise TypeError(f"{range_!r} is no range; a pool and a heap have theirs as .range")
        if not range_.device.is_same(self.device):
            raise StateError(f"{range_.name} is on {range_.device}, not on {self.device}")
        held = next((name for name, ranges in self._ranges.items() if range_ in ranges), None)
        if held is not None:
            raise StateError(f"{range_.name} has the tag {held!r} already")
        if tag in self._ranges and self.is_asleep(tag):
            raise StateError(f"{tag!r} is asleep; wake it before ranges are added")
        self._ranges.setdefault(tag, []).append(range_)

    def is_asleep(self, tag: str) -> bool:
        """Whether the ranges of ``tag`` are asleep."""
        return any(range_.asleep for range_ in self._open(tag))

    @uninterrupted
    def sleep(self, tag: str, *, backup: bool) -> Slept:
        """Wait for the device, copy the bytes to the host if ``backup``, and give all memory of ``tag`` to the driver.

        Without a backup the contents are undefined after the wake. Cached chunks of the ranges' supplies go too. All
        ranges of the tag or none. Raises StateError if it sleeps already, or while an array, a pin or a zero window
        needs the memory, OutOfMemoryError when the host has no room for the backup.
        """
        ranges = self._open(tag)
        if self.is_asleep(tag):
            raise StateError(f"{tag!r} is asleep already; wake it first")
        self._trim(ranges)  # what was cached is not what the sleep brings
        before = self.device.memory_info().free
        unmapped = sum(range_.committed for range_ in ranges)
        with contextlib.ExitStack() as undo:
            leaving: list[Suspended] = []
            gone: list[Suspended] = []
            undo.callback(_stay, leaving, gone)
            for range_ in ranges:
                leaving.append(range_.suspend(tag, backup=backup))
            for suspended in leaving:
                suspended.leave()
                gone.append(suspended)
            undo.pop_all()
        for range_, suspended in zip(ranges, leaving, strict=True):
            range_.fall_asleep(suspended)
        self._trim(ranges)
        host = sum(range_.asleep.host_bytes for range_ in ranges if range_.asleep)
        return Slept(unmapped, self.device.memory_info().free - before, host)

    @uninterrupted
    def wake(self, tag: str) -> None:
        """Bring all memory of ``tag`` back at the same addresses, with its access and, from a backup, its bytes.

        All ranges or none: an OutOfMemoryError says what is needed and what is free, and everything still sleeps.
        Raises StateError if it is awake.
        """
        ranges = self._open(tag)
        if not self.is_asleep(tag):
            raise StateError(f"{tag!r} is awake; there is nothing to wake")
        with contextlib.ExitStack() as undo:
            woken: list[ChunkedRange] = []
            undo.callback(self._sleep_again, woken)
            for range_ in ranges:
                range_.restore()
                woken.append(range_)
            undo.pop_all()
        for range_ in ranges:
            range_.resume()

    def _trim(self, ranges: list[ChunkedRange]) -> None:
        for supply in {range_.supply for range_ in ranges}:
            supply.trim()

    def _sleep_again(self, ranges: list[ChunkedRange]) -> None:
        for range_ in ranges:
            range_.restore(back=False)
        self._trim(ranges)

    def _open(self, tag: str) -> list[ChunkedRange]:
        """The ranges of a tag that were not closed."""
        if tag not in self._ranges:
            known = ", ".join(map(repr, self._ranges)) or "none"
            raise StateError(f"no range has the tag {tag!r}; tags are {known}")
        self._ranges[tag] = [range_ for range_ in self._ranges[tag] if not range_.closed]
        return self._ranges[tag]


def _stay(leaving: list[Suspended], gone: list[Suspended]) -> None:
    """Undo a sleep: the same memory is mapped where it was, and no backup is kept."""
    for suspended in gone:
        suspended.stay()
    for suspended in leaving:
        suspended.close()
