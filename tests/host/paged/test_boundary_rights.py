"""Who may touch memory is a matter of mappings and devices: not of sequences, block tables or contexts."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import paged
import vmm
from paged import attention
from vmm import Access

MIB = 1 << 20
CHUNK = 2 * MIB
INVALID_VALUE, ILLEGAL_ADDRESS = 1, 700


@pytest.fixture
def pool(device):
    """Blocks of 4 KiB, 512 a row."""
    layout = paged.KVLayout(paged.KVSpec(1, 2, 16, "float32"), chunk=device.granularity)
    with paged.KVPool(device, layout, budget="8 MiB") as made:
        yield made


@pytest.fixture
def pair():
    """Two devices of one driver, in one process."""
    api = vmm.HostDriver(memory="16 MiB", devices=2)
    with vmm.Device(0, driver=api) as first, vmm.Device(1, driver=api) as second:
        yield first, second


def rows(count, value):
    return np.full((count, 2, 16), value, np.float32)


def put(device, address, data):
    with device.current():
        device.driver.copy_in(address, data, len(data))


def got(device, address, size):
    found = bytearray(size)
    with device.current():
        device.driver.copy_out(found, address, size)
    return bytes(found)


# -- rights -------------------------------------------------------------------------------------------------------


def test_rights_belong_to_the_mapping_and_not_to_the_memory(device):
    """The same memory twice: through one address it can be written, through the other only read."""
    with vmm.PhysicalMemory(device, CHUNK) as memory, vmm.AddressRange(device, 2 * CHUNK) as addresses:
        writable, readable = addresses.map(0, memory), addresses.map(CHUNK, memory)
        assert got_refused(device, writable.address)  # mapped, and no right to it yet
        addresses.set_access([writable], Access.READWRITE)
        addresses.set_access([readable], Access.READ)
        put(device, writable.address, b"KV")
        assert got(device, readable.address, 2) == b"KV"
        with pytest.raises(vmm.DriverError) as refused:
            put(device, readable.address, b"no")
        assert refused.value.code == INVALID_VALUE
        assert got(device, writable.address, 2) == b"KV"
        assert {run.handle for run in vmm.snapshot(addresses).runs} == {memory.handle}


def got_refused(device, address):
    with pytest.raises(vmm.DriverError) as refused:
        got(device, address, 2)
    return refused.value.code == INVALID_VALUE


@pytest.mark.usefixtures("compiler")
def test_no_right_stands_between_two_sequences_of_a_chunk(pool):
    """One sequence's slots, used by mistake for another's tokens, are written as if they were its own."""
    mine, other = pool.sequence(), pool.sequence()
    slots, _ = mine.append(4), other.append(4)
    attention.append(pool, 0, rows(4, 1), rows(4, 1), slots)
    page_table = vmm.snapshot(pool.range)
    places = [pool.address(block=sequence.table[0]) for sequence in (mine, other)]
    assert page_table.find(places[0]) is page_table.find(places[1])  # one mapping, one right
    attention.append(pool, 0, rows(4, 9), rows(4, 9), slots)  # meant for `other`
    assert (attention.gather(pool, 0, mine)[0] == 9).all()


@pytest.mark.usefixtures("compiler")
def test_a_read_only_chunk_refuses_a_kernel_whatever_the_block_table_says(device, pool):
    sequence = pool.sequence()
    slots = sequence.append(4)
    attention.append(pool, 0, rows(4, 1), rows(4, 1), slots)
    pool.range.protect(0, CHUNK, "r")
    assert (attention.gather(pool, 0, sequence)[0] == 1).all()
    with pytest.raises(vmm.DriverError, match="range 'kv', chunk 0") as refused:
        attention.append(pool, 0, rows(4, 9), rows(4, 9), slots)
        device.synchronize()
    assert refused.value.code == ILLEGAL_ADDRESS
    device.driver.api.reset_context()
    assert (attention.gather(pool, 0, sequence)[0] == 1).all()


# -- contexts and processes ---------------------------------------------------------------------------------------


def test_contexts_of_a_process_share_addresses_and_rights_are_by_device(pair):
    first, second = pair
    with vmm.GrowableRange(first, "64 MiB") as kv:
        kv.grow(CHUNK)
        put(first, kv.base, b"KV")
        seen = [vmm.describe(device, kv.base) for device in pair]
        assert [(one.kind, one.base, one.size, one.mapped) for one in seen] == [("vmm", kv.base, 64 * MIB, True)] * 2
        assert [first.driver.get_access(device, kv.base) for device in (0, 1)] == [Access.READWRITE, Access.NONE]
        kv.grant(second, "r")
        assert first.driver.get_access(1, kv.base) is Access.READ
        assert got(second, kv.base, 2) == b"KV"  # the same address, from the other context
        with second.current():  # another context is current, and the calls work all the same
            kv.grow(CHUNK)
        assert first.driver.get_access(1, kv.base + CHUNK) is Access.READ


def test_a_thread_without_a_context_maps_in_the_same_address_space(device):
    with vmm.GrowableRange(device, "64 MiB") as kv:
        errors = []

        def work():
            try:
                current = int(device.driver.api.cuCtxGetCurrent()[1] or 0)
                assert current == 0
                kv.grow(CHUNK)
            except BaseException as error:  # told by the assertion below
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert errors == []
        put(device, kv.base, b"KV")
        assert got(device, kv.base, 2) == b"KV"


def test_an_address_means_nothing_in_another_process(device):
    """The same number there is nobody's memory, for the driver as for the system."""
    with vmm.GrowableRange(device, "64 MiB") as kv:
        kv.grow(CHUNK)
        code = f"import vmm; print(vmm.describe(vmm.Device(driver=vmm.HostDriver(memory='16 MiB')), {kv.base}).kind)"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert (found.stdout, vmm.describe(device, kv.base).kind) == ("foreign\n", "vmm")


# -- nothing is mapped by itself ----------------------------------------------------------------------------------


def test_touching_an_address_maps_nothing(device):
    with vmm.GrowableRange(device, "1 TiB") as kv:
        free = device.memory_info().free
        kv.commit([0, 1000])
        for chunk in (1, 999, 1001):
            assert got_refused(device, kv.base + chunk * CHUNK)
        assert kv.committed == free - device.memory_info().free == 2 * CHUNK
        kv.commit([999])
        put(device, kv.base + 999 * CHUNK, b"KV")
        assert got(device, kv.base + 999 * CHUNK, 2) == b"KV"


def test_a_plain_allocation_is_address_and_memory_in_one(device):
    """It has no handle and nothing of it can be taken away; a range has handles, and gives up what it does not need."""
    driver = device.driver
    with device.current():
        plain = driver.alloc(2 * CHUNK)
        put(device, plain, b"KV")
        assert vmm.describe(device, plain).kind == "device"
        partly = (driver.unmap, driver.free)
        for wrong in (lambda: driver.retain(plain), *(lambda call=call: call(plain, CHUNK) for call in partly)):
            with pytest.raises(vmm.DriverError) as refused:
                wrong()
            assert refused.value.code == INVALID_VALUE
        assert got(device, plain, 2) == b"KV"
        driver.alloc_free(plain)
    with vmm.GrowableRange(device, "64 MiB") as kv:
        kv.grow(2 * CHUNK)
        base = kv.base
        put(device, base, b"KV")
        vmm.PhysicalMemory.retained(device, CHUNK, base).close()
        kv.grow(4 * CHUNK)
        kv.shrink(5 * CHUNK)
        assert (kv.base, kv.committed, got(device, base, 2)) == (base, CHUNK, b"KV")
