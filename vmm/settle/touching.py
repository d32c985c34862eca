"""Groups 8 and 9: copies and fills where they must not be, and what pointer queries say."""

from __future__ import annotations

from collections.abc import Callable

from .addresses import INVALID, OK
from .bench import NONE, READ, Bench
from .question import Group

COPIES, QUERIES = Group(8), Group(9)
_LENGTH = 64
_PLACES: dict[str, Callable[[Bench], int]] = {
    "reserved addresses": lambda b: b.reserve(1),
    "memory without access": lambda b: b.mapped(1, NONE),
    "read-only memory": lambda b: b.mapped(1, READ),
    "memory that ends half way": lambda b: b.mapped(1, spare=1) + b.unit - _LENGTH // 2,
}


def _to_device(bench: Bench, address: int) -> str:
    return bench.status("cuMemcpyHtoD", address, bytes(_LENGTH), _LENGTH)


def _to_host(bench: Bench, address: int) -> str:
    return bench.status("cuMemcpyDtoH", bytearray(_LENGTH), address, _LENGTH)


def _fill(bench: Bench, address: int) -> str:
    return bench.status("cuMemsetD8", address, 0, _LENGTH)


def _fill_async(bench: Bench, address: int) -> str:
    return bench.status("cuMemsetD8Async", address, 0, _LENGTH, 0)


def _within(bench: Bench, address: int) -> str:
    return bench.status("cuMemcpyDtoDAsync", address, bench.mapped(1), _LENGTH, 0)


_WAYS = {
    "cuMemcpyHtoD to": _to_device,
    "cuMemcpyDtoH from": _to_host,
    "cuMemsetD8 of": _fill,
    "cuMemsetD8Async of": _fill_async,
    "cuMemcpyDtoDAsync to": _within,
}


def _touch(place: str, way: str) -> Callable[[Bench], str]:
    """What the call answers, and how the context is afterwards where it is not as before."""

    def probe(bench: Bench) -> str:
        seen = _WAYS[way](bench, _PLACES[place](bench))
        after = bench.status("cuCtxSynchronize")
        return seen if after == OK else f"{seen}, then the context answers {after}"

    return probe


for _place in _PLACES:
    for _way in _WAYS:
        _allowed = _place == "read-only memory" and _way == "cuMemcpyDtoH from"
        COPIES.ask(f"{_way} {_place}", OK if _allowed else INVALID, _touch(_place, _way))


def _buffer_ids(bench: Bench) -> str:
    """Whether the id is of the allocation or of the mapping."""
    base, handle = bench.reserve(3), bench.create()
    for index, memory in enumerate((handle, handle, bench.create())):
        bench.map(base + index * bench.unit, memory)
    first, alias, other = (bench.attribute("BUFFER_ID", base + index * bench.unit) for index in range(3))
    if other in (first, alias):
        return f"not unique: {first}, {alias}, {other}"
    return "per allocation" if first == alias else "per mapping"


def _mapping(bench: Bench, name: str) -> str:
    """What an attribute says inside the second of three adjacent mappings."""
    base = bench.mapped(3)
    seen = bench.attribute(name, base + bench.unit + 5)
    known = {
        str(base): "the run of mappings",
        str(base + bench.unit): "the single mapping",
        str(bench.unit): "the single mapping",
        str(3 * bench.unit): "the run of mappings",
    }
    return known.get(seen, seen)


QUERIES.ask("address range of reserved addresses", INVALID, lambda b: b.outcome("cuMemGetAddressRange", b.reserve(1)))
QUERIES.ask("address range of a foreign address", "NOT_FOUND (500)", lambda b: b.status("cuMemGetAddressRange", 4096))
QUERIES.ask("MAPPED of reserved addresses", "0", lambda b: b.attribute("MAPPED", b.reserve(1)))
QUERIES.ask("CONTEXT of mapped addresses", "0", lambda b: b.attribute("CONTEXT", b.mapped(1)))
QUERIES.ask("MEMORY_TYPE of reserved addresses", "0", lambda b: b.attribute("MEMORY_TYPE", b.reserve(1)))
QUERIES.ask("BUFFER_ID of two mappings of one allocation", "per allocation", _buffer_ids)
QUERIES.ask("MAPPING_BASE_ADDR", "the single mapping", lambda b: _mapping(b, "MAPPING_BASE_ADDR"))
QUERIES.ask("MAPPING_SIZE", "the single mapping", lambda b: _mapping(b, "MAPPING_SIZE"))
