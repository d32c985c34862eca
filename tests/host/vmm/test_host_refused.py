"""Where the operating system refuses, the driver is out of memory and nothing has changed."""

import ctypes
import os

import pytest
from cuda.bindings import driver as cuda

from vmm.driver import Access, Driver
from vmm.host import HostDriver, headroom, libc, os_view

UNIT = 2 << 20
GRANT = [(0, Access.READWRITE)]


@pytest.fixture
def api():
    return HostDriver(memory="64 MiB")


@pytest.fixture
def driver(api):
    return Driver(api, "host")


@pytest.fixture
def mapped(driver):
    """A reservation of 4 chunks, the first two of them mapped with full access: (base, handles)."""
    base = driver.reserve(4 * UNIT)
    handles = [driver.create(0, UNIT) for _ in range(2)]
    for index, handle in enumerate(handles):
        driver.map(base + index * UNIT, UNIT, handle)
    driver.set_access(base, 2 * UNIT, GRANT)
    yield base, handles
    driver.unmap(base, 2 * UNIT)
    for handle in handles:
        driver.release(handle)
    driver.free(base, 4 * UNIT)


def permission(address):
    return os_view.kernel_mapping(address).permission


def dump(api):
    """Everything that a refused call must leave as it was."""
    space = api._space
    return (
        api.live(),
        [(region.base, region.size) for region in space.regions()],
        {granule: (m.base, m.allocation.handle, dict(m.access)) for granule, m in space.granules.items()},
        {handle: (a.refs, a.maps, a.offset) for handle, a in api._allocations.items()},
        dict(api._backing._reserved),
        [(bank.used, bank.store.committed()) for bank in (*api._devices, api._host)],
    )


@pytest.mark.parametrize("step", ["reserve", "create", "map", "set_access", "unmap", "alloc", "host_alloc"])
def test_what_the_system_refuses_is_out_of_memory_and_changes_nothing(api, driver, mapped, monkeypatch, caplog, step):
    base, handles = mapped
    context = driver.context_retain(0)
    kept = dump(api)
    seen = [permission(base), permission(base + UNIT), permission(base + 2 * UNIT)]

    def full(*_arguments):
        raise OSError(12, "Cannot allocate memory")

    never = {
        "reserve": (libc, "reserve", lambda _size: 0),
        "create": (os, "posix_fallocate", full),
        "map": (libc, "map_file", lambda *_: False),
        "set_access": (libc, "protect", lambda *_: False),
        "unmap": (libc, "make_plain", lambda *_: False),
        "alloc": (libc, "protect", lambda *_: False),
        "host_alloc": (os, "posix_fallocate", full),
    }
    calls = {
        "reserve": lambda: api.cuMemAddressReserve(UNIT, 0, 0, 0),
        "create": lambda: api.cuMemCreate(UNIT, driver._property(0, False), 0),
        "map": lambda: api.cuMemMap(base + 2 * UNIT, UNIT, 0, handles[0], 0),
        "set_access": lambda: api.cuMemSetAccess(base, 2 * UNIT, driver._grants[((0, Access.READWRITE),)], 1),
        "unmap": lambda: api.cuMemUnmap(base, 2 * UNIT),
        "alloc": lambda: api.cuMemAlloc(100),
        "host_alloc": lambda: api.cuMemHostAlloc(100, 0),
    }
    with driver.context(context):
        with monkeypatch.context() as patched:
            patched.setattr(*never[step])
            assert int(calls[step]()[0]) == 2
        assert dump(api) == kept
        assert [permission(base), permission(base + UNIT), permission(base + 2 * UNIT)] == seen
    assert step == "reserve" or "refused" in caplog.text
    driver.context_release(0)


def test_an_access_that_is_refused_half_way_is_undone(api, driver, mapped, monkeypatch):
    """Two runs of different permission: the second is refused, and the first gets its old one back."""
    base, _handles = mapped
    host = api.cuMemCreate(UNIT, _host_property(), 0)[1]
    driver.map(base + 2 * UNIT, UNIT, int(host))
    api.cuMemSetAccess(base + 2 * UNIT, UNIT, [_host_grant()], 1)
    kept, protect, calls = dump(api), libc.protect, []

    def second_fails(*arguments):
        calls.append(arguments)
        return protect(*arguments) if len(calls) != 2 else False

    with monkeypatch.context() as patched:
        patched.setattr(libc, "protect", second_fails)
        grant = driver._grants.setdefault("read", [_grant(1)])
        assert int(api.cuMemSetAccess(base, 3 * UNIT, grant, 1)[0]) == 2
    assert dump(api) == kept
    assert [permission(base + i * UNIT) for i in range(3)] == ["rw-s", "rw-s", "rw-s"]
    driver.unmap(base + 2 * UNIT, UNIT)
    driver.release(int(host))


def _grant(access, kind=1):
    made = cuda.CUmemAccessDesc()
    (ctypes.c_int * 3).from_address(made.getPtr())[:] = kind, 0, access
    return made


def _host_grant():
    return _grant(3, kind=2)


def _host_property():
    made = cuda.CUmemAllocationProp()
    (ctypes.c_int * 4).from_address(made.getPtr())[:] = 1, 0, 2, 0
    return made


def test_memory_that_the_machine_does_not_have_is_refused_in_time(monkeypatch, caplog):
    left = iter([66 << 20, 64 << 20])
    monkeypatch.setattr("vmm.host.headroom.available_bytes", lambda: next(left))
    small = Driver(HostDriver(memory="8 GiB"), "host")
    handle = small.create(0, UNIT)  # 64 MiB are always left for the program itself
    with pytest.raises(MemoryError):
        small.create(0, UNIT)
    assert "lower memory=" in caplog.text
    small.release(handle)


@pytest.mark.parametrize(("group", "expected"), [("max", 1 << 62), ("1000000", 400_000), (None, 1 << 62)])
def test_a_containers_limit_counts(tmp_path, monkeypatch, group, expected):
    limit, use = tmp_path / "memory.max", tmp_path / "memory.current"
    if group:
        limit.write_text(group + "\n")
        use.write_text("600000\n")
    monkeypatch.setattr(headroom, "_GROUP_LIMIT", limit)
    monkeypatch.setattr(headroom, "_GROUP_USE", use)
    monkeypatch.setattr(headroom, "_machine", lambda: 1 << 62)
    assert headroom.available_bytes() == expected
