"""PyTorch: tensors on memory of a range, one that grows in place, and a heap under ``torch.cuda.MemPool``."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

from ..errors import RangeError, SizeError
from ..finishing import Finishing
from ..growable import GrowableRange
from ..memory_range import MemoryRange
from ..streams import Stream
from ..views import Shape, describe_array
from .missing import library
from .torch_allocator import HeapAllocator, allocator, mem_pool

__all__ = ["GrowableTensor", "HeapAllocator", "allocator", "mem_pool", "tensor"]

_REMEDY = "torch"


def tensor(
    memory: MemoryRange, dtype: Any, shape: Shape, offset: SupportsIndex = 0, *, stream: Stream | None = None
) -> Any:
    """A tensor on committed memory, without a copy: on the GPU, or on the CPU where the driver is the host driver.

    ``dtype`` is NumPy's or PyTorch's; bfloat16 and float8 are tensors of that type. ``stream`` is where the work was
    queued that fills the memory: PyTorch's current stream waits for it. The tensor and its views keep the memory.
    Raises as ``MemoryRange.array``, DriverMissingError without PyTorch.
    """
    return library("torch", _REMEDY).from_dlpack(memory.tensor(_numpys(dtype), shape, offset, stream=stream))


class GrowableTensor:
    """A tensor whose first axis grows and shrinks in place: ``[rows, *row]`` at the start of ``memory``.

    ``tensor`` is the whole as it is now. Its ``data_ptr`` never changes and nothing is copied, so tensors that were
    taken before stay what they were: views of the first rows. New rows hold whatever their memory holds.
    ``memory`` is the caller's, who closes it, and is resized by this tensor alone.

    Raises as ``tensor``, RangeError for a row without a byte.
    """

    def __init__(self, memory: GrowableRange, dtype: Any, row: Shape = ()) -> None:
        self._torch = library("torch", _REMEDY)
        form = describe_array(_numpys(dtype), row, 0)
        if not form.size:
            raise RangeError(f"a row of shape {form.shape} has no byte; give extents of 1 or more")
        self.memory, self.dtype, self.row = memory, form.dtype, form.shape
        self._row_bytes = form.size
        self._rows = 0
        self._tensor: Any = None
        self._view()

    def __repr__(self) -> str:
        return f"GrowableTensor({self._rows} of at most {self.max_rows} rows {self.dtype}{list(self.row)})"

    def __len__(self) -> int:
        return self._rows

    @property
    def tensor(self) -> Any:
        """All rows, as one torch.Tensor; the same object until the next change."""
        return self._tensor

    @property
    def max_rows(self) -> int:
        """How many rows the reserved addresses have room for."""
        return self.memory.reserved // self._row_bytes

    def append(self, rows: SupportsIndex) -> Any:
        """Add ``rows`` rows and return the tensor of them, for the caller to fill. Raises as ``resize``."""
        before = self._rows
        self.resize(before + operator.index(rows))
        return self._tensor[before:]

    def resize(self, rows: SupportsIndex, *, after: Any = None) -> Any:
        """Have ``rows`` rows, and return the whole tensor.

        The memory of rows that go is given back when the work ``after`` is done (by default all of the device's).
        Raises SizeError for a negative number, RangeError beyond the reserved addresses, OutOfMemoryError where memory
        is not to be had, StateError where rows would go that another tensor views: delete that first. Nothing has
        changed then.
        """
        wanted = operator.index(rows)
        if wanted < 0:
            raise SizeError(f"{wanted} rows cannot be; give 0 or more")
        if wanted > self.max_rows:
            raise RangeError(f"{wanted} rows are more than the {self.max_rows} that have addresses; reserve more")
        self._tensor = None  # it views what may go
        with Finishing() as rest:
            try:
                rest.run(self.memory.resize, wanted * self._row_bytes, after=after)
                self._rows = wanted
            finally:
                self._view()
        return self._tensor

    def _view(self) -> None:
        self._tensor = tensor(self.memory, self.dtype, (self._rows, *self.row))


def _numpys(dtype: Any) -> np.dtype[Any]:
    """NumPy's type for one of either library."""
    name = str(dtype)
    return describe_array(name.removeprefix("torch.") if name.startswith("torch.") else dtype, (), 0).dtype
