"""Things of another device, another driver or another kind are refused where they are given, in one line."""

import pytest

import vmm

CHUNK = 2 << 20


@pytest.fixture
def worlds():
    """Two devices of one driver, and one of another."""
    first, second = (vmm.HostDriver(memory="64 MiB", devices=2) for _ in range(2))
    with (
        vmm.Device(0, driver=first) as own,
        vmm.Device(1, driver=first) as peer,
        vmm.Device(0, driver=second) as stranger,
    ):
        yield own, peer, stranger


def test_a_supply_of_elsewhere_is_refused(worlds):
    own, peer, stranger = worlds
    for other in (peer, stranger):
        with vmm.ChunkSupply(other) as supply, pytest.raises(ValueError, match="the supply is of Device"):
            vmm.GrowableRange(own, "8 MiB", supply=supply)


def test_wrapped_drivers_are_the_same(worlds):
    own = worlds[0]
    with (
        vmm.Device(0, driver=own.driver.api, recorder=vmm.Recorder()) as recorded,
        vmm.ChunkSupply(own) as supply,
        vmm.GrowableRange(recorded, "8 MiB", supply=supply) as kv,
    ):
        kv.grow(CHUNK)
        assert recorded.is_same(own)


def test_grants_and_arrays_are_for_devices_of_the_same_driver(worlds):
    own, peer, stranger = worlds
    with vmm.GrowableRange(own, "8 MiB", name="kv") as kv:
        kv.grow(CHUNK)
        for other in (stranger, 1):
            with pytest.raises(ValueError, match="is no Device of the driver of kv"):
                kv.grant(other, "r")
        with pytest.raises(ValueError, match="of another driver than kv"):
            kv.array("uint8", 1, device=stranger)
        kv.grant(peer, "r")
        assert kv.array("uint8", 1, device=peer).size == 1


def test_a_fault_of_a_granted_device_names_the_range(worlds):
    own, peer, _ = worlds
    with vmm.GrowableRange(own, "8 MiB", name="kv") as kv:
        kv.grant(peer, "rw")
        with peer.current(), pytest.raises(vmm.DriverError, match="range 'kv', chunk 1"):
            peer.driver.fill_async(kv.base + CHUNK, 1, 16)


def test_a_pool_is_no_range(worlds):
    own = worlds[0]
    residency = vmm.Residency(own)
    with vmm.Heap(own, "8 MiB") as heap:
        with pytest.raises(TypeError, match=r"a pool and a heap have theirs as \.range"):
            residency.add(heap, "heap")
        residency.add(heap.range, "heap")
        assert not residency.is_asleep("heap")


def test_a_closed_device_gives_nothing_more():
    device = vmm.Device(driver=vmm.HostDriver(memory="64 MiB"))
    kv = vmm.GrowableRange(device, "8 MiB")
    kv.grow(2 * CHUNK)
    device.close()
    with pytest.raises(vmm.ClosedError, match="device 0 is closed"):
        kv.grow(CHUNK)
    with pytest.raises(vmm.ClosedError, match="device 0 is closed"):
        vmm.GrowableRange(device, "8 MiB")
    kv.shrink(CHUNK)
    kv.close()


def test_zero_is_a_size_of_a_front(worlds):
    with vmm.GrowableRange(worlds[0], "8 MiB") as kv:
        kv.resize(0)
        kv.resize(CHUNK)
        kv.resize(kv.size)
        kv.resize(0)
        assert (kv.size, kv.committed) == (0, 0)
        with pytest.raises(vmm.RangeError, match="start is -1; it is 0 or more"):
            kv.pin(-1, 5, "a graph")


def test_pins_are_listed_and_have_a_reason(worlds):
    with vmm.GrowableRange(worlds[0], "8 MiB") as kv:
        with pytest.raises(ValueError, match="a pin needs a reason"):
            kv.pin(0, 1, " ")
        kv.pin(0, 1, "lost")
        assert repr(kv.pins) == "[Pin(bytes 0x0 to 0x1 for lost)]"
        for pin in kv.pins:
            pin.close()


def test_text_is_taken_where_numbers_are(worlds):
    own = worlds[0]
    with vmm.AddressRange(own, "8 MiB") as addresses, vmm.PhysicalMemory(own, CHUNK) as memory:
        mapping = addresses.map("4 MiB", memory)
        addresses.set_access([mapping], "r")
        assert (mapping.offset, mapping.access) == (2 * CHUNK, vmm.Access.READ)
