"""Array views of committed memory: NumPy on the host driver, CuPy on a GPU. Live views are counted and named."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

import ml_dtypes  # noqa: F401  importing it teaches NumPy the name "bfloat16"
import numpy as np

from .driver import Access
from .errors import AlignmentError, DriverMissingError, RangeError, StateError

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


class Views:
    """The live views of one range."""

    def __init__(self) -> None:
        self._live: weakref.WeakSet[View] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._live)

    def array(
        self, owner: Viewable, user: Device, kind: np.dtype[Any], extents: tuple[int, ...], start: int, access: Access
    ) -> Any:
        """An array of ``owner``'s memory from byte ``start`` on, for work of ``user``; it counts until it dies."""
        size = math.prod(extents) * kind.itemsize
        text = f"{kind}{list(extents)} at offset {start} of {owner.name}"
        writable = access == Access.READWRITE
        view = View(owner, owner.base + start, start, size, device=user.ordinal, writable=writable, text=text)
        made = make_array(user, view, kind, extents)
        self._live.add(view)
        return made

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


def describe_array(dtype: Any, shape: Shape, offset: SupportsIndex) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Check the arguments of an array: its dtype, its shape, where it starts, and its size in bytes."""
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
    return kind, extents, start, math.prod(extents) * kind.itemsize


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
