"""The host driver's memory as the operating system sees it."""

import ctypes
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vmm.driver import Access, Driver
from vmm.host import HostDriver, libc, os_view

UNIT = 2 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
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


def run(script, *arguments, **options):
    """Run a script in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_system_counts_what_the_driver_counts(api, driver):
    """To the byte, over a random life of chunks of several sizes, plain memory among them."""
    seeded = random.Random(7)
    context = driver.context_retain(0)
    held = []
    with driver.context(context):
        for _ in range(60):
            if held and seeded.random() < 0.5:
                give, what = held.pop(seeded.randrange(len(held)))
                give(what)
            elif seeded.random() < 0.2:
                held.append((driver.alloc_free, driver.alloc(seeded.choice([1, 4096, 70_000]))))
            else:
                held.append((driver.release, driver.create(0, UNIT * seeded.choice([1, 1, 2, 3]))))
            free, total = driver.memory_info()
            assert os_view.committed_bytes(api) == total - free
        for give, what in held:
            give(what)
        assert os_view.committed_bytes(api) == 0
    driver.context_release(0)


def test_memory_is_taken_at_create_and_not_at_the_first_touch(api, driver):
    handle = driver.create(0, 3 * UNIT)
    assert os_view.committed_bytes(api) == 3 * UNIT
    driver.release(handle)


def test_a_terabyte_of_addresses_costs_no_memory(api, driver):
    before = int(Path("/proc/self/statm").read_text().split()[1])
    base = driver.reserve(1 << 40)
    after = int(Path("/proc/self/statm").read_text().split()[1])
    assert os_view.committed_bytes(api) == 0
    assert abs(after - before) * PAGE < 1 << 20
    line = os_view.kernel_mapping(base)
    assert line.permission == "---p"
    assert line.end - line.start >= 1 << 40
    driver.free(base, 1 << 40)


def test_access_is_the_kernels_permission(driver, mapped):
    base, handles = mapped
    assert (permission(base), permission(base + 2 * UNIT)) == ("rw-s", "---p")
    driver.set_access(base, UNIT, [(0, Access.READ)])
    assert (permission(base), permission(base + UNIT)) == ("r--s", "rw-s")
    driver.set_access(base, UNIT, [(0, Access.NONE)])
    assert permission(base) == "---s"
    driver.unmap(base, UNIT)
    assert permission(base) == "---p"
    driver.map(base, UNIT, handles[0])
    assert permission(base) == "---s"


def test_an_alias_is_a_second_mapping_of_the_same_file_bytes(driver, mapped):
    base, handles = mapped
    driver.map(base + 3 * UNIT, UNIT, handles[0])
    driver.set_access(base + 3 * UNIT, UNIT, [(0, Access.READ)])
    first, alias = os_view.kernel_mapping(base), os_view.kernel_mapping(base + 3 * UNIT)
    assert (first.inode, first.offset + base - first.start) == (alias.inode, alias.offset)
    ctypes.memmove(base + 5, b"twice", 5)
    assert ctypes.string_at(base + 3 * UNIT + 5, 5) == b"twice"
    driver.unmap(base + 3 * UNIT, UNIT)


def test_bytes_survive_unmap_and_remap_at_another_address(driver, mapped):
    base, handles = mapped
    ctypes.memmove(base, b"still here", 10)
    driver.unmap(base, UNIT)
    driver.map(base + 2 * UNIT, UNIT, handles[0])
    driver.set_access(base + 2 * UNIT, UNIT, GRANT)
    assert ctypes.string_at(base + 2 * UNIT, 10) == b"still here"
    driver.unmap(base + 2 * UNIT, UNIT)
    driver.map(base, UNIT, handles[0])


def test_a_new_chunk_does_not_show_another_ones_bytes(driver, mapped):
    base, handles = mapped
    ctypes.memset(base, 0xEE, UNIT)
    driver.unmap(base, UNIT)
    driver.release(handles[0])
    handles[0] = driver.create(0, UNIT)
    driver.map(base, UNIT, handles[0])
    driver.set_access(base, UNIT, GRANT)
    assert ctypes.string_at(base, UNIT) == bytes(UNIT)


def test_poison_fills_fresh_memory():
    driver = Driver(HostDriver(memory="16 MiB", poison=0xA5), "host")
    handle = driver.create(0, UNIT)
    base = driver.reserve(UNIT)
    driver.map(base, UNIT, handle)
    driver.set_access(base, UNIT, GRANT)
    assert ctypes.string_at(base, UNIT) == b"\xa5" * UNIT
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, UNIT)


def test_an_unmap_leaves_no_hole(driver, mapped):
    """Nobody else can take the addresses between an unmap and the next map."""
    base, handles = mapped
    driver.unmap(base, UNIT)
    assert not libc.reserve_at(base, PAGE)
    driver.map(base, UNIT, handles[0])


def test_chunks_created_in_order_add_no_kernel_mapping():
    """512 neighbours are one mapping to the kernel, before and after access is set."""
    driver = Driver(HostDriver(memory="32 MiB", granularity="64 KiB"), "host")
    unit = 64 << 10
    base = driver.reserve(512 * unit)
    handles = [driver.create(0, unit) for _ in range(512)]
    before = os_view.mapping_count()
    for index, handle in enumerate(handles):
        driver.map(base + index * unit, unit, handle)
    assert os_view.mapping_count() - before <= 2
    driver.set_access(base, 512 * unit, GRANT)
    assert os_view.mapping_count() - before <= 2
    driver.unmap(base, 512 * unit)
    for handle in handles:
        driver.release(handle)
    driver.free(base, 512 * unit)


def test_a_dropped_driver_gives_everything_back():
    api = HostDriver(memory="16 MiB")
    driver = Driver(api, "host")
    base = driver.reserve(UNIT)
    handle = driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    driver.release(handle)
    files = len(list(Path("/proc/self/fd").iterdir()))
    name = os_view.kernel_mapping(base).name
    assert "vmm-device-0" in name
    del api, driver
    assert len(list(Path("/proc/self/fd").iterdir())) == files - 2  # the device's file and the host's
    line = os_view.kernel_mapping(base)
    assert line is None or line.name != name


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
    from cuda.bindings import driver as cuda

    made = cuda.CUmemAccessDesc()
    (ctypes.c_int * 3).from_address(made.getPtr())[:] = kind, 0, access
    return made


def _host_grant():
    return _grant(3, kind=2)


def _host_property():
    from cuda.bindings import driver as cuda

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
    from vmm.host import headroom

    limit, use = tmp_path / "memory.max", tmp_path / "memory.current"
    if group:
        limit.write_text(group + "\n")
        use.write_text("600000\n")
    monkeypatch.setattr(headroom, "_GROUP_LIMIT", limit)
    monkeypatch.setattr(headroom, "_GROUP_USE", use)
    monkeypatch.setattr(headroom, "_machine", lambda: 1 << 62)
    assert headroom.available_bytes() == expected


FORK = """
    import ctypes, os, sys, warnings
    from vmm.driver import Access, Driver
    from vmm.host import HostDriver, os_view
    from vmm.host.gate import OUTPUTS

    api = HostDriver(memory="16 MiB", backing=sys.argv[1])
    other = HostDriver(memory="16 MiB", backing=sys.argv[1])  # not initialised before the fork
    driver = Driver(api, "host")
    base = driver.reserve(4 << 20)
    handle = driver.create(0, 2 << 20)
    driver.map(base, 2 << 20, handle)
    driver.set_access(base, 2 << 20, [(0, Access.READWRITE)])
    if api.backing == "memory":
        ctypes.memmove(base, b"parent", 6)
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside NumPy's threads
    child = os.fork()
    if child == 0:
        codes = {int(getattr(api, call)(0)[0]) for call in (*OUTPUTS, "cuInit")}
        fresh = int(other.cuInit(0)[0])
        del api, driver
        os._exit(0 if codes == {3} and fresh == 0 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if api.backing == "memory":
        print(ctypes.string_at(base, 6).decode(), os_view.committed_bytes(api))
    driver.unmap(base, 2 << 20); driver.release(handle); driver.free(base, 4 << 20)
    print(api.live().total)
"""


def test_a_forked_child_is_refused_and_harms_nothing():
    assert run(FORK, "memory") == ["0", "parent", str(UNIT), "0"]
    assert run(FORK, "none") == ["0", "0"]


ADDRESSES = """
    import resource
    from vmm.host import HostDriver
    api = HostDriver(memory="16 MiB")
    api.cuInit(0)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    print(int(api.cuMemAddressReserve(8 << 30, 0, 0, 0)[0]), api.live().total)
"""


def test_a_limit_on_addresses_is_out_of_memory():
    assert run(ADDRESSES) == ["2", "0"]


LARGE = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    from vmm.driver import Access, Driver
    from vmm.host import HostDriver, os_view
    unit, count = 2 << 20, 4096
    api = HostDriver(memory="8 GiB")
    driver = Driver(api, "host")
    base = driver.reserve(count * unit)
    handles = [driver.create(0, unit) for _ in range(count)]
    order = handles if sys.argv[1] == "ordered" else handles[::2] + handles[1::2]
    for index, handle in enumerate(order):
        driver.map(base + index * unit, unit, handle)
    driver.set_access(base, count * unit, [(0, Access.READWRITE)])
    print(os_view.committed_bytes(api), os_view.mapping_count() < 65530)
    driver.unmap(base, count * unit)
    for handle in handles:
        driver.release(handle)
    driver.free(base, count * unit)
    print(os_view.committed_bytes(api), api.live().total)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["ordered", "scattered"])
def test_8_gib_need_few_files_and_few_mappings(order):
    assert run(LARGE, order) == [str(8 << 30), "True", "0", "0"]
