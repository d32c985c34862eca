"""Groups 1 and 2: reservations, made and freed."""

from __future__ import annotations

from ..sizes import format_size
from .bench import Bench
from .question import Group

OK, INVALID = "SUCCESS (0)", "INVALID_VALUE (1)"
NOT_ADJACENT = "the driver gave no adjacent reservations"
_LARGE = {format_size(1 << power) for power in range(45, 49)}
RESERVE, FREE = Group(1), Group(2)


def _reserve(size: int, alignment: int = 0, hint: int = 0, flags: int = 0, bench: Bench | None = None) -> str:
    assert bench is not None
    status, base = bench.api.cuMemAddressReserve(size, alignment, hint, flags)
    if not int(status):
        bench.later("cuMemAddressFree", int(base), size)
    return bench.named(status)


def _largest(bench: Bench) -> str:
    """The largest power of two that can be reserved at once, by going up."""
    size = bench.unit
    while size < 1 << 60:
        status, base = bench.api.cuMemAddressReserve(2 * size, 0, 0, 0)
        if int(status):
            return f"{format_size(size)}, then {bench.named(status)}"
        bench.output("cuMemAddressFree", int(base), 2 * size)
        size *= 2
    return f"at least {format_size(size)}"


RESERVE.ask("reserve of size 0", INVALID, lambda b: _reserve(0, bench=b))
RESERVE.ask("reserve of 4096 bytes", OK, lambda b: _reserve(4096, bench=b))
RESERVE.ask("reserve with alignment 3", INVALID, lambda b: _reserve(b.unit, 3, bench=b))
RESERVE.ask("reserve of a granule less 1 byte", INVALID, lambda b: _reserve(b.unit - 1, bench=b))
RESERVE.ask("reserve with flags 1", INVALID, lambda b: _reserve(b.unit, flags=1, bench=b))
RESERVE.ask("reserve with a hint that is not 2 MiB aligned", INVALID, lambda b: _reserve(b.unit, 0, 1 << 20, bench=b))
RESERVE.ask(
    "largest single reservation (power of two)",
    "32 TiB to 256 TiB, then OUT_OF_MEMORY (2)",
    _largest,
    lambda seen: seen.endswith("OUT_OF_MEMORY (2)") and seen.split(",")[0] in _LARGE,
)


def _half(bench: Bench) -> str:
    return bench.status("cuMemAddressFree", bench.reserve(2), bench.unit)


def _both(bench: Bench) -> str:
    pair = bench.adjacent()
    return bench.status("cuMemAddressFree", pair[0], 4 * bench.unit) if pair else NOT_ADJACENT


FREE.ask("free while mapped", INVALID, lambda b: b.status("cuMemAddressFree", b.mapped(1), b.unit))
FREE.ask("free of half a reservation", INVALID, _half)
FREE.ask("free of two adjacent reservations in one call", INVALID, _both)
