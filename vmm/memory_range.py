"""MemoryRange: a reserved span of addresses, the chunks that are mapped there, and the arrays and pins that need them.

It opens, answers and closes; ``ChunkedRange`` changes what is mapped.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from .address_range import AddressRange, Mapping
from .chunk_map import ChunkMap, Run
from .chunk_supply import ChunkSupply
from .device import Device
from .driver import Access
from .errors import ClosedError, RangeError, StateError
from .finishing import Finishing
from .pins import Pin, Pins
from .sizes import Size, format_size, parse_size, parse_span, round_up
from .streams import Stream
from .supply import Supply
from .suspended import Suspended
from .tensor_view import TensorView
from .uninterrupted import Uninterrupted, whole
from .views import Form, Shape, Views, describe_array

if TYPE_CHECKING:
    from typing_extensions import Self

_numbers = itertools.count(1)


class MemoryRange:
    """What every range is: addresses, the chunks mapped there, and who relies on them. Made as ``ChunkedRange``."""

    @whole
    def __init__(
        self,
        device: Device,
        reserve: Size,
        *,
        chunk: Size | None = None,
        supply: Supply | None = None,
        access: str | Access = "rw",
        name: str | None = None,
    ) -> None:
        if supply is not None and chunk is not None:
            raise ValueError(f"chunk={chunk!r} is the supply's to choose; give one of chunk and supply")
        device.check_open()
        if supply is not None and not supply.device.is_same(device):
            raise ValueError(f"the supply is of {supply.device}, not of {device}; make one there")
        self.device = device
        self.name = name or f"range {next(_numbers)}"
        self._own_supply = supply is None
        self.supply: Supply = supply or ChunkSupply(device, chunk)
        self.chunk_size = self.supply.chunk_size
        first_access = Access.of(access)
        addresses = AddressRange(device, round_up(parse_size(reserve, name="reserve"), self.chunk_size))
        self.base, self.reserved = addresses.base, addresses.size
        self._chunks = ChunkMap(addresses, self.supply, first_access, self.name)
        self._mappings = self._chunks.mappings
        self._pins, self._views = Pins(), Views()
        self.relied_on = False  # whether there may be a pin or a live array: True since one was made, until a look
        self._busy = threading.Lock()
        self.losses = 0  # how often the bytes of all chunks became undefined
        self._finalizer = weakref.finalize(self, _drop, self._chunks)
        device.driver.ranges.add(self)  # errors about an address name the range and the chunk

    def __repr__(self) -> str:
        state = f"{format_size(self.committed)} committed" if self._finalizer.alive else "closed"
        return f"{type(self).__name__}({self.name!r}, {self.base:#x}, {format_size(self.reserved)} reserved, {state})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None and len(self._views):
            return  # an error is on its way and its frames hold arrays: the finalizer closes when they are gone
        self.close()

    @property
    def asleep(self) -> Suspended | None:
        """What comes back when the range wakes; None while it is awake."""
        return self._chunks.asleep

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether ``close`` has given everything back."""
        return not self._finalizer.alive

    @property
    def committed(self) -> int:
        """Bytes of physical memory that are mapped here, ``retiring`` and the chunk of each zero window included."""
        held = len(self._mappings) + len(self._chunks.leaving) + len(self._chunks.windows)
        return held * self.chunk_size

    @property
    def retiring(self) -> int:
        """Bytes that were decommitted, and stay mapped until the work that may use them is done."""
        return len(self._chunks.leaving) * self.chunk_size

    @property
    def chunk_count(self) -> int:
        """How many chunks the reservation has room for."""
        return self.reserved // self.chunk_size

    def is_committed(self, chunk: int) -> bool:
        """Whether chunk ``chunk`` has physical memory."""
        return chunk in self._mappings

    def is_held(self, chunk: int) -> bool:
        """Whether chunk ``chunk`` has physical memory, or will have when the range wakes."""
        return chunk in self._mappings or (self.asleep is not None and chunk in self.asleep)

    def held_chunks(self) -> list[int]:
        """The indices of the chunks that are committed, or will be when the range wakes."""
        return self.asleep.chunks if self.asleep else sorted(self._mappings)

    def is_retiring(self, chunk: int) -> bool:
        """Whether chunk ``chunk`` was decommitted and is still mapped."""
        return chunk in self._chunks.leaving

    def committed_chunks(self) -> list[int]:
        """The indices of the committed chunks, ascending."""
        return sorted(self._mappings)

    def mapping(self, chunk: int) -> Mapping:
        """The mapping of a committed chunk. Raises StateError where nothing is committed."""
        found = self._mappings.get(chunk)
        if found is None:
            raise StateError(f"chunk {chunk} of {self.name} is not committed")
        return found

    def mappings(self) -> list[Mapping]:
        """All that the driver has mapped here, in order: committed and retiring chunks, and zeros of windows."""
        self._check_open()
        return self._chunks.addresses.mappings()

    def runs(self) -> list[Run]:
        """The committed spans in order, cut where the access changes."""
        return self._chunks.runs()

    # -- what relies on the memory ------------------------------------------------------------------------------

    def array(
        self,
        dtype: Any,
        shape: Shape,
        offset: SupportsIndex = 0,
        *,
        limit: int | None = None,
        device: Device | None = None,
    ) -> Any:
        """An array on committed memory, without a copy: CuPy's on a GPU, NumPy's on the host driver.

        ``offset`` is in bytes; the array must end at or before ``limit``. It is for work on ``device``, by default the
        range's own; another needs a grant. The array keeps the range alive, and its chunks cannot be decommitted while
        it lives. Raises RangeError for bytes that are not committed and StateError for memory that ``device`` cannot
        read.
        """
        form, user = describe_array(dtype, shape, offset), device or self.device
        self.relied_on = True
        return self._views.array(self, user, form, self._access_for(user, form, limit))

    def tensor(
        self,
        dtype: Any,
        shape: Shape,
        offset: SupportsIndex = 0,
        *,
        strides: Sequence[SupportsIndex] | None = None,
        limit: int | None = None,
        device: Device | None = None,
        stream: Stream | None = None,
    ) -> TensorView:
        """As ``array``, for any library: PyTorch, CuPy, JAX, Numba and NumPy make their arrays of a ``TensorView``.

        ``strides`` are bytes along each axis, contiguous by default; ``stream`` is where the work was queued that fills
        the memory. Raises as ``array``.
        """
        form, user = describe_array(dtype, shape, offset, strides), device or self.device
        access = self._access_for(user, form, limit)
        self.relied_on = True
        return self._views.tensor(self, user, form, access, stream, memory=True)

    def address_tensor(
        self,
        dtype: Any,
        shape: Shape,
        offset: SupportsIndex = 0,
        *,
        strides: Sequence[SupportsIndex] | None = None,
    ) -> TensorView:
        """As ``tensor``, over addresses that need no memory yet: memory comes and goes beneath it.

        It keeps nothing but the addresses: only ``close`` is refused while it lives. For kernels that touch what they
        know to be committed, as those of paged attention do through a block table. What is not committed must not be
        read, by a copy or a print of the whole either; a ``zero_window`` lets it be read as zeros.
        Raises RangeError beyond the reservation, ClosedError after ``close``.
        """
        self._check_open()
        form = describe_array(dtype, shape, offset, strides)
        if form.start + form.size > self.reserved:
            raise RangeError(f"bytes {form.start} to {form.start + form.size} are beyond the {self.reserved} reserved")
        return self._views.tensor(self, self.device, form, self._chunks.access, None, memory=False)

    def keep_open(self, text: str) -> object:
        """Refuse ``close`` while what is returned lives; errors say ``text`` of it. For who hands out bare addresses.

        Raises ClosedError after ``close``.
        """
        self._check_open()
        return self._views.hold(self, text)

    def check_unused(self, start: int, stop: int, action: str) -> None:
        """Raise StateError, saying what ``action`` was refused, if an array views or a pin holds these bytes."""
        self._pins.refuse([(start, stop)], action)
        self._views.refuse([(start, stop)], action)
        self.relied_on = bool(self._pins) or bool(self._views)

    def used_chunks(self) -> set[int]:
        """The chunks that an array views or a pin holds, and that must not be unmapped or moved therefore."""
        spans = (*self._pins.spans(), *self._views.spans())
        return {
            chunk for start, stop in spans for chunk in range(start // self.chunk_size, -(-stop // self.chunk_size))
        }

    @property
    def pins(self) -> list[Pin]:
        """The pins that are not closed."""
        return self._pins.held()

    def pin(self, start: Size, stop: Size, reason: str) -> Pin:
        """Refuse to unmap or move the bytes from ``start`` to ``stop`` until the pin is closed.

        ``reason`` is what errors say of it. Their access can still be changed. Raises ValueError for an empty reason.
        """
        if not reason.strip():
            raise ValueError(f"a pin needs a reason for errors to name, not {reason!r}: 'a graph', say")
        self.relied_on = True
        return self._pins.add(*parse_span(start, stop, 1, self.reserved), reason)

    def close(self) -> None:
        """Unmap everything, return the chunks and free the addresses. Closing twice does nothing.

        Raises StateError while an array still views the range or a pin holds it, DriverError when an unmap is refused;
        nothing has changed then.
        """
        if not self._finalizer.alive:
            self._chunks.addresses.close()  # of any use only where the driver did not take them back at first
            return
        with self._alone(asleep=True):
            everything = [(0, self.reserved)]
            self._pins.refuse(everything, f"close {self.name}, which has")
            self._views.refuse_end(self.name, self.reserved)
            self.device.synchronize()
            with Finishing() as rest:
                rest.run(self._chunks.close)
                self._finalizer.detach()
                if self._own_supply:
                    rest.run(self.supply.close)

    # -- steps --------------------------------------------------------------------------------------------------

    def _access_for(self, user: Device, form: Form, limit: int | None) -> Access:
        """What ``user`` may do to the bytes of an array, which all must be committed."""
        self.check_awake()
        if not user.driver.is_same(self.device.driver):
            raise ValueError(f"{user} is of another driver than {self.name}")
        stop = form.start + form.size
        if limit is not None and stop > limit:
            text = f"array {form.dtype}{list(form.shape)} needs {form.size} bytes"
            raise RangeError(f"{text}; there are {limit - form.start}")
        access = self._chunks.access_over(form.start, stop, user.ordinal)
        if access == Access.NONE:
            remedy = "protect() them first" if user.ordinal == self.device.ordinal else "grant() it access first"
            where = f"bytes {form.start} to {stop} of {self.name}"
            raise StateError(f"{where} cannot be read by device {user.ordinal}; {remedy}")
        return access

    @contextlib.contextmanager
    def _alone(self, *, asleep: bool = False) -> Iterator[None]:
        """One change at a time, on an open range that is awake, or also on one that is ``asleep``."""
        with Uninterrupted():  # from before the lock is had, which would stay locked
            if not self._busy.acquire(blocking=False):
                text = f"{self.name} is being changed by another thread; a range belongs to one thread at a time"
                raise StateError(text)
            try:
                self._check_open() if asleep else self.check_awake()
                yield
            finally:
                self._busy.release()

    def check_awake(self) -> None:
        """Raise ClosedError after ``close``, and StateError, naming the tag, while the range sleeps."""
        self._check_open()
        if self.asleep:
            raise StateError(f"{self.name} is asleep with {self.asleep.tag!r}; wake that first")

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError(f"{self.name} is closed; make a new range")

    def _refuse_less(self, span: tuple[int, int], access: Access, device: int) -> None:
        """Refuse ``access`` where an array of ``device`` needs more."""
        if access < Access.READWRITE:
            only = access == Access.READ
            self._views.refuse([span], f"set access to {access.name}", only_writable=only, device=device)


def _drop(chunks: ChunkMap) -> None:
    """Give everything back when a range was dropped without close. The garbage collector may run this anywhere."""
    chunks.retirement.drop(functools.partial(_end, chunks))


def _end(chunks: ChunkMap) -> None:
    """Wait, give everything back, and say so."""
    try:
        chunks.device.synchronize()
    finally:
        chunks.close()
    warnings.warn(f"{chunks.name} was never closed", ResourceWarning, stacklevel=2)
