"""The socket of vmm.sharing against nonsense, silence, crowds and what killed processes left."""

import contextlib
import fcntl
import os
import re
import socket
import struct
import threading
import time

import pytest

import vmm
from vmm.sharing import Exporter, attach
from vmm.sharing_folder import PrivateFolder
from vmm.sharing_socket import Channel, Kind, Offer

UNIT = 2 << 20
HELLO = struct.pack("!8sHH", b"PAGEWALK", 1, 1)


@pytest.fixture
def memory(device):
    """A range with chunks 0 and 2, the byte 5 all over."""
    with (
        vmm.ChunkSupply(device, exportable=True) as supply,
        vmm.GrowableRange(device, "16 MiB", supply=supply) as found,
    ):
        found.commit([0, 2])
        for chunk in (0, 2):
            found.array("uint8", UNIT, chunk * UNIT)[:] = 5
        yield found


@pytest.fixture
def exporter(memory, tmp_path):
    with Exporter(memory, folder=tmp_path, timeout=0.5) as found:
        yield found


@contextlib.contextmanager
def connection(path):
    """A plain connection to an exporter."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as found:
        found.settimeout(20)
        found.connect(str(path))
        yield found


def until(true, seconds=20):
    """Wait for another thread."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


# -- an exporter and its visitors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", r"said b'GET / HTTP/1.1\r\n', which is no message of this protocol"),
        (b"PAGEWA", "said b'PAGEWA', which is no message"),
        (HELLO[:-1], "which is no message"),
        (struct.pack("!8sHH", b"PAGEWALK", 2, 1), "speaks version 2, this process 1"),
        (struct.pack("!8sHH", b"PAGEWALK", 1, 4), "said message 4 where HELLO (1) was expected"),
        (struct.pack("!8sHH", b"PAGEWALK", 1, 999), "said message 999 where HELLO (1)"),
        (b"\0" * 100_000, "no message of this protocol"),
    ],
    ids=["garbage", "truncated", "one byte short", "version", "kind", "unknown kind", "long"],
)
def test_nonsense_is_refused_in_one_line_and_the_next_importer_served(exporter, device, caplog, said, answer):
    with connection(exporter.path) as visitor:
        visitor.send(said)
        told = visitor.recv(4096)
        assert visitor.recv(4096) == b""
    assert told.startswith(struct.pack("!8sHH", b"PAGEWALK", 1, Kind.REFUSED))
    assert answer in told[12:].decode()
    assert [record.getMessage().count("\n") for record in caplog.records] == [0]
    assert answer in caplog.records[0].getMessage()
    with attach(device, exporter.path) as shared:
        assert shared.array("uint8", UNIT, 2 * UNIT)[-1] == 5


def test_a_visitor_that_says_nothing_is_given_up_and_does_not_keep_others_waiting(exporter, device, caplog):
    with connection(exporter.path) as silent:
        attach(device, exporter.path).close()
        told = silent.recv(4096)  # after the exporter's patience of half a second
    assert b"did not answer within 0.5 s" in told
    assert re.search(r"not shared: the importer \(pid \d+\) did not answer within 0.5 s", caplog.text)


def test_a_visitor_that_stops_in_the_middle_is_given_up(exporter, device):
    with connection(exporter.path) as visitor:
        visitor.send(HELLO)
        assert Offer.unpack(visitor.recv(4096)[12:]) == Offer(UNIT, 3 * UNIT, 2, vmm.Access.READ)
        assert b"did not answer" in visitor.recv(4096)
    attach(device, exporter.path).close()


def test_a_crowd_of_silent_visitors_only_costs_time(exporter, device):
    """More than the threads of the exporter: whoever comes after them is served when they have been given up."""
    with contextlib.ExitStack() as crowd:
        for _ in range(8):
            crowd.enter_context(connection(exporter.path))
        attach(device, exporter.path, timeout=20).close()


def test_descriptors_sent_to_the_exporter_do_not_stay_open(exporter):
    def count():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    with connection(exporter.path) as visitor, open(os.devnull) as file:  # noqa: PTH123
        socket.send_fds(visitor, [HELLO], [file.fileno()] * 50)
        assert Offer.unpack(visitor.recv(4096)[12:]).count == 2
    until(lambda: count() == before)


def test_many_importers_at_once(memory, tmp_path):
    """More than the exporter has threads, and more than its socket lets wait."""
    api = vmm.HostDriver(memory="2 GiB")
    errors = []
    with Exporter(memory, folder=tmp_path) as exporter, vmm.Device(driver=api) as other:

        def visit():
            try:
                with attach(other, exporter.path) as shared:
                    assert shared.array("uint8", UNIT)[7] == 5
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=visit) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert exporter.wait(100, timeout=20)
        assert exporter.attached == 100
        assert not exporter.wait(101, timeout=0.01)


