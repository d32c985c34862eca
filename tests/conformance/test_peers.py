"""Several devices: whose memory it is, and which of them may touch it."""

import pytest

from vmm.host import HostDriver

NONE, READ, READWRITE = 0, 1, 3


@pytest.fixture
def apart():
    """A driver with two devices that do not reach each other, as a bare object."""
    api = HostDriver(memory="16 MiB", devices=2, peers="none", backing="none")
    api.cuInit(0)
    return api


@pytest.mark.row("2b cuDeviceCanAccessPeer")
def test_devices_reach_each_other_but_are_not_their_own_peers(pair_lab):
    lab = pair_lab
    answers = [lab.ok(lab.api.cuDeviceCanAccessPeer(a, b)) for a, b in ((0, 1), (1, 0), (0, 0), (1, 1))]
    assert answers == [1, 1, 0, 0]


@pytest.mark.row("2b one primary context a device")
def test_each_device_has_its_own_context(pair_lab):
    lab = pair_lab
    with lab.on(1):
        assert int(lab.ok(lab.api.cuCtxGetCurrent())) != int(lab.context)
        assert int(lab.ok(lab.api.cuCtxGetDevice())) == 1
    assert int(lab.ok(lab.api.cuCtxGetDevice())) == 0


@pytest.mark.row("3.4 physical memory is committed at create, on its device")
def test_memory_is_taken_from_the_device_that_the_property_names(pair_lab):
    lab = pair_lab
    before = lab.free()
    with lab.on(1):
        other = lab.free()
        lab.create(2, ordinal=1)
        assert lab.free() == other - 2 * lab.unit
    assert lab.free() == before


@pytest.mark.row("3.2 a reservation belongs to no device")
def test_one_reservation_holds_memory_of_two_devices(pair_lab):
    lab = pair_lab
    base = lab.reserve(2)
    lab.map(base, lab.create(ordinal=0))
    lab.map(base + lab.unit, lab.create(ordinal=1))
    assert [lab.attribute("DEVICE_ORDINAL", base + i * lab.unit) for i in (0, 1)] == [0, 1]


@pytest.mark.row("3.8 one call over adjacent mappings of different devices")
def test_access_is_set_over_memory_of_two_devices_at_once(pair_lab):
    lab = pair_lab
    base = lab.reserve(2)
    lab.map(base, lab.create(ordinal=0))
    lab.map(base + lab.unit, lab.create(ordinal=1))
    lab.allow(base, 2)
    assert [lab.access(base), lab.access(base + lab.unit)] == [READWRITE] * 2
    assert [lab.access(base, 1), lab.access(base + lab.unit, 1)] == [NONE] * 2
    lab.unmap(base, 2)  # 3.7: one unmap over the stripes


@pytest.mark.row("3.8 several descriptors")
def test_one_call_sets_each_device_its_own_access(pair_lab):
    lab = pair_lab
    base = lab.mapped(1, access=None)
    grants = [lab.grant(READWRITE), lab.grant(READ, ordinal=1)]
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, grants, 2))
    assert [lab.access(base), lab.access(base, 1)] == [READWRITE, READ]


@pytest.mark.row("3.8 locations not listed keep their setting")
def test_peers_are_added_one_by_one(pair_lab):
    lab = pair_lab
    base = lab.mapped(1)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(READ, ordinal=1)], 1))
    assert [lab.access(base), lab.access(base, 1)] == [READWRITE, READ]
    lab.allow(base, 1, NONE)
    assert [lab.access(base), lab.access(base, 1)] == [NONE, READ]


@pytest.mark.row("3.6 handle of device 0, access for device 1")
def test_a_peer_may_have_access_where_the_owner_has_none(pair_lab):
    lab = pair_lab
    base = lab.mapped(1, access=None)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(ordinal=1)], 1))
    assert [lab.access(base), lab.access(base, 1)] == [NONE, READWRITE]


