"""What the host driver counts, explains and shares between threads."""

import threading

import pytest

from vmm.driver import Access, Driver
from vmm.errors import DriverError
from vmm.host import HostDriver

UNIT = 2 << 20
GRANT = [(0, Access.READWRITE)]


@pytest.fixture(params=["memory", "none"])
def api(request):
    made = HostDriver(memory="64 MiB", backing=request.param)
    made.cuInit(0)
    return made


def test_live_counts_each_kind(api):
    driver = Driver(api, "host")
    context = driver.context_retain(0)
    base, handle = driver.reserve(2 * UNIT), driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.map(base + UNIT, UNIT, handle)
    with driver.context(context):
        plain, pinned = driver.alloc(10), driver.host_alloc(10)
        stream, event = api.cuStreamCreate(0)[1], api.cuEventCreate(0)[1]
    seen = api.live()
    assert (seen.reservations, seen.mappings, seen.allocations) == (1, 2, 1)
    assert (seen.plain, seen.pinned, seen.contexts, seen.streams, seen.events) == (1, 1, 1, 1, 1)
    assert seen.total == 9
    driver.release(handle)
    assert api.live().allocations == 1  # still mapped
    driver.unmap(base, 2 * UNIT)
    assert api.live().allocations == 0
    with driver.context(context):
        driver.alloc_free(plain)
        driver.host_free(pinned)
    api.cuStreamDestroy(stream)
    api.cuEventDestroy(event)
    driver.free(base, 2 * UNIT)
    driver.context_release(0)
    assert api.live() == type(seen)()


def test_handles_differ_between_drivers():
    drivers = [Driver(HostDriver(backing="none"), "host") for _ in range(3)]
    handles = [driver.create(0, UNIT) for driver in drivers for _ in range(3)]
    assert len(set(handles)) == 9
    for index, handle in enumerate(handles):
        drivers[index // 3].release(handle)


def test_addresses_run_out_without_bytes_as_with_them():
    driver = Driver(HostDriver(backing="none"), "host")
    half = 1 << 46
    bases = [driver.reserve(half), driver.reserve(half)]
    with pytest.raises(MemoryError):
        driver.reserve(UNIT)
    driver.free(bases.pop(), half)
    bases.append(driver.reserve(half))
    for base in bases:
        driver.free(base, half)


def test_threads_share_a_driver(api):
    driver = Driver(api, "host")
    failures = []

    def work():
        try:
            for _ in range(50):
                base = driver.reserve(4 * UNIT)
                handles = [driver.create(0, UNIT) for _ in range(4)]
                for index, handle in enumerate(handles):
                    driver.map(base + index * UNIT, UNIT, handle)
                driver.set_access(base, 4 * UNIT, GRANT)
                driver.unmap(base, 4 * UNIT)
                for handle in handles:
                    driver.release(handle)
                driver.free(base, 4 * UNIT)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert api.live().total == 0


def test_submit_runs_at_once_on_a_stream_that_exists(api):
    driver = Driver(api, "host")
    seen = []
    with driver.context(driver.context_retain(0)):
        stream = int(api.cuStreamCreate(0)[1])
        api.submit(0, lambda: seen.append("default"))
        api.submit(stream, lambda: seen.append("own"))
        api.cuStreamDestroy(stream)
        with pytest.raises(DriverError, match="INVALID_HANDLE"):
            api.submit(stream, lambda: seen.append("never"))
    driver.context_release(0)
    assert seen == ["default", "own"]


def test_explain_names_what_an_address_is(api):
    driver = Driver(api, "host")
    context = driver.context_retain(0)
    base, handle = driver.reserve(2 * UNIT), driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.set_access(base, UNIT, [(0, Access.READ)])
    with driver.context(context):
        plain, pinned = driver.alloc(10), driver.host_alloc(10)
    found = api.explain(base + 17)
    assert (found.kind, found.base, found.size, found.handle, found.access) == ("mapped", base, 2 * UNIT, handle, 1)
    assert f"{base + 17:#x} is 0x11 bytes into the reservation of 4 MiB" in str(found)
    assert "read only" in str(found)
    assert str(api.explain(base + UNIT)).endswith("nothing was ever mapped there")
    assert api.explain(base + UNIT).kind == "reserved"
    assert (api.explain(plain + 9).kind, api.explain(pinned + 9).kind) == ("plain", "pinned")
    assert f"{plain:#x}" in str(api.explain(plain))
    assert api.explain(plain + 10).kind == "unknown"
    assert "belongs to no reservation" in str(api.explain(5))
    with driver.context(context):
        driver.alloc_free(plain)
        driver.host_free(pinned)
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, 2 * UNIT)
    driver.context_release(0)
