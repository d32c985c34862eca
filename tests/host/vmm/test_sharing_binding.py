"""vmm.sharing over the real bindings: the calls that share memory, in order and with their bytes."""

import os
import struct

import vmm
import vmm.sharing_import
from vmm.sharing_socket import Channel, Message

UNIT = 2 << 20
CALLS = (
    "cuMemRetainAllocationHandle",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
)
RETAIN, EXPORT, IMPORT, MAP, ACCESS, UNMAP, RELEASE, FREE = CALLS


def stand_in():
    """The stub's descriptors are numbers only: let real ones travel for them."""
    numbers = {}
    send, receive = Channel.send, Channel.receive

    def send_real(channel, kind, body=b"", descriptors=()):
        real = [os.memfd_create("stand-in") for _ in descriptors]
        numbers.update({os.fstat(one).st_ino: number for one, number in zip(real, descriptors, strict=True)})
        send(channel, kind, body, real)
        for one in real:
            os.close(one)

    def receive_numbers(channel, kind, *, descriptors=0):
        message = receive(channel, kind, descriptors=descriptors)
        found = [numbers[os.fstat(one).st_ino] for one in message.descriptors]
        for one in message.descriptors:
            os.close(one)
        return Message(message.kind, message.body, found)

    Channel.send, Channel.receive = send_real, receive_numbers
    vmm.sharing.close_descriptors = vmm.sharing_import.close_descriptors = lambda _: None


def share(folder):
    stand_in()
    with (
        vmm.Device(0, driver="cuda") as device,
        vmm.ChunkSupply(device, exportable=True) as supply,
        vmm.GrowableRange(device, "64 MiB", supply=supply) as memory,
    ):
        memory.commit([0, 1, 4])
        handles = [memory.mapping(chunk).handle for chunk in (0, 1, 4)]
        with vmm.sharing.Exporter(memory, access="r", folder=folder) as exporter:
            shared = vmm.sharing.attach(device, exporter.path)
            assert exporter.wait(timeout=20)
        shared.close()
        return memory.base, shared.base, handles


def u64(*values):
    return tuple(struct.pack("=Q", value) for value in values)


def test_the_calls_that_share_and_their_bytes(stub, tmp_path):
    (base, there, handles), calls = stub(share, str(tmp_path))
    chunks = (0, 1, 4)
    assert [name for name in calls.names(*CALLS) if name not in (EXPORT, IMPORT)] == [
        *(MAP, MAP, MAP, ACCESS, ACCESS),  # the range
        *(RETAIN, RETAIN, RETAIN),  # the exporter
        *(MAP, MAP, MAP, ACCESS, ACCESS),  # the importer, from the descriptors of one message
        *(RELEASE, RELEASE, RELEASE),  # the exporter is closed
        *(UNMAP, UNMAP, FREE, RELEASE, RELEASE, RELEASE),  # the importer
        *(UNMAP, UNMAP, FREE, RELEASE, RELEASE, RELEASE),  # the range
    ]
    assert calls.args(RETAIN) == [u64(base + chunk * UNIT) for chunk in chunks]
    kind = struct.pack("=i", 1)  # a POSIX file descriptor
    assert calls.args(EXPORT) == [(*u64(handle), kind, *u64(0)) for handle in handles]
    exported = [call.out for call in calls.of(EXPORT)]
    assert calls.args(IMPORT) == [(*u64(descriptor), kind) for descriptor in exported]
    imported = [call.out for call in calls.of(IMPORT)]
    assert calls.args(MAP)[3:] == [
        u64(there + chunk * UNIT, UNIT, 0, handle, 0) for chunk, handle in zip(chunks, imported, strict=True)
    ]
    read = struct.pack("=iii", 1, 0, 1)  # CUmemAccessDesc: device 0, PROT_READ
    assert calls.args(ACCESS)[2:] == [
        (*u64(there, 2 * UNIT), read, *u64(1)),
        (*u64(there + 4 * UNIT, UNIT), read, *u64(1)),
    ]
    assert calls.args(UNMAP)[:2] == [u64(there, 2 * UNIT), u64(there + 4 * UNIT, UNIT)]
    assert calls.args(FREE)[0] == u64(there, 5 * UNIT)
