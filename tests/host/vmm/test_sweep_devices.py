"""Every driver call of every operation of devices, memory, addresses and sharing fails once; see test_sweep_ranges."""

import os

import pytest

import vmm
from vmm import sharing
from vmm.host import HostDriver

UNIT = 64 << 10
CASES = {}


def case(*covers, loose=False, **options):
    """Register an operation, and the public methods that it stands for. ``loose``: it may collect what retires."""

    def register(function):
        CASES[function.__name__] = function
        function.covers, function.loose, function.options = covers, loose, options
        return function

    return register


class Closing:
    """Something of another kind that a world closes, with books of its own."""

    def __init__(self, close, books=lambda: None):
        self.close, self.books = close, books


# -- devices ----------------------------------------------------------------------------------------------------


@case("Device.__init__")
def open_a_device(world):
    return lambda: world.own(vmm.Device(driver=world.api))


@case("Device.close")
def close_a_device(world):
    device = vmm.Device(driver=world.api)
    world.own(Closing(device.close, lambda: device.idle))
    return device.close


@case("Device.close", loose=True)
def close_a_device_under_a_range_that_retires(world):
    device = vmm.Device(driver=world.api)
    kv = vmm.GrowableRange(device, 8 * UNIT)
    world.own(Closing(device.close, lambda: device.idle))
    world.own(Closing(kv.close, lambda: kv.committed if kv.closed else kv.committed_chunks()))
    kv.commit([0, 1])
    world.busy(kv, 1)
    world.busy(kv, 0)
    kv.decommit([1])
    return device.close


@case("Device.memory_info", "Device.current")
def ask_for_free_memory(world):
    return world.device.memory_info


@case("Device.synchronize", "Device.finished", "Device.next_turn", "Device.fault_told", loose=True)
def wait_for_everything(world):
    kv = world.range([0, 1])
    world.busy(kv, 1)
    kv.decommit([1])
    return world.device.synchronize


@case("Device.fence", "Device.record_all", "Fence.__init__", "Fence.close")
def make_a_fence(world):
    kv = world.range([0])
    world.busy(kv)

    def make():
        fence = world.device.fence([0, 1])
        fence.close()
        world.device.fence().close()

    return make


@case("Fence.wait", "Fence.done")
def wait_for_a_fence(world):
    kv = world.range([0])
    world.busy(kv)
    fence = world.device.fence()
    world.own(Closing(fence.close))
    return lambda: (fence.wait(), fence.done)


class Launches:
    """A driver's functions without the software one's ``submit``, as a GPU's are."""

    def __init__(self, api):
        self.api = api

    def __getattr__(self, name):
        if name in ("submit", "explain"):
            raise AttributeError(name)
        return getattr(self.api, name)


@case("Device.submit", loose=True)
def submit_a_launch(world):
    device = world.own(vmm.Device(driver=Launches(world.api)))
    kv = world.own(vmm.GrowableRange(device, 4 * UNIT))
    kv.commit([0])
    device.submit(0, lambda: device.driver.fill_async(kv.base + 16, 1, 16), object())
    return lambda: device.submit(0, lambda: device.driver.fill_async(kv.base + 32, 1, 16), object())


# -- memory -----------------------------------------------------------------------------------------------------


@case("PhysicalMemory.__init__")
def create_memory(world):
    device = world.device
    return lambda: world.own(vmm.PhysicalMemory(device, 2 * UNIT))


@case("PhysicalMemory.close")
def release_memory(world):
    return world.own(vmm.PhysicalMemory(world.device, 2 * UNIT)).close


@case("PhysicalMemory.export")
def export_memory(world):
    memory = world.own(vmm.PhysicalMemory(world.device, UNIT, exportable=True))
    return lambda: os.close(memory.export())


@case("PhysicalMemory.imported")
def import_memory(world):
    memory = world.own(vmm.PhysicalMemory(world.device, UNIT, exportable=True))
    descriptor = memory.export()
    world.own(Closing(lambda: close_descriptor(world, descriptor)))
    return lambda: world.own(vmm.PhysicalMemory.imported(world.device, UNIT, descriptor))


def close_descriptor(world, descriptor):
    if not hasattr(world, "closed"):
        world.closed = True
        os.close(descriptor)


@case("PhysicalMemory.retained")
def retain_memory(world):
    kv = world.range([0], supply=world.supply(exportable=True))
    return lambda: world.own(vmm.PhysicalMemory.retained(world.device, UNIT, kv.base))


# -- addresses --------------------------------------------------------------------------------------------------


def addresses(world, places=(), *, access=vmm.Access.READWRITE):
    """Sixteen units of addresses with memory at ``places``."""
    made = world.own(vmm.AddressRange(world.device, 16 * UNIT))
    world.owned.remove(made)
    memory = [world.own(vmm.PhysicalMemory(world.device, UNIT)) for _ in places]
    world.own(made)
    mappings = [made.map(place * UNIT, piece) for place, piece in zip(places, memory, strict=True)]
    for mapping in mappings:
        made.set_access([mapping], access)
    return made, mappings


