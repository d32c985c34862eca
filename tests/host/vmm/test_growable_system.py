"""What a growable range says is committed, against what the operating system says is taken."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

import vmm
from vmm.host.os_view import committed_bytes, kernel_mapping

CHUNK = 2 << 20


def resident_of_machine():
    with Path("/proc/meminfo").open() as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))


def test_committed_agrees_with_the_system_to_the_byte(device):
    rng = random.Random(3)
    with vmm.GrowableRange(device, "128 MiB") as kv:
        for _ in range(60):
            chunk = rng.randrange(kv.chunk_count)
            kv.decommit([chunk]) if kv.is_committed(chunk) else kv.commit([chunk])
            assert committed_bytes(device.driver.api, 0) == kv.committed
        assert kv.committed > 0
    assert committed_bytes(device.driver.api, 0) == 0


def test_reserving_1_tib_costs_no_physical_memory(device):
    before = resident_of_machine()
    with vmm.GrowableRange(device, "1 TiB") as kv:
        assert kv.reserved == 1 << 40
        assert kv.committed == committed_bytes(device.driver.api, 0) == 0
        assert device.memory_info().free == device.total
        assert abs(resident_of_machine() - before) < 64 << 20  # others on the machine take and give some
        kv.commit([kv.chunk_count - 1])
        kv.array("uint8", CHUNK, offset=kv.reserved - CHUNK)[:] = 7
        assert committed_bytes(device.driver.api, 0) == CHUNK


def test_the_system_protects_what_is_protected(device):
    with vmm.GrowableRange(device, "8 MiB") as kv:
        kv.grow(2 * CHUNK)
        kv.protect(CHUNK, 2 * CHUNK, "r")
        seen = [kernel_mapping(kv.base + place * CHUNK).permission for place in range(3)]
        assert [permission[:2] for permission in seen] == ["rw", "r-", "--"]


EIGHT_GIB = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import vmm
from vmm.host.os_view import committed_bytes, mapping_count
with vmm.Device(driver=vmm.HostDriver(memory="9 GiB")) as device:
    with vmm.GrowableRange(device, "16 GiB") as kv:
        kv.grow("8 GiB")
        for gib in range(8):
            kv.array("uint8", 1, offset=gib << 30)[:] = gib + 1
        kv.decommit([]); kv.shrink("4 GiB"); kv.grow("4 GiB")
        kept = int(kv.array("uint8", 1, offset=3 << 30)[0])
        print(mapping_count() < 1000, kv.committed, committed_bytes(device.driver.api, 0), kept)
    print(committed_bytes(device.driver.api, 0), device.driver.api.live().mappings)
"""


@pytest.mark.exhaustive
def test_an_8_gib_range_works_with_256_files_and_the_default_number_of_mappings():
    done = subprocess.run([sys.executable, "-W", "error", "-c", EIGHT_GIB], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout.split() == ["True", str(8 << 30), str(8 << 30), "4", "0", "0"]
