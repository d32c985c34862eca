"""Groups 3, 10, 11 and 12: physical memory, its handles, who may use them, and what they cost."""

from __future__ import annotations

import os
import threading

from ..driver import POSIX_FILE_DESCRIPTOR, check
from .addresses import INVALID
from .bench import DEVICE, HOST, HOST_NUMA, MANAGED, Bench
from .question import Group

CREATE, RELEASE, ELSEWHERE, COSTS = Group(3), Group(10), Group(11), Group(12)


def _create(bench: Bench, flags: int = 0, **prop: int) -> str:
    status, handle = bench.api.cuMemCreate(bench.unit, bench.prop(**prop), flags)
    if not int(status):
        bench.later("cuMemRelease", int(handle))
    return bench.named(status)


def _granularity(bench: Bench, option: int, kind: int) -> str:
    return bench.outcome("cuMemGetAllocationGranularity", bench.prop(kind), option)


def _is_multiple(seen: str) -> bool:
    return seen.isdigit() and int(seen) % (2 << 20) == 0


CREATE.ask("create on device -1", INVALID, lambda b: _create(b, ordinal=-1))
CREATE.ask("create on device 99", INVALID, lambda b: _create(b, ordinal=99))
CREATE.ask("create with flags 1", INVALID, lambda b: _create(b, flags=1))
CREATE.ask("recommended granularity of a device", "2097152", lambda b: _granularity(b, 1, DEVICE), _is_multiple)
CREATE.ask("granularity of HOST memory", "2097152", lambda b: _granularity(b, 0, HOST))
CREATE.ask("granularity of HOST_NUMA memory", "2097152", lambda b: _granularity(b, 0, HOST_NUMA))
CREATE.ask("create of type MANAGED", "NOT_SUPPORTED (801)", lambda b: _create(b, allocation=MANAGED))


def _over_release(bench: Bench) -> str:
    handle = int(bench.output("cuMemCreate", bench.unit, bench.prop(), 0))
    bench.output("cuMemRelease", handle)
    return bench.status("cuMemRelease", handle)


RELEASE.ask("a handle released once too often", INVALID, _over_release)
RELEASE.ask("release of a random number", INVALID, lambda b: b.status("cuMemRelease", 0x5EED_1234_5678_9ABC))


def _without_a_context(bench: Bench) -> str:
    """The first call of a whole life that fails on a thread without a context."""
    found: list[str] = []

    def life() -> None:
        api, unit = bench.api, bench.unit
        base = int(check("reserve", api.cuMemAddressReserve(unit, 0, 0, 0)))
        handle = int(check("create", api.cuMemCreate(unit, bench.prop(), 0)))
        calls = (
            ("cuMemMap", base, unit, 0, handle, 0),
            ("cuMemSetAccess", base, unit, bench.grant(), 1),
            ("cuMemGetAccess", bench.location(), base),
            ("cuMemUnmap", base, unit),
            ("cuMemRelease", handle),
            ("cuMemAddressFree", base, unit),
        )
        for call, *arguments in calls:
            status = getattr(api, call)(*arguments)[0]
            if status:
                found.append(f"{call}: {bench.named(status)}")

    thread = threading.Thread(target=life)
    thread.start()
    thread.join()
    return ", ".join(found) or "all of them work"


def _random_descriptor(bench: Bench) -> str:
    with open(os.devnull, "rb") as file:  # noqa: PTH123 - its descriptor is what is wanted
        return bench.status("cuMemImportFromShareableHandle", file.fileno(), POSIX_FILE_DESCRIPTOR)


ELSEWHERE.ask("virtual memory calls on a thread without a context", "all of them work", _without_a_context)
ELSEWHERE.ask("import of a descriptor of another file", INVALID, _random_descriptor)
ELSEWHERE.ask(
    "export of an allocation that was not made exportable",
    INVALID,
    lambda b: b.status("cuMemExportToShareableHandle", b.create(), POSIX_FILE_DESCRIPTOR, 0),
)


def _free(bench: Bench) -> int:
    return int(bench.output("cuMemGetInfo")[0])


def _count(bench: Bench) -> int:
    """1000, or what half of the free memory allows."""
    return max(1, min(1000, _free(bench) // bench.unit // 2))


def _per_handle(bench: Bench) -> str:
    count, before = _count(bench), _free(bench)
    for _ in range(count):
        bench.create()
    return f"{(before - _free(bench)) // count - bench.unit} bytes"


def _per_alias(bench: Bench) -> str:
    count, handle = _count(bench), bench.create()
    base, before = bench.reserve(count), _free(bench)
    for index in range(count):
        bench.map(base + index * bench.unit, handle)
    bench.output("cuMemSetAccess", base, count * bench.unit, bench.grant(), 1)
    return f"{(before - _free(bench)) // count} bytes"


COSTS.ask("device memory that a handle takes beyond its size", "0 bytes", _per_handle)
COSTS.ask("device memory that an alias takes", "0 bytes", _per_alias)
