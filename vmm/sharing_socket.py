"""The wire between an exporter and an importer: short messages on a Unix socket, file descriptors beside them.

A connection is a conversation in five words. The importer says HELLO and hears an OFFER: chunk size, size, number of
chunks, access. It says NEXT and hears CHUNKS: the indices of up to ``BATCH`` chunks, with a descriptor for each, until
it has all of them, and says DONE. REFUSED, with a line of text, can come at any time instead of an answer.

Every message starts with a magic word, the version and its kind. One batch at a time is on its way, so that neither
process has more than ``BATCH`` descriptors open for the transfer; the kernel's own limit is 253 a message.
"""

from __future__ import annotations

import array
import contextlib
import enum
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .driver import Access
from .errors import SharingError

VERSION = 1
BATCH = 32
_MAGIC = b"PAGEWALK"
_PREFIX = struct.Struct("!8sHH")  # magic, version, kind
_OFFER = struct.Struct("!QQQB")
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_LONGEST = 2048  # bytes of a message
_RETRY = 0.01  # seconds until the next try where the queue of a listening socket is full


class Kind(enum.IntEnum):
    """What a message is."""

    HELLO = 1
    OFFER = 2
    NEXT = 3
    CHUNKS = 4
    DONE = 5
    REFUSED = 6


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end, as the kernel knows it: no process can claim another's."""

    pid: int
    uid: int

    @classmethod
    def of(cls, connected: socket.socket) -> Peer:
        """Whoever connected, or listened, at the other end."""
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return cls(pid, uid)

    def check(self, pid: int | None = None) -> None:
        """Raise SharingError for another user than this process's, or another process than ``pid`` if that is given."""
        if self.uid != os.geteuid():
            raise SharingError(f"process {self.pid} of user {self.uid} may not share memory with user {os.geteuid()}")
        if pid is not None and self.pid != pid:
            raise SharingError(f"process {self.pid} may not have this memory, which is for process {pid}")


@dataclass(frozen=True, slots=True)
class Offer:
    """What is shared: ``count`` chunks of ``chunk_size`` bytes, all within ``size`` bytes from a base."""

    chunk_size: int
    size: int
    count: int
    access: Access

    def pack(self) -> bytes:
        """The body of an OFFER."""
        return _OFFER.pack(self.chunk_size, self.size, self.count, self.access)

    @classmethod
    def unpack(cls, body: bytes) -> Offer:
        """The offer in a message; SharingError where it makes no sense."""
        if len(body) != _OFFER.size:
            raise SharingError(f"the exporter's offer has {len(body)} bytes instead of {_OFFER.size}")
        chunk_size, size, count, access = _OFFER.unpack(body)
        fits = chunk_size and size % chunk_size == 0 and 0 < count <= size // chunk_size
        if not fits or access not in (Access.READ, Access.READWRITE):
            raise SharingError(f"the exporter offers {count} chunks of {chunk_size} bytes in {size}, access {access}")
        return cls(chunk_size, size, count, Access(access))


@dataclass(frozen=True, slots=True)
class Message:
    """One message; its descriptors are the receiver's to close."""

    kind: Kind
    body: bytes
    descriptors: list[int]


