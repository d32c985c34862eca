"""Shared memory of the host driver: files, limits, read-only descriptors, processes that end."""

import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import vmm
from vmm.driver import Access, Driver
from vmm.host import HostDriver, os_view
from vmm.host.shared_file import read_descriptor

UNIT = 2 << 20
GRANT = [(0, Access.READWRITE)]


@pytest.fixture
def driver():
    found = Driver(HostDriver(memory="64 MiB"), "host")
    context = found.context_retain(0)
    with found.context(context):
        yield found
    found.context_release(0)


def mapped(driver, handle, access=Access.READWRITE):
    base = driver.reserve(UNIT)
    driver.map(base, UNIT, handle)
    driver.set_access(base, UNIT, [(0, access)])
    return base


def unmapped(driver, base, handle):
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, UNIT)


def descriptors():
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_case_32_a_legacy_handle_is_refused_and_names_export_which_shows_the_same_bytes():
    """Case 32 (vllm#42609, #43923), on a range of the toolkit, with a second process."""
    device = vmm.Device(driver=HostDriver(memory="64 MiB"))
    with device, vmm.GrowableRange(device, "8 MiB") as memory:
        memory.grow("2 MiB")
        with pytest.raises(vmm.DriverError, match="create it exportable, and share it by export_descriptor") as caught:
            device.driver.legacy_ipc_handle(memory.base)
        assert caught.value.code == 1
        driver = device.driver
        handle = driver.create(0, UNIT, exportable=True)
        base = mapped(driver, handle)
        with device.current():
            driver.copy_in(base, b"case 32", 7)
        descriptor = driver.export_descriptor(handle)
        assert child("print(bytes(ctypes.string_at(bring_in(driver), 7)).decode())", descriptor) == "case 32"
        os.close(descriptor)
        unmapped(driver, base, handle)


START = """
    import ctypes, sys, time
    import vmm
    from vmm.host import HostDriver, os_view
    driver = vmm.driver.Driver(HostDriver(memory="64 MiB"), "host")
    def bring_in(driver):
        base, handle = driver.reserve(2 << 20), driver.import_descriptor(int(sys.argv[1]))
        driver.map(base, 2 << 20, handle)
        driver.set_access(base, 2 << 20, [(0, vmm.Access.READWRITE)])
        return base
"""


