import os

import pytest

import vmm

MIB = 1 << 20


def test_memory_is_taken_from_the_device_and_comes_back(device):
    before = device.memory_info().free
    memory = vmm.PhysicalMemory(device, "6 MiB")
    assert memory.size == 6 * MIB
    assert device.memory_info().free == before - 6 * MIB
    memory.close()
    memory.close()
    assert device.memory_info().free == before
    with pytest.raises(vmm.ClosedError, match="closed"):
        _ = memory.handle


@pytest.mark.parametrize("size", [1, 6912, 2 * MIB - 1, 2 * MIB + 1])
def test_a_size_that_is_no_multiple_of_the_granularity_is_refused_before_any_call(device, size):
    with pytest.raises(vmm.AlignmentError, match=str(size)):
        vmm.PhysicalMemory(device, size)
    assert device.driver.api.live().allocations == 0


def test_a_full_device_is_an_out_of_memory_error_that_is_also_a_memory_error(device):
    with pytest.raises(MemoryError) as caught:
        vmm.PhysicalMemory(device, "258 MiB")
    assert isinstance(caught.value, vmm.OutOfMemoryError)
    assert "cuMemCreate" in str(caught.value)


def test_memory_closed_while_mapped_lives_until_the_unmap(device):
    before = device.memory_info().free
    with vmm.AddressRange(device, "4 MiB") as addresses:
        with vmm.PhysicalMemory(device, "2 MiB") as memory:
            mapping = addresses.map(0, memory)
        assert device.memory_info().free == before - 2 * MIB
        addresses.unmap([mapping])
        assert device.memory_info().free == before


def test_exported_memory_is_the_same_memory_on_the_other_side(device):
    """A descriptor carries the memory, not its size; it lives until both handles and the descriptor are gone."""
    size = device.granularity
    free = device.memory_info().free
    with (
        device.current(),
        vmm.AddressRange(device, 2 * size) as addresses,
        vmm.PhysicalMemory(device, size, exportable=True) as mine,
    ):
        descriptor = mine.export()
        theirs = vmm.PhysicalMemory.imported(device, size, descriptor)
        os.close(descriptor)
        both = [addresses.map(0, mine), addresses.map(size, theirs)]
        addresses.set_access(both, vmm.Access.READWRITE)
        device.driver.copy_in(addresses.base, b"\x07" * 16, 16)
        seen = bytearray(16)
        device.driver.copy_out(seen, addresses.base + size, 16)
        assert seen == b"\x07" * 16
        theirs.close()
    assert device.memory_info().free == free


def test_memory_that_was_not_made_for_it_cannot_be_exported(device):
    with (
        vmm.PhysicalMemory(device, device.granularity) as memory,
        pytest.raises(vmm.StateError, match="exportable=True"),
    ):
        memory.export()


def test_a_supply_of_exportable_chunks_gives_exportable_chunks(device):
    with vmm.ChunkSupply(device, exportable=True) as supply:
        chunks = supply.take(1)
        os.close(chunks[0].export())
        supply.give(chunks)


def test_retained_memory_lives_until_both_owners_are_gone(device):
    size, free = device.granularity, device.memory_info().free
    with vmm.AddressRange(device, size) as addresses:
        with vmm.PhysicalMemory(device, size, exportable=True) as memory:
            mapping = addresses.map(0, memory)
            other = vmm.PhysicalMemory.retained(device, size, mapping.address)
        addresses.unmap([mapping])
        assert device.memory_info().free == free - size
        other.close()
        assert device.memory_info().free == free
    with pytest.raises(vmm.DriverError, match="cuMemRetainAllocationHandle"):
        vmm.PhysicalMemory.retained(device, size, 4096)


def test_exported_memory_never_goes_to_another_owner(device):
    """Another process may have it mapped: it is released where the same memory, not exported, would be cached."""
    with vmm.ChunkSupply(device, cache="8 MiB", exportable=True) as supply:
        first, second, third = supply.take(3)
        assert not first.exported
        os.close(first.export())
        supply.give([first, second, third])
        assert first.closed
        assert not second.closed
        assert supply.cached == 2 * device.granularity
        assert first not in supply.take(4)
        supply.give(list(supply._stock.out))
