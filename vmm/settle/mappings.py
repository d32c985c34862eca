"""Groups 4 to 7: map, unmap, access."""

from __future__ import annotations

from .addresses import INVALID, NOT_ADJACENT
from .bench import HOST, READWRITE, Bench
from .question import Group

MAP, UNMAP, SET_ACCESS, GET_ACCESS = Group(4), Group(5), Group(6), Group(7)
NO_WAIT = "does not wait"


def _map(bench: Bench, address: int, units: int, handle: int, offset: int = 0, flags: int = 0) -> str:
    size = units * bench.unit
    status = bench.api.cuMemMap(address, size, offset, handle, flags)[0]
    if not int(status):
        bench.later("cuMemUnmap", address, size)
    return bench.named(status)


def _map_across(bench: Bench) -> str:
    pair = bench.adjacent()
    return _map(bench, pair[1] - bench.unit, 2, bench.create(2)) if pair else NOT_ADJACENT


def _map_stale(bench: Bench) -> str:
    handle = int(bench.output("cuMemCreate", bench.unit, bench.prop(), 0))
    bench.output("cuMemRelease", handle)
    return _map(bench, bench.reserve(1), 1, handle)


MAP.ask("map of less than the allocation", INVALID, lambda b: _map(b, b.reserve(2), 1, b.create(2)))
MAP.ask("map from an offset of one granule", INVALID, lambda b: _map(b, b.reserve(2), 1, b.create(2), b.unit))
MAP.ask("map over an existing mapping", INVALID, lambda b: _map(b, b.mapped(1), 1, b.create()))
MAP.ask("map outside every reservation", INVALID, lambda b: _map(b, 1 << 46, 1, b.create()))
MAP.ask("map across two adjacent reservations", INVALID, _map_across)
MAP.ask("map of a released handle", INVALID, _map_stale)
MAP.ask("map with flags 1", INVALID, lambda b: _map(b, b.reserve(1), 1, b.create(), flags=1))


def _with_a_hole(bench: Bench) -> int:
    """Three granules, of which the middle one is not mapped."""
    base = bench.reserve(3)
    for at in (base, base + 2 * bench.unit):
        bench.map(at, bench.create())
        bench.output("cuMemSetAccess", at, bench.unit, bench.grant(), 1)
    return base


def _unmap_twice(bench: Bench) -> str:
    base = bench.mapped(1)
    bench.output("cuMemUnmap", base, bench.unit)
    return bench.status("cuMemUnmap", base, bench.unit)


def _unmap_across(bench: Bench) -> str:
    pair = bench.adjacent()
    if pair is None:
        return NOT_ADJACENT
    for at in (pair[1] - bench.unit, pair[1]):
        bench.map(at, bench.create())
    return bench.status("cuMemUnmap", pair[1] - bench.unit, 2 * bench.unit)


def _unmap_beside_work(bench: Bench) -> str:
    base = bench.mapped(1)
    return bench.waits_for_work(lambda: bench.output("cuMemUnmap", base, bench.unit))


UNMAP.ask("unmap of a run with a hole", INVALID, lambda b: b.status("cuMemUnmap", _with_a_hole(b), 3 * b.unit))
UNMAP.ask("unmap of what was never mapped", INVALID, lambda b: b.status("cuMemUnmap", b.reserve(1), b.unit))
UNMAP.ask("unmap twice", INVALID, _unmap_twice)
UNMAP.ask("unmap across two adjacent reservations", INVALID, _unmap_across)
UNMAP.ask("unmap while another stream has work", NO_WAIT, _unmap_beside_work)


def _set(bench: Bench, base: int, units: int, access: int = READWRITE, **place: int) -> str:
    return bench.status("cuMemSetAccess", base, units * bench.unit, bench.grant(access, **place), 1)


def _part_of_a_mapping(bench: Bench) -> str:
    base = bench.reserve(10)
    bench.map(base, bench.create(10), 10)
    return _set(bench, base, 1)


def _set_beside_work(bench: Bench) -> str:
    base = bench.mapped(1, access=None)
    return bench.waits_for_work(lambda: bench.output("cuMemSetAccess", base, bench.unit, bench.grant(), 1))


def _map_beside_work(bench: Bench) -> str:
    base, handle = bench.reserve(1), bench.create()
    return bench.waits_for_work(lambda: bench.map(base, handle))


SET_ACCESS.ask("set access on the first granule of a mapping of ten", INVALID, _part_of_a_mapping)
SET_ACCESS.ask("set access over a hole", INVALID, lambda b: _set(b, _with_a_hole(b), 3))
SET_ACCESS.ask("set access of device 99", "INVALID_DEVICE (101)", lambda b: _set(b, b.mapped(1), 1, ordinal=99))
SET_ACCESS.ask(
    "set access of HOST on device memory", "NOT_SUPPORTED (801)", lambda b: _set(b, b.mapped(1), 1, kind=HOST)
)
SET_ACCESS.ask("set access while another stream has work", NO_WAIT, _set_beside_work)
SET_ACCESS.ask("map while another stream has work", NO_WAIT, _map_beside_work)


def _get(bench: Bench, address: int) -> str:
    return bench.outcome("cuMemGetAccess", bench.location(), address)


GET_ACCESS.ask("get access before any was set", "0", lambda b: _get(b, b.mapped(1, access=None)))
GET_ACCESS.ask("get access of reserved addresses", INVALID, lambda b: _get(b, b.reserve(1)))
