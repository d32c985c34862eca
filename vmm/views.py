"""Array views of committed memory: NumPy on the host driver, CuPy on a GPU. Live views are counted and named."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

import ml_dtypes  # noqa: F401  importing it teaches NumPy the name "bfloat16"
import numpy as np

from .driver import Access
from .errors import AlignmentError, DriverMissingError, RangeError, StateError
from .streams import Stream
from .tensor_view import TensorView, contiguous_strides

if TYPE_CHECKING:
    from .device import Device

Shape = SupportsIndex | Sequence[SupportsIndex]


class View:
    """What an array keeps alive: its extent, and through ``keep`` the memory's owner. It dies with the last array."""

    __slots__ = ("__weakref__", "address", "device", "keep", "size", "start", "stop", "text", "writable")

    def __init__(
        self, keep: object, address: int, start: int, size: int, *, device: int, writable: bool, text: str
    ) -> None:
        self.keep, self.address, self.size, self.device = keep, address, size, device
        self.start, self.stop = start, start + size
        self.writable, self.text = writable, text

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's protocol: ``size`` bytes at ``address``."""
        return {
            "version": 3,
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (self.address, not self.writable),
        }


def is_view(array: Any) -> bool:
    """Whether an array's bytes are a range's, which queued work may be about to write: no host looks at them."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, View)


class Viewable(Protocol):
    """A range whose memory arrays may view."""

    name: str
    base: int


@dataclass(frozen=True, slots=True)
class Form:
    """What a view is to look like: a type, a shape, strides in bytes, and where it starts in its range."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Bytes from the first number to the end of the last, 0 where there is none."""
        if 0 in self.shape:
            return 0
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return last + self.dtype.itemsize


class Views:
    """The live views of one range: of its memory, and of mere addresses, which only keep it open."""

    def __init__(self) -> None:
        self._live: weakref.WeakSet[View] = weakref.WeakSet()
        self._of_addresses: weakref.WeakSet[View] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._live) + len(self._of_addresses)

    def array(self, owner: Viewable, user: Device, form: Form, access: Access) -> Any:
        """An array of ``owner``'s memory, for work of ``user``; it counts until it dies."""
        view = _view_of(owner, user, form, access)
        made = make_array(user, view, form.dtype, form.shape)
        self._live.add(view)
        return made

    def tensor(
        self, owner: Viewable, user: Device, form: Form, access: Access, stream: Stream | None, *, memory: bool
    ) -> TensorView:
        """A view that is no library's yet; where not of ``memory`` that has to stay, of addresses."""
        view = _view_of(owner, user, form, access)
        made = TensorView(user, view, form.dtype, form.shape, form.strides, stream)
        (self._live if memory else self._of_addresses).add(view)
        return made

    def hold(self, owner: Viewable, text: str) -> View:
        """A view of no byte, which only keeps ``owner`` open; errors say ``text`` of it."""
        held = View(owner, owner.base, 0, 0, device=-1, writable=True, text=text)
        self._of_addresses.add(held)
        return held

    def refuse_end(self, name: str, size: int) -> None:
        """Raise StateError, naming the array, if any view of memory or of addresses is alive."""
        self.refuse([(0, size)], f"close {name}, which has")
        for view in list(self._of_addresses):
            raise StateError(f"cannot close {name}: somebody has its addresses ({view.text}); delete that first")

    def spans(self) -> list[tuple[int, int]]:
        """The viewed bytes as (start, stop)."""
        return [(view.start, view.stop) for view in list(self._live)]

    def over(self, spans: list[tuple[int, int]]) -> Iterator[View]:
        """The live views that share a byte with ``spans``."""
        for view in list(self._live):
            if any(start < view.stop and view.start < stop for start, stop in spans):
                yield view

    def refuse(
        self, spans: list[tuple[int, int]], action: str, *, only_writable: bool = False, device: int | None = None
    ) -> None:
        """Raise StateError, naming the array, if a live view (of ``device`` only) shares a byte with ``spans``."""
        if not self._live:
            return
        for view in self.over(spans):
            if (view.writable or not only_writable) and device in (None, view.device):
                raise StateError(
                    f"cannot {action} bytes {view.start:#x} to {view.stop:#x}: "
                    f"an array still views them ({view.text}); delete that array first"
                )


def _view_of(owner: Viewable, user: Device, form: Form, access: Access) -> View:
    text = f"{form.dtype}{list(form.shape)} at offset {form.start} of {owner.name}"
    writable, address = access == Access.READWRITE, owner.base + form.start
    return View(owner, address, form.start, form.size, device=user.ordinal, writable=writable, text=text)


def describe_array(
    dtype: Any, shape: Shape, offset: SupportsIndex, strides: Sequence[SupportsIndex] | None = None
) -> Form:
    """Check the arguments of an array; without ``strides`` its numbers lie one after the other.

    Raises ValueError for an unknown dtype, another number of strides than axes or a negative one, RangeError for a
    negative extent or offset, AlignmentError for an offset or a stride that the type does not align to.
    """
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"dtype {dtype!r} is not known to NumPy; write for example 'float16'") from None
    if isinstance(shape, SupportsIndex):
        shape = (shape,)
    extents = tuple(operator.index(extent) for extent in shape)
    start = operator.index(offset)
    if any(extent < 0 for extent in extents) or start < 0:
        raise RangeError(f"shape {extents} at offset {start}: extents and offset must be 0 or more")
    if start % kind.alignment:
        raise AlignmentError(f"offset {start} is no multiple of the {kind.alignment} bytes that {kind} aligns to")
    if strides is None:
        return Form(kind, extents, contiguous_strides(extents, kind.itemsize), start)
    steps = tuple(operator.index(stride) for stride in strides)
    if len(steps) != len(extents) or any(step < 0 for step in steps):
        raise ValueError(f"strides {steps} do not fit shape {extents}; give each axis one of 0 or more bytes")
    if any(step % kind.itemsize for step in steps):
        raise AlignmentError(f"strides {steps} are no multiples of the {kind.itemsize} bytes of {kind}")
    return Form(kind, extents, steps, start)


def make_array(device: Device, view: View, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """An array of ``dtype`` and ``shape`` on the memory of ``view``: CuPy's on a GPU, NumPy's on the host driver."""
    if device.backing == "none":
        raise StateError("backing 'none' keeps no bytes to view; use HostDriver(backing='memory')")
    if device.backing == "memory":
        return np.asarray(view).view(dtype).reshape(shape)
    cupy = import_cupy()
    memory = cupy.cuda.UnownedMemory(view.address, view.size, view, device.ordinal)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def import_cupy() -> Any:
    """CuPy, or an error with the pip line that brings it."""
    try:
        import cupy
    except ImportError as error:
        raise DriverMissingError(
            "arrays on a GPU need CuPy: pip install 'pagewalk[cuda13]' (or [cuda12]), or use driver='host'"
        ) from error
    return cupy