@case("AddressRange.__init__")
def reserve_addresses(world):
    device = world.device
    return lambda: world.own(vmm.AddressRange(device, 16 * UNIT, 4 * UNIT))


@case("AddressRange.map")
def map_memory(world):
    made, _ = addresses(world, [1])
    memory = vmm.PhysicalMemory(world.device, UNIT)
    world.owned.insert(0, memory)
    return lambda: made.map(3 * UNIT, memory)


@case("AddressRange.unmap")
def unmap_a_run(world):
    made, mappings = addresses(world, [1, 2, 3, 5])
    return lambda: made.unmap(mappings[:3])


@case("AddressRange.unmap_all")
def unmap_all_runs(world):
    made, _ = addresses(world, [1, 2, 3, 5, 8])
    return made.unmap_all


@case("AddressRange.set_access")
def set_the_access_of_a_run(world):
    made, mappings = addresses(world, [1, 2, 3])
    return lambda: made.set_access(mappings, vmm.Access.READ)


@case("AddressRange.restore")
def restore_a_mapping(world):
    made, mappings = addresses(world, [1, 2])
    made.unmap(mappings[:1])
    return lambda: made.restore(mappings[0])


@case("AddressRange.close")
def close_addresses(world):
    made, _ = addresses(world, [1, 2, 3, 5, 8])
    return made.close


# -- sharing ----------------------------------------------------------------------------------------------------


@case("Exporter.__init__")
def export_a_range(world):
    kv = world.range([0, 1, 3], supply=world.supply(exportable=True))
    return lambda: world.own(Closing(sharing.Exporter(kv).close))


@case("Exporter.close")
def close_an_exporter(world):
    kv = world.range([0, 1, 3], supply=world.supply(exportable=True))
    exporter = sharing.Exporter(kv)
    world.own(Closing(exporter.close, lambda: exporter.closed))
    return exporter.close


def shared(world):
    """An exporter on another driver than the one whose calls fail."""
    device = vmm.Device(driver=HostDriver(memory=16 * UNIT, granularity=UNIT))
    supply = vmm.ChunkSupply(device, exportable=True)
    kv = vmm.GrowableRange(device, 8 * UNIT, supply=supply)
    kv.commit([0, 1, 3])
    kv.array("uint8", UNIT)[:] = 7
    exporter = sharing.Exporter(kv, access="rw")
    for one in (device, supply, kv, exporter):
        world.own(Closing(one.close))
    return exporter


def books_of_shared(found):
    return found.closed or (found.committed_chunks(), bytes(found.array("uint8", 16)))


@case("SharedRange.__init__", "attach")
def attach_to_a_range(world):
    exporter = shared(world)
    device = world.device

    def attach():
        found = sharing.attach(device, exporter.path)
        world.own(Closing(found.close, lambda: books_of_shared(found)))

    return attach


@case("SharedRange.close")
def close_a_shared_range(world):
    exporter = shared(world)
    found = sharing.attach(world.device, exporter.path)
    world.own(Closing(found.close, lambda: books_of_shared(found)))
    return found.close


@case("AddressRange.grant", devices=2)
def grant_addresses(world):
    made, _ = addresses(world, [1, 2, 5])
    return lambda: made.grant(1, vmm.Access.READ)


QUESTIONS = {
    "Device.check_open", "Device.obtainable", "Device.is_same",
    "Device.backing", "Device.arch", "Device.idle", "AddressRange.base", "AddressRange.mappings", "Mapping.address",
    "Mapping.stop", "Mapping.handle", "PhysicalMemory.closed", "PhysicalMemory.handle", "Exporter.closed",
    "Exporter.attached", "Exporter.wait", "SharedRange.closed", "SharedRange.committed", "SharedRange.mapping",
    "SharedRange.committed_chunks", "SharedRange.mappings", "SharedRange.runs",
}  # fmt: skip
"""They change nothing: what they ask they know, or one call tells."""
WITHOUT_CALLS = {
    "Device.fault": "makes an error", "Mapping.__init__": "plain data", "SharedRange.array": "looks at its own books",
    "SharedRange.tensor": "as array",
}  # fmt: skip


def test_every_public_operation_is_swept(sweeping):
    classes = (
        vmm.Device, vmm.Fence, vmm.PhysicalMemory, vmm.AddressRange, vmm.Mapping, sharing.Exporter, sharing.SharedRange
    )  # fmt: skip
    covered = {name for one in CASES.values() for name in one.covers} | QUESTIONS | set(WITHOUT_CALLS)
    assert sweeping.public_methods(*classes) - covered == set()


@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_be_interrupted(sweeping, name, streams):
    sweeping.interrupt_case(CASES[name], streams)


@pytest.mark.parametrize("code", [1, 2])
@pytest.mark.parametrize("streams", ["eager", "deferred"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(sweeping, name, streams, code):
    sweeping.sweep_case(CASES[name], streams, code)
