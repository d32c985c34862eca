"""ReliedRange: what relies on a range's memory: arrays, tensors and pins; and on its addresses alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, SupportsIndex

from .chunk_map import ChunkMap
from .device import Device
from .driver import Access
from .errors import RangeError, StateError
from .pins import Pin, Pins
from .sizes import Size, parse_span
from .streams import Stream
from .tensor_view import TensorView
from .views import Form, Shape, Views, describe_array


class ReliedRange(ABC):
    """The part of a range that hands its memory out, and knows what must not be taken away beneath it."""

    device: Device
    name: str
    base: int
    reserved: int
    chunk_size: int
    relied_on: bool
    """Whether there may be a pin or a live array: True since one was made, until a look."""
    _chunks: ChunkMap
    _pins: Pins
    _views: Views

    @abstractmethod
    def check_awake(self) -> None:
        """Raise ClosedError after ``close``, and StateError, naming the tag, while the range sleeps."""

    @abstractmethod
    def _check_open(self) -> None: ...

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
        access = self._access_for(user, form, limit)
        self.relied_on = True
        return self._views.array(self, user, form, access)

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
        self.relied_on = bool(self._pins) or bool(self._views.spans())

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

    def _refuse_less(self, span: tuple[int, int], access: Access, device: int) -> None:
        """Refuse ``access`` where an array of ``device`` needs more."""
        if access < Access.READWRITE:
            only = access == Access.READ
            self._views.refuse([span], f"set access to {access.name}", only_writable=only, device=device)
