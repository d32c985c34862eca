"""The host driver in processes of their own: forks, and limits that a shell sets."""

import subprocess
import sys
import textwrap

import pytest

UNIT = 2 << 20


def run(script, *arguments, **options):
    """Run a script in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


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


FORKED = """
    import os, sys, warnings
    import vmm
    warnings.simplefilter("ignore", DeprecationWarning)
    with vmm.Device(driver=vmm.HostDriver(memory="64 MiB")) as device, vmm.GrowableRange(device, "16 MiB") as memory:
        memory.grow("4 MiB")
        child = os.fork()
        if child == 0:
            again = lambda: vmm.Device(driver=device.driver.api)
            for use in (lambda: memory.grow("2 MiB"), device.memory_info, again):
                try:
                    use()
                except vmm.DriverError as error:
                    print(error.code, "start it with spawn or exec" in str(error), flush=True)
            with vmm.Device(driver=vmm.HostDriver(memory="8 MiB")) as fresh:
                print(fresh.memory_info().free, flush=True)
            memory.close()  # and with nothing of the parent's, the child closes and ends like any other
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        memory.grow("2 MiB")
        print(memory.committed)
"""


def test_case_35_a_forked_child_gets_a_clear_error_and_ends_in_peace():
    """Case 35 (triton#10443): use in a forked child after the parent initialised: a clear error, not a crash."""
    assert run(FORKED) == ["3", "True"] * 3 + [str(8 << 20), "7", str(6 << 20)]