def child(script, descriptor, **options):
    command = [sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(script), str(descriptor)]
    done = subprocess.run(
        command,
        pass_fds=[descriptor] if descriptor >= 0 else [],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_memory_outlives_a_process_that_is_killed(driver):
    """The maker exports and is killed; what it wrote is still there, and goes with the last holder."""
    script = textwrap.dedent(START) + textwrap.dedent("""
        import os, socket
        handle = driver.create(0, 2 << 20, exportable=True)
        base = driver.reserve(2 << 20)
        driver.map(base, 2 << 20, handle)
        driver.set_access(base, 2 << 20, [(0, vmm.Access.READWRITE)])
        ctypes.memmove(base, b"killed", 6)
        there = socket.socket(fileno=int(sys.argv[1]))
        socket.send_fds(there, [b"x"], [driver.export_descriptor(handle)])
        time.sleep(60)
    """)
    import socket

    here, there = socket.socketpair()
    process = subprocess.Popen([sys.executable, "-c", script, str(there.fileno())], pass_fds=[there.fileno()])
    _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    here.close()
    there.close()
    free = driver.memory_info()[0]
    handle = driver.import_descriptor(descriptors[0])
    assert driver.memory_info()[0] == free - UNIT  # memory that this process holds counts as its device's
    base, found = mapped(driver, handle), bytearray(6)
    driver.copy_out(found, base, 6)
    assert found == b"killed"
    unmapped(driver, base, handle)
    os.close(descriptors[0])
    assert driver.memory_info()[0] == free
    assert os_view.committed_bytes(driver.api) == 0


def test_an_exportable_allocation_has_a_file_of_its_own(driver):
    plain, handle = driver.create(0, UNIT), driver.create(0, UNIT, exportable=True)
    descriptor = driver.export_descriptor(handle)
    assert os.fstat(descriptor).st_size == UNIT
    assert os_view.committed_bytes(driver.api) == 2 * UNIT
    assert read_descriptor(descriptor) == ((1, 0), UNIT)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(descriptor, 0)  # sealed: it cannot be cut off under a mapping
    os.close(descriptor)
    for held in (plain, handle):
        driver.release(held)


def test_a_file_that_could_shrink_is_not_imported(driver):
    descriptor = os.memfd_create("vmm-export-device-0", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, UNIT)
    with pytest.raises(vmm.DriverError, match="INVALID_VALUE"):
        driver.import_descriptor(descriptor)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    driver.release(driver.import_descriptor(descriptor))
    os.close(descriptor)


@pytest.mark.parametrize(("name", "size"), [("vmm-export-device-3", UNIT), ("vmm-export-device-0", 4096)])
def test_memory_that_this_process_cannot_have_is_not_supported(driver, name, size):
    descriptor = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    with pytest.raises(vmm.DriverError, match="NOT_SUPPORTED"):
        driver.import_descriptor(descriptor)
    os.close(descriptor)


def test_a_read_only_descriptor_gives_read_only_memory(driver):
    handle = driver.create(0, UNIT, exportable=True)
    descriptor = driver.export_descriptor(handle)
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    os.close(descriptor)
    driver.release(handle)
    imported = driver.import_descriptor(reader)
    base = mapped(driver, imported, Access.READ)
    with pytest.raises(vmm.DriverError, match="NOT_PERMITTED"):
        driver.set_access(base, UNIT, GRANT)
    assert os_view.kernel_mapping(base).permission == "r--s"
    again = driver.export_descriptor(imported)
    assert fcntl.fcntl(again, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    unmapped(driver, base, imported)
    for held in (reader, again):
        os.close(held)


def test_a_writable_descriptor_may_follow_a_read_only_one(driver):
    maker = Driver(HostDriver(memory="16 MiB"), "host")
    made = maker.create(0, UNIT, exportable=True)
    descriptor = maker.export_descriptor(made)
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    first, second = driver.import_descriptor(reader), driver.import_descriptor(descriptor)
    base, other = mapped(driver, first, Access.READ), mapped(driver, second)
    driver.copy_in(other, b"written", 7)
    found = bytearray(7)
    driver.copy_out(found, base, 7)
    assert found == b"written"
    unmapped(driver, base, first)
    unmapped(driver, other, second)
    maker.release(made)
    for held in (reader, descriptor):
        os.close(held)


def test_the_exporter_itself_keeps_its_rights(driver):
    handle = driver.create(0, UNIT, exportable=True)
    descriptor = driver.export_descriptor(handle)
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    imported = driver.import_descriptor(reader)
    base = mapped(driver, handle)
    other = mapped(driver, imported, Access.READ)
    driver.copy_in(base, b"seen", 4)
    found = bytearray(4)
    driver.copy_out(found, other, 4)
    assert found == b"seen"
    with pytest.raises(vmm.DriverError, match="NOT_PERMITTED"):
        driver.set_access(other, UNIT, GRANT)
    unmapped(driver, base, handle)
    unmapped(driver, other, imported)
    for held in (reader, descriptor):
        os.close(held)


def test_a_limit_of_open_files_is_out_of_memory(driver, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(descriptors()) + 2, hard))
    try:
        with pytest.raises(MemoryError):
            for _ in range(32):
                driver.create(0, UNIT, exportable=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in caplog.text
    assert driver.api.live().allocations < 32
    for handle in list(driver.api._allocations):
        driver.release(handle)
    assert os_view.committed_bytes(driver.api) == 0


def test_poison_fills_exportable_memory_too():
    driver = Driver(HostDriver(memory="16 MiB", poison=0xA5), "host")
    handle = driver.create(0, UNIT, exportable=True)
    descriptor = driver.export_descriptor(handle)
    assert set(os.pread(descriptor, UNIT, 0)) == {0xA5}
    os.close(descriptor)
    driver.release(handle)


def test_no_descriptor_stays_open_when_a_driver_goes():
    before = descriptors()
    driver = Driver(HostDriver(memory="16 MiB"), "host")
    handle = driver.create(0, UNIT, exportable=True)
    os.close(driver.export_descriptor(handle))
    driver.release(handle)
    api = driver.api
    del driver
    api._close()
    assert descriptors() == before


@pytest.mark.parametrize("value", [-1, "3", 1.5])
def test_a_descriptor_is_an_int(driver, value):
    with pytest.raises(TypeError, match=re.escape(repr(value))):
        driver.import_descriptor(value)
