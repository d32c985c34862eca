"""Pins: parts of a range whose addresses and bytes something outside relies on, such as a captured graph."""

from __future__ import annotations

from .errors import StateError


class Pin:
    """Keeps the bytes from ``start`` to ``stop`` of a range from being unmapped or moved until it is closed."""

    __slots__ = ("_pins", "reason", "start", "stop")

    def __init__(self, pins: Pins, start: int, stop: int, reason: str) -> None:
        self._pins = pins
        self.start, self.stop, self.reason = start, stop, reason

    def __repr__(self) -> str:
        return f"Pin(bytes {self.start:#x} to {self.stop:#x} for {self.reason})"

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go. Closing twice does nothing."""
        self._pins.remove(self)


class Pins:
    """The pins of one range. Offsets are bytes."""

    def __init__(self) -> None:
        self._held: list[Pin] = []

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> list[Pin]:
        """The pins, in the order in which they were made."""
        return list(self._held)

    def add(self, start: int, stop: int, reason: str) -> Pin:
        """Pin ``start`` to ``stop`` for ``reason``, which errors will name."""
        pin = Pin(self, start, stop, reason)
        self._held.append(pin)
        return pin

    def remove(self, pin: Pin) -> None:
        """Forget a pin; one that is gone already is fine."""
        self._held = [held for held in self._held if held is not pin]

    def spans(self) -> list[tuple[int, int]]:
        """The pinned bytes as (start, stop)."""
        return [(pin.start, pin.stop) for pin in self._held]

    def refuse(self, spans: list[tuple[int, int]], action: str) -> None:
        """Raise StateError, naming the pin, if a byte of ``spans`` is pinned."""
        for pin in self._held:
            for start, stop in spans:
                if start < pin.stop and pin.start < stop:
                    raise StateError(
                        f"cannot {action} bytes {start:#x} to {stop:#x}: "
                        f"{pin.start:#x} to {pin.stop:#x} are pinned for {pin.reason}; close that pin first"
                    )
