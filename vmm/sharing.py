"""Chunks across processes: an Exporter shares a range's memory, and another process attaches to it.

    supply = vmm.ChunkSupply(device, exportable=True)
    kv = vmm.GrowableRange(device, "64 GiB", supply=supply)
    with vmm.sharing.Exporter(kv, access="r") as exporter:      # in one process
        print(exporter.path)
    with vmm.sharing.attach(device, path) as shared:            # in another one
        shared.array("float16", 1024)

Both see the same bytes: physical memory has two mappings, and no copy. It lives until the last of the exporter's range,
the Exporter and the importers lets it go, whichever of their processes ends first, and however.

What is enforced, and by whom: the socket lies in a folder that only this user can enter, and the kernel tells each side
who the other is. Access is granted by the exporter and kept by ``attach``; the driver then enforces it on the mappings
that ``attach`` made: a write where "r" was granted is refused, or a fault. But a descriptor itself carries no access:
code in the importer's process that calls the driver on its own can map what it was given for writing. So "r" guards
against mistakes, not against malice: grant memory only to a process that you would let write it.

The bytes are shared, the order of work is not: synchronize before you tell the other process to look. Nothing stays in
the file system, but for an exporter that was killed: its empty folder, which the next Exporter removes.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path

from .address_range import Mapping
from .driver import Access
from .errors import ClosedError, StateError
from .growable import GrowableRange
from .physical import PhysicalMemory, close_each
from .sharing_folder import PrivateFolder
from .sharing_import import SharedRange, attach
from .sharing_server import Server
from .sharing_socket import BATCH, Channel, Kind, Offer, check_timeout, close_descriptors, pack_indices
from .sizes import format_size
from .uninterrupted import uninterrupted, whole

__all__ = ["Exporter", "SharedRange", "attach"]

_PATIENCE = 1.0  # seconds


class Exporter:
    """Shares the chunks that ``memory`` has committed now (or those of them in ``chunks``) with who comes to ``path``.

    Importers may come one after another and at once, from now until ``close``; threads of the exporter serve them. Only
    processes of this user are served, and only the process ``peer`` if its id is given. Each may do with the memory
    what ``access`` says: "r" or "rw". An importer that is silent for ``timeout`` seconds is given up. ``folder`` is
    where the private folder of the socket is made (default: the system's folder for temporary files).

    The exporter holds the memory too: a chunk that the range decommits, moves or closes meanwhile stays as it was for
    those who attach, and comes free when the exporter and all of them are closed. It never goes to another owner, and
    the budget of its supply no longer counts it. While the range keeps a chunk, importers see all that it puts there.

    Raises ValueError for an access or a timeout that shares nothing, StateError for memory that was not made
    exportable, for a chunk that is not committed, and where there is nothing to share, SharingError where the system
    refuses the folder or the socket.
    """

    @whole
    def __init__(
        self,
        memory: GrowableRange,
        chunks: Iterable[int] | None = None,
        *,
        access: str | Access = "r",
        folder: str | os.PathLike[str] | None = None,
        peer: int | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.access = Access.of(access)
        if self.access == Access.NONE:
            raise ValueError("access must be 'r' or 'rw': memory without access is not shared")
        check_timeout(timeout)
        self.name = memory.name
        mappings = _chosen(memory, chunks)
        offered = _Offered(memory.chunk_size, mappings, self.access)
        with contextlib.ExitStack() as undo:
            parts: list[Server | PrivateFolder | _Offered] = [offered]
            undo.callback(_close_all, parts)
            offered.hold(mappings)
            private = PrivateFolder(folder)
            parts.insert(0, private)
            self._server = Server(private.socket, offered.send, peer, timeout)
            parts.insert(0, self._server)
            undo.pop_all()
        for mapping in mappings:
            mapping.memory.exported = True  # from now on the supply keeps none of them for another owner
        self.path: Path = private.socket
        self.size = offered.offer.count * memory.chunk_size
        self._finalizer = weakref.finalize(self, _drop, self.name, parts)
        self._parts = parts

    def __repr__(self) -> str:
        state = f"{format_size(self.size)} at {self.path}" if self._finalizer.alive else "closed"
        return f"Exporter({self.name!r}, {self.access.name}, {state})"

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether nobody can attach any more."""
        return not self._finalizer.alive

    @property
    def attached(self) -> int:
        """How many importers have mapped everything, those that are gone again included."""
        return self._server.served

    def wait(self, importers: int = 1, timeout: float | None = None) -> bool:
        """Wait until so many importers have mapped everything; False if ``timeout`` seconds were not enough."""
        if timeout is not None and timeout != 0:
            check_timeout(timeout)
        return self._server.wait(importers, timeout)

    @uninterrupted
    def close(self) -> None:
        """Let nobody attach any more; who has attached keeps the memory. Closing twice does nothing."""
        if self._finalizer.detach() is not None:
            _close_all(self._parts)


class _Offered:
    """The chunks of one Exporter, each with a reference of its own, and how an importer gets them."""

    def __init__(self, chunk_size: int, mappings: Sequence[Mapping], access: Access) -> None:
        self._indices = [mapping.offset // chunk_size for mapping in mappings]
        self._memory: list[PhysicalMemory] = []
        self.offer = Offer(chunk_size, mappings[-1].stop, len(mappings), access)

    def hold(self, mappings: Sequence[Mapping]) -> None:
        """Take the references."""
        for mapping in mappings:
            memory = mapping.memory
            self._memory.append(PhysicalMemory.retained(memory.device, memory.size, mapping.address))

    def send(self, channel: Channel) -> None:
        """Give everything to one importer."""
        channel.send(Kind.OFFER, self.offer.pack())
        for start in range(0, len(self._memory), BATCH):
            channel.receive(Kind.NEXT)
            self._send_batch(channel, start)
        channel.receive(Kind.DONE)

    def _send_batch(self, channel: Channel, start: int) -> None:
        descriptors: list[int] = []
        try:
            for memory in self._memory[start : start + BATCH]:
                descriptors.append(memory.export())
            channel.send(Kind.CHUNKS, pack_indices(self._indices[start : start + BATCH]), descriptors)
        finally:
            close_descriptors(descriptors)  # those on their way are duplicates

    def close(self) -> None:
        """Let the references go."""
        held, self._memory = self._memory, []
        close_each(held)


def _chosen(memory: GrowableRange, chunks: Iterable[int] | None) -> list[Mapping]:
    """The mappings to share, in order, if all of them can be."""
    if memory.closed:
        raise ClosedError(f"{memory.name} is closed; there is nothing to share")
    chosen = [memory.mapping(chunk) for chunk in sorted(set(memory.committed_chunks() if chunks is None else chunks))]
    if not chosen:
        raise StateError(f"no chunk of {memory.name} was chosen or is committed; grow() first")
    for mapping in chosen:
        if not mapping.memory.exportable:
            raise StateError(
                f"chunk {mapping.offset // memory.chunk_size} of {memory.name} cannot leave this process; "
                "make the range with supply=ChunkSupply(device, exportable=True)"
            )
    return chosen


def _close_all(parts: Iterable[Server | PrivateFolder | _Offered]) -> None:
    """Stop serving, remove the folder, let the memory go."""
    for part in parts:
        part.close()


def _drop(name: str, parts: Sequence[Server | PrivateFolder | _Offered]) -> None:
    """Close an exporter that was dropped, and say so. The garbage collector may run this anywhere.

    Also in a thread that holds a lock for which one of the server's threads waits: that one ends by itself.
    """
    for part in parts:
        if isinstance(part, Server):
            part.patience = _PATIENCE
    _close_all(parts)
    warnings.warn(f"exporter of {name} was never closed", ResourceWarning, stacklevel=2)