@pytest.mark.row("1 two aliases have separate access, each device's too")
def test_aliases_have_tables_of_their_own(pair_lab):
    lab = pair_lab
    base, handle = lab.reserve(2), lab.create()
    for at in (base, base + lab.unit):
        lab.map(at, handle)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(ordinal=1)], 1))
    assert [lab.access(base, 1), lab.access(base + lab.unit, 1)] == [READWRITE, NONE]


@pytest.mark.row("1 a remapped page starts with no access, for no device")
def test_access_of_a_peer_is_forgotten_at_unmap(pair_lab):
    lab = pair_lab
    base = lab.mapped(1)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(ordinal=1)], 1))
    lab.unmap(base)
    lab.map(base, lab.handles[0])
    assert [lab.access(base), lab.access(base, 1)] == [NONE, NONE]


@pytest.mark.row("3.8 peer without P2P")
def test_a_device_without_peer_access_is_refused(apart, lab):
    if lab.backing == "device":
        pytest.skip("two devices without access to each other are an option of the host driver")
    assert apart.cuDeviceCanAccessPeer(0, 1) == (0, 0)
    status, base = apart.cuMemAddressReserve(apart.granularity, 0, 0, 0)
    handle = apart.cuMemCreate(apart.granularity, lab.property_of(), 0)[1]
    apart.cuMemMap(base, apart.granularity, 0, handle, 0)
    assert int(status) == 0
    refused = apart.cuMemSetAccess(base, apart.granularity, [lab.grant(), lab.grant(ordinal=1)], 2)
    assert int(refused[0]) == 217
    assert apart.cuMemGetAccess(lab.location(), base) == (0, NONE)  # the descriptor that could be met neither
    assert int(apart.cuMemSetAccess(base, apart.granularity, [lab.grant()], 1)[0]) == 0
    apart.cuMemUnmap(base, apart.granularity)
    apart.cuMemRelease(handle)
    apart.cuMemAddressFree(base, apart.granularity)


@pytest.mark.row("3.13 copies are checked against the current context's device")
def test_a_copy_needs_the_access_of_the_device_that_makes_it(pair_lab):
    lab = pair_lab
    base = lab.mapped(1)
    lab.write(base, b"theirs")
    with lab.on(1):
        lab.assert_refused(1, lab.api.cuMemcpyDtoH, bytearray(6), base, 6)
        lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(READ, ordinal=1)], 1))
        lab.assert_refused(1, lab.api.cuMemcpyHtoD, base, b"mine", 4)
        assert lab.read(base, 6) == (b"theirs" if lab.backing != "none" else bytes(6))


@pytest.mark.row("4 one address space; the default stream's handle is the same for all devices")
def test_a_stream_belongs_to_the_device_that_made_it(pair_lab):
    lab = pair_lab
    base = lab.mapped(1)
    with lab.on(1):
        stream = lab.ok(lab.api.cuStreamCreate(0))
    lab.assert_refused(1, lab.api.cuMemsetD8Async, base, 1, 4, stream)  # the stream's device has no access
    lab.ok(lab.api.cuMemsetD8Async(base, 1, 4, 0))
    lab.ok(lab.api.cuStreamDestroy(stream))


@pytest.mark.row("2b cuMemAlloc in the current context")
def test_plain_memory_is_of_the_current_device(pair_lab):
    lab = pair_lab
    with lab.on(1):
        address = int(lab.ok(lab.api.cuMemAlloc(lab.unit)))
        assert lab.attribute("DEVICE_ORDINAL", address) == 1
    lab.ok(lab.api.cuMemcpyDtoD(address, address, 4))  # a copy reaches every device's plain memory
    lab.ok(lab.api.cuCtxSynchronize())
    with lab.on(1):
        lab.ok(lab.api.cuMemFree(address))


@pytest.mark.row("3.12 ACCESS_FLAGS are the current device's")
def test_access_flags_follow_the_current_device(pair_lab):
    lab = pair_lab
    base = lab.mapped(1)
    lab.ok(lab.api.cuMemSetAccess(base, lab.unit, [lab.grant(READ, ordinal=1)], 1))
    assert lab.attribute("ACCESS_FLAGS", base) == READWRITE
    with lab.on(1):
        assert lab.attribute("ACCESS_FLAGS", base) == READ