class Channel:
    """One end of a connection, which it owns.

    Raises SharingError when ``other`` is silent for ``timeout`` seconds, gone, or says what is not expected.
    """

    def __init__(self, connected: socket.socket, other: str, timeout: float) -> None:
        self._socket, self._other, self._timeout = connected, other, timeout
        connected.settimeout(timeout)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. Closing twice does nothing."""
        self._socket.close()

    def send(self, kind: Kind, body: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Say one thing; ``descriptors`` arrive as duplicates and stay the caller's."""
        data = _PREFIX.pack(_MAGIC, VERSION, kind) + body
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        with self._failures():
            self._socket.sendmsg([data], beside, socket.MSG_NOSIGNAL)

    def receive(self, kind: Kind, *, descriptors: int = 0) -> Message:
        """Hear one thing, which must be of this kind, with at most ``descriptors`` of them."""
        with self._failures():
            room = socket.CMSG_LEN(descriptors * array.array("i").itemsize) if descriptors else 0
            data, beside, flags, _ = self._socket.recvmsg(_LONGEST, room, socket.MSG_CMSG_CLOEXEC)
        held = _descriptors(beside)
        with contextlib.ExitStack() as undo:
            undo.callback(close_descriptors, held)
            if flags & socket.MSG_CTRUNC and descriptors:
                raise SharingError("some descriptors did not arrive; raise the limit of open files (ulimit -n)")
            message = Message(kind, self._body(data, kind), held)
            undo.pop_all()
        return message

    def _body(self, data: bytes, wanted: Kind) -> bytes:
        """What follows the prefix of a message that is what it should be."""
        if not data:
            raise SharingError(f"{self._other} closed the connection in the middle; its process may have ended")
        if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
            raise SharingError(f"{self._other} said {data[:16]!r}, which is no message of this protocol")
        _, version, kind = _PREFIX.unpack_from(data)
        if version != VERSION:
            raise SharingError(f"{self._other} speaks version {version}, this process {VERSION}; use the same release")
        body = data[_PREFIX.size :]
        if kind == Kind.REFUSED:
            raise SharingError(f"{self._other} refused: {_one_line(body)}")
        if kind != wanted:
            raise SharingError(f"{self._other} said message {kind} where {wanted.name} ({wanted}) was expected")
        return body

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Say what the failure of a call on the socket means."""
        try:
            yield
        except TimeoutError:
            raise SharingError(f"{self._other} did not answer within {self._timeout:g} s") from None
        except OSError as error:
            raise SharingError(f"{self._other} is not there any more: {error.strerror}") from None


def connect(path: Path, timeout: float) -> Channel:
    """A connection to the exporter that listens at ``path``, which must belong to the same user. SharingError."""
    connected = new_socket()
    with contextlib.ExitStack() as undo:
        undo.callback(connected.close)
        try:
            _connect(connected, path, time.monotonic() + timeout)
        except FileNotFoundError:
            raise SharingError(f"there is no socket {path}; the exporter is closed, or was never there") from None
        except ConnectionRefusedError:
            raise SharingError(f"nobody listens at {path}; the exporter's process has ended") from None
        except BlockingIOError:
            raise SharingError(f"{path} has too many waiting; the exporter took nobody for {timeout:g} s") from None
        except OSError as error:
            raise SharingError(f"cannot connect to {path}: {error.strerror or error}") from None
        Peer.of(connected).check()
        undo.pop_all()
    return Channel(connected, "the exporter", timeout)


def new_socket() -> socket.socket:
    """A socket that keeps messages apart. SharingError where the system has no descriptor for it."""
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise SharingError(f"cannot make a socket: {error.strerror}; raise the limit of open files?") from None


def _connect(connected: socket.socket, path: Path, deadline: float) -> None:
    """Connect; where the queue of the listener is full, a Unix socket answers at once and must be asked again."""
    connected.settimeout(0)
    while True:
        try:
            return connected.connect(str(path))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY)


MOST_SECONDS = 86_400
"""A day; the system's calls do not take every number."""


def check_timeout(timeout: float) -> None:
    """Raise ValueError for a time that gives the other process no chance."""
    if not 0 < timeout <= MOST_SECONDS:
        raise ValueError(f"timeout must be more than 0 seconds and at most {MOST_SECONDS}, not {timeout!r}")


def pack_indices(indices: Sequence[int]) -> bytes:
    """The body of CHUNKS."""
    return struct.pack(f"!{len(indices)}Q", *indices)


def unpack_indices(body: bytes) -> list[int]:
    """The indices in the body of CHUNKS; a rest that is no whole index is dropped, and missed by the count."""
    return [index for (index,) in struct.iter_unpack("!Q", body[: len(body) // 8 * 8])]


def close_descriptors(descriptors: Sequence[int]) -> None:
    """Close each of them."""
    for descriptor in descriptors:
        os.close(descriptor)


def _descriptors(beside: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came beside a message."""
    found = array.array("i")
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) // found.itemsize * found.itemsize])
    return list(found)


def _one_line(body: bytes) -> str:
    """Text of another process, made fit to stand in an error."""
    return "".join(letter if letter.isprintable() else " " for letter in body.decode(errors="replace"))