def test_close_does_not_wait_for_a_silent_visitor(memory, tmp_path):
    exporter = Exporter(memory, folder=tmp_path, timeout=600)
    with connection(exporter.path) as silent:
        silent.send(HELLO)
        assert Offer.unpack(silent.recv(4096)[12:]).count == 2  # a thread talks to it now
        start = time.monotonic()
        exporter.close()
        assert time.monotonic() - start < 5
        assert silent.recv(4096) == b""
    assert list(tmp_path.iterdir()) == []


def test_wait_ends_with_the_exporter(exporter):
    waiting = threading.Timer(0.1, exporter.close)
    waiting.start()
    assert exporter.wait(1) is False
    waiting.join()


# -- an importer and those who are no exporters -----------------------------------------------------------------


@contextlib.contextmanager
def impostor(path, *script, hang_up=False):
    """Something of this user that listens at ``path`` and answers each message with the next of ``script``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        listener.settimeout(20)

        def answer():
            connected, _ = listener.accept()
            with connected, contextlib.suppress(TimeoutError):
                connected.settimeout(20)
                for data, descriptors in script:
                    if not connected.recv(4096):
                        return
                    socket.send_fds(connected, [data], descriptors) if descriptors else connected.send(data)
                if not hang_up:
                    connected.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


def said(kind, body=b""):
    return struct.pack("!8sHH", b"PAGEWALK", 1, kind) + body


def offer(chunk_size=UNIT, size=4 * UNIT, count=2, access=1):
    return said(Kind.OFFER, struct.pack("!QQQB", chunk_size, size, count, access)), ()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([(b"\x7fELF" * 8, ())], r"said b'.x7fELF.*', which is no message of this protocol"),
        ([(said(Kind.OFFER), ())], "offer has 0 bytes instead of 25"),
        ([offer(chunk_size=0)], "offers 2 chunks of 0 bytes"),
        ([offer(size=4 * UNIT - 1)], "offers 2 chunks of 2097152 bytes in 8388607"),
        ([offer(count=5)], "offers 5 chunks"),
        ([offer(count=0)], "offers 0 chunks"),
        ([offer(access=0)], "access 0"),
        ([offer(access=7)], "access 7"),
        ([offer(chunk_size=4096, size=8192)], "4096 bytes are no multiple of the granularity 2097152"),
        ([offer(size=1 << 63)], "size must be"),
        ([(said(Kind.REFUSED, b"not today,\n\x1b[31mor ever\xff"), ())], "refused: not today,  .31mor ever"),
        ([(said(Kind.CHUNKS), ())], r"said message 4 where OFFER \(2\) was expected"),
        ([offer(), (said(Kind.CHUNKS), ())], "0 descriptors for chunks \\[\\]"),
        ([offer(), (said(Kind.CHUNKS, struct.pack("!Q", 0)), ())], "0 descriptors for chunks \\[0\\]"),
        ([offer(), (said(Kind.CHUNKS, struct.pack("!Q", 0)), (0, 0))], "2 descriptors for chunks \\[0\\]"),
        ([offer(), (said(Kind.CHUNKS, struct.pack("!2Q", 1, 1)), (0, 0))], "chunks \\[1, 1\\]"),
        ([offer(), (said(Kind.CHUNKS, struct.pack("!Q", 4)), (0,))], "chunks \\[4\\], which do not fit"),
        ([offer(), (said(Kind.CHUNKS, struct.pack("!3Q", 0, 1, 2)), (0, 0, 0))], "3 descriptors"),
        ([offer(), (said(Kind.CHUNKS, struct.pack("!Q", 0)), (0,))], "cuMemImportFromShareableHandle"),
        ([], "closed the connection in the middle"),
    ],
)  # fmt: skip
def test_an_importer_takes_nothing_but_what_fits(device, tmp_path, script, error):
    before, path = device.driver.api.picture(), tmp_path / "socket"
    with impostor(path, *script), pytest.raises(vmm.VmmError, match=error) as caught:
        attach(device, path, timeout=5)
    assert "\n" not in str(caught.value)
    assert device.driver.api.picture() == before


def test_a_size_that_is_not_the_descriptors_fails_at_the_map_and_leaves_nothing(device, tmp_path):
    with vmm.PhysicalMemory(device, 2 * UNIT, exportable=True) as piece:
        descriptor, before = piece.export(), device.driver.api.picture()
        script = [offer(count=1), (said(Kind.CHUNKS, struct.pack("!Q", 0)), (descriptor,))]
        with impostor(tmp_path / "socket", *script), pytest.raises(vmm.DriverError, match="cuMemMap"):
            attach(device, tmp_path / "socket")
        os.close(descriptor)
        assert device.driver.api.picture() == before


def test_an_exporter_that_goes_after_its_last_word_has_shared_everything(device, tmp_path):
    with vmm.PhysicalMemory(device, UNIT, exportable=True) as piece:
        descriptor = piece.export()
        script = [offer(count=1), (said(Kind.CHUNKS, struct.pack("!Q", 3)), (descriptor,))]
        with impostor(tmp_path / "socket", *script, hang_up=True), attach(device, tmp_path / "socket") as shared:
            assert shared.committed_chunks() == [3]
        os.close(descriptor)


def test_descriptors_that_arrive_are_not_inherited_by_programs_that_are_started(tmp_path):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with Channel(here, "one", 5) as one, Channel(there, "other", 5) as other, (tmp_path / "file").open("w") as file:
        one.send(Kind.CHUNKS, b"12345678", [file.fileno()])
        message = other.receive(Kind.CHUNKS, descriptors=1)
        assert os.path.samestat(os.fstat(message.descriptors[0]), os.fstat(file.fileno()))
        assert not os.get_inheritable(message.descriptors[0])
        os.close(message.descriptors[0])


def test_more_descriptors_than_a_batch_are_refused_and_closed(device, tmp_path):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    script = [offer(size=64 * UNIT, count=40), (said(Kind.CHUNKS, struct.pack("!40Q", *range(40))), (0,) * 40)]
    with impostor(tmp_path / "socket", *script), pytest.raises(vmm.SharingError, match="ulimit -n"):
        attach(device, tmp_path / "socket")
    until(lambda: len(os.listdir("/proc/self/fd")) == before)  # noqa: PTH208


def test_an_exporter_that_says_nothing_is_given_up(device, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        with pytest.raises(vmm.SharingError, match=r"did not answer within 0.2 s"):
            attach(device, tmp_path / "socket", timeout=0.2)
        with pytest.raises(vmm.SharingError, match="too many waiting"):  # the first still stands in the queue
            attach(device, tmp_path / "socket", timeout=0.2)


def test_what_is_no_socket_of_an_exporter_is_named(device, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(vmm.SharingError, match=r"nobody listens at .*/file"):
        attach(device, tmp_path / "file")
    with pytest.raises(vmm.SharingError, match=r"there is no socket .*/none"):
        attach(device, tmp_path / "none")
    with pytest.raises(vmm.SharingError, match=r"cannot connect to .*xxx: AF_UNIX path too long"):
        attach(device, tmp_path / ("x" * 200))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(tmp_path / "stream"))
        other.listen()
        with pytest.raises(vmm.SharingError, match="Protocol wrong type for socket"):
            attach(device, tmp_path / "stream")


# -- the folder -------------------------------------------------------------------------------------------------


def test_a_folder_goes_when_its_owner_was_killed_and_not_before(tmp_path):
    alive = PrivateFolder(tmp_path)
    dead = tmp_path / f"pagewalk-{os.geteuid()}-dead"
    dead.mkdir(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(dead / "socket"))
    other = tmp_path / f"pagewalk-{os.geteuid()}-other"  # not what an exporter leaves
    other.mkdir()
    (other / "letter").write_text("mine")
    link = tmp_path / f"pagewalk-{os.geteuid()}-link"
    link.symlink_to(tmp_path)
    (tmp_path / f"pagewalk-{os.geteuid()}-file").touch()
    new = PrivateFolder(tmp_path)
    assert not dead.exists()
    assert (other / "letter").read_text() == "mine"
    assert link.exists()
    assert alive.path.is_dir()
    for folder in (alive, new):
        folder.close()
        folder.close()
        assert not folder.path.exists()


def test_a_folder_that_was_taken_for_ownerless_is_made_once_more(tmp_path, monkeypatch):
    """Between its making and its locking, another process may have looked for folders without an owner."""
    lock, first = fcntl.flock, []

    def robbed(descriptor, operation):
        if not first:
            first.append(next(tmp_path.iterdir()))
            first[0].rmdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", robbed)
    folder = PrivateFolder(tmp_path)
    assert folder.path.is_dir()
    assert folder.path != first[0]
    folder.close()
