"""The importer's side: ``attach`` maps what another process shares, and SharedRange owns it here."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsIndex

from .address_range import AddressRange, Mapping, adjacent
from .chunk_map import Run
from .device import Device
from .driver import Access
from .errors import AlignmentError, ClosedError, RangeError, SharingError, StateError
from .finishing import Finishing
from .one_thread import one_thread
from .physical import PhysicalMemory, close_each
from .sharing_socket import BATCH, Channel, Kind, Offer, check_timeout, close_descriptors, connect, unpack_indices
from .sizes import format_size
from .streams import Stream
from .tensor_view import TensorView
from .views import Form, Shape, Views, describe_array

_numbers = itertools.count(1)


class SharedRange:
    """Memory of another process at addresses of this one, made by ``attach``. It outlives the process it came from.

    ``size`` bytes from ``base`` on have the exporter's offsets: chunk i covers ``[i * chunk_size, (i + 1) *
    chunk_size)``, and what the exporter had not committed is a hole. ``access`` is what this process may do. A shared
    range belongs to one thread at a time.
    """

    def __init__(self, name: str, addresses: AddressRange, chunk_size: int, access: Access) -> None:
        self.name, self.device = name, addresses.device
        self.base = addresses.base
        self.size = self.reserved = addresses.size
        self.chunk_size, self.access = chunk_size, access
        self.busy = threading.Lock()
        self._mappings = {mapping.offset // chunk_size: mapping for mapping in addresses.mappings()}
        self._views = Views()
        self._finalizer = weakref.finalize(self, _drop, name, addresses, self._mappings)
        self._addresses = addresses
        self.device.driver.ranges.add(self)  # errors about an address name the range and the chunk

    def __repr__(self) -> str:
        state = f"{format_size(self.committed)} shared" if self._finalizer.alive else "closed"
        return f"SharedRange({self.name!r}, {self.base:#x}, {format_size(self.size)}, {state}, {self.access.name})"

    def __enter__(self) -> SharedRange:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None and len(self._views):
            return  # an error is on its way and its frames hold arrays: the finalizer closes when they are gone
        self.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` has let the memory go."""
        return not self._finalizer.alive

    @property
    def committed(self) -> int:
        """Bytes of shared memory that are mapped here."""
        return len(self._mappings) * self.chunk_size

    def committed_chunks(self) -> list[int]:
        """The indices of the shared chunks, ascending; they are the exporter's."""
        return sorted(self._mappings)

    def mappings(self) -> list[Mapping]:
        """The mappings of the shared chunks, in order."""
        return [self.mapping(chunk) for chunk in self.committed_chunks()]

    def mapping(self, chunk: int) -> Mapping:
        """The mapping of a shared chunk. Raises StateError for one that is not shared."""
        found = self._mappings.get(chunk)
        if found is None:
            raise StateError(f"chunk {chunk} of {self.name} is not shared")
        return found

    def runs(self) -> list[Run]:
        """The spans without a hole, in order."""
        ordered = [self._mappings[chunk] for chunk in self.committed_chunks()]
        return [Run(run[0].offset, run[-1].stop, self.access) for run in adjacent(ordered)]

    def array(self, dtype: Any, shape: Shape, offset: SupportsIndex = 0) -> Any:
        """An array on the shared memory, ``offset`` bytes from the base: CuPy's on a GPU, NumPy's on the host driver.

        NumPy's cannot be written where the access is "r"; a CuPy array can, and the write is then a fault of the GPU.
        Raises RangeError for bytes that are not shared, ClosedError after ``close``.
        """
        form = describe_array(dtype, shape, offset)
        self._check_shared(form)
        return self._views.array(self, self.device, form, self.access)

    def tensor(
        self,
        dtype: Any,
        shape: Shape,
        offset: SupportsIndex = 0,
        *,
        strides: Sequence[SupportsIndex] | None = None,
        stream: Stream | None = None,
    ) -> TensorView:
        """As ``array``, for any library; see ``ChunkedRange.tensor``."""
        form = describe_array(dtype, shape, offset, strides)
        self._check_shared(form)
        return self._views.tensor(self, self.device, form, self.access, stream, memory=True)

    def _check_shared(self, form: Form) -> None:
        if self.closed:
            raise ClosedError(f"{self.name} is closed; attach again")
        start, stop = form.start, form.start + form.size
        for chunk in range(start // self.chunk_size, -(-stop // self.chunk_size)):
            if chunk not in self._mappings:
                raise RangeError(f"bytes {start} to {stop} of {self.name}: chunk {chunk} is not shared")

    @one_thread
    def close(self) -> None:
        """Wait for the device, unmap everything and let the memory go. Closing twice does nothing.

        Raises StateError while an array still views the range.
        """
        if self.closed:
            self._addresses.close()  # of any use only where the driver did not take them back at first
            return
        self._views.refuse([(0, self.size)], f"close {self.name}, which has")
        self.device.synchronize()  # cuMemUnmap does not wait for work that still reads here
        with Finishing() as rest:
            memory = [mapping.memory for mapping in self._mappings.values()]
            rest.run(_give_back, self._addresses, memory)
            self._finalizer.detach()
            self._mappings.clear()


def attach(
    device: Device, path: str | os.PathLike[str], *, access: str | Access | None = None, timeout: float = 10.0
) -> SharedRange:
    """Map what the exporter at the socket ``path`` shares, at one base of this process, all of it or nothing.

    ``device`` is where the memory is used; its ordinal need not be the exporter's. ``access`` asks for less than was
    granted; None takes what was granted. The exporter is given ``timeout`` seconds for each answer.

    Raises SharingError when the exporter is gone, silent, refuses, or did not grant this access, AlignmentError when
    its chunks do not fit this device's granularity, ValueError for an access or a timeout that there is not,
    OutOfMemoryError and DriverError as the driver does.
    """
    check_timeout(timeout)
    wanted = None if access is None else Access.of(access)
    with connect(Path(path), timeout) as channel:
        channel.send(Kind.HELLO)
        offer = Offer.unpack(channel.receive(Kind.OFFER).body)
        granted = _check(offer, device, wanted)
        memory: list[PhysicalMemory] = []
        addresses = AddressRange(device, offer.size)
        with contextlib.ExitStack() as undo:
            undo.callback(_give_back, addresses, memory)
            _import_all(channel, offer, addresses, memory)
            for run in adjacent(addresses.mappings()):
                addresses.set_access(run, granted)
            shared = SharedRange(f"shared range {next(_numbers)}", addresses, offer.chunk_size, granted)
            undo.pop_all()
        with contextlib.suppress(SharingError):  # all is here; the exporter may be gone
            channel.send(Kind.DONE)
    return shared


def _check(offer: Offer, device: Device, wanted: Access | None) -> Access:
    """The access to map an offer with, if it can be had on this device."""
    if offer.chunk_size % device.granularity:
        raise AlignmentError(
            f"the exporter's chunks of {offer.chunk_size} bytes are no multiple of the granularity "
            f"{device.granularity} of device {device.ordinal}; attach on a device like the exporter's"
        )
    if wanted == Access.NONE or (wanted is not None and wanted > offer.access):
        raise SharingError(f"access {wanted.name} was asked, {offer.access.name} is granted; ask for that or for less")
    return offer.access if wanted is None else wanted


def _import_all(channel: Channel, offer: Offer, addresses: AddressRange, memory: list[PhysicalMemory]) -> None:
    """Map chunk after chunk where it belongs. ``memory`` grows with each, for the undo."""
    last = -1
    while len(memory) < offer.count:
        channel.send(Kind.NEXT)
        message = channel.receive(Kind.CHUNKS, descriptors=BATCH)
        try:
            indices = unpack_indices(message.body)
            _check_batch(indices, len(message.descriptors), last, offer, len(memory))
            last = indices[-1]
            for index, descriptor in zip(indices, message.descriptors, strict=True):
                memory.append(PhysicalMemory.imported(addresses.device, offer.chunk_size, descriptor))
                addresses.map(index * offer.chunk_size, memory[-1])
        finally:
            close_descriptors(message.descriptors)


def _check_batch(indices: Sequence[int], descriptors: int, last: int, offer: Offer, done: int) -> None:
    """Raise SharingError for a batch that is empty, out of order, beyond the offer, or short of descriptors."""
    ordered = all(first < second for first, second in itertools.pairwise([last, *indices]))
    within = indices and indices[-1] < offer.size // offer.chunk_size and done + len(indices) <= offer.count
    if not (ordered and within and descriptors == len(indices)):
        raise SharingError(f"the exporter sent {descriptors} descriptors for chunks {list(indices)}, which do not fit")


def _give_back(addresses: AddressRange, memory: Sequence[PhysicalMemory]) -> None:
    """Unmap, free the addresses, let the memory go."""
    with Finishing() as rest:
        rest.run(addresses.close)
        rest.run(close_each, memory)


def _drop(name: str, addresses: AddressRange, mappings: dict[int, Mapping]) -> None:
    """Let everything go when a shared range was dropped without close. The garbage collector may run this anywhere."""
    addresses.device.retirement.drop(functools.partial(_end, name, addresses, mappings))


def _end(name: str, addresses: AddressRange, mappings: dict[int, Mapping]) -> None:
    """Wait for the work that may use it, let everything go, and say so."""
    try:
        addresses.device.synchronize()
    finally:
        _give_back(addresses, [mapping.memory for mapping in mappings.values()])
    warnings.warn(f"{name} was never closed", ResourceWarning, stacklevel=2)
