"""TensorView: memory of a range with a type and a shape, as every array library takes it, without any of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import dlpack
from .errors import StateError
from .streams import Stream, stream_handle

if TYPE_CHECKING:
    from .device import Device
    from .views import View

_LEGACY = 1
"""How DLPack and the CUDA array interface number the legacy default stream; 0 could be the per-thread one too."""
_NO_ORDER = -1


class TensorView:
    """``dtype``, ``shape`` and ``strides`` (bytes) over memory of a range; made by ``MemoryRange.tensor``.

    It is not an array: libraries make theirs of it, without a copy, by ``from_dlpack`` (PyTorch, CuPy, JAX, NumPy), by
    ``numba.cuda.as_cuda_array``, ``cupy.asarray`` and ``torch.as_tensor`` (the CUDA array interface, on a GPU) or
    ``numpy.asarray`` (on the host driver). What they make keeps the memory: it cannot be decommitted meanwhile.

    ``stream`` is where the work was queued that fills the memory, if there is any: the consumer's stream is made to
    wait for it, and on the host driver the caller. None orders nothing.
    Raises StateError where the driver keeps no bytes.
    """

    __slots__ = ("_device", "_view", "dtype", "shape", "stream", "strides")

    def __init__(
        self,
        device: Device,
        view: View,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        stream: Stream | None,
    ) -> None:
        if device.backing == "none":
            raise StateError("backing 'none' keeps no bytes to view; use HostDriver(backing='memory')")
        self._device, self._view, self.dtype = device, view, dtype
        self.shape, self.strides = shape, strides
        self.stream = None if stream is None else stream_handle(stream)

    def __repr__(self) -> str:
        return f"TensorView({self._view.text})"

    @property
    def address(self) -> int:
        """The address of its first number."""
        return self._view.address

    @property
    def contiguous(self) -> bool:
        """Whether its numbers lie one after the other, the last axis fastest."""
        return self.strides == contiguous_strides(self.shape, self.dtype.itemsize) or 0 in self.shape

    # -- the protocols ------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """NumPy's way in, on the host driver. Raises StateError for memory of a GPU, which no host may look at."""
        if self._on_gpu:
            raise StateError(f"{self!r} lies on a GPU: copy it, or give it to CuPy or PyTorch")
        self._wait_here()
        return np.array(self._numbers(self.dtype), dtype=dtype, copy=copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA array interface, version 3 (Numba's documentation defines it); only on a GPU, and for NumPy's types."""
        if not self._on_gpu or not dlpack.is_numpys(self.dtype):
            raise AttributeError(f"{self!r} has no CUDA array interface; DLPack takes it")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if math.prod(self.shape) else 0, not self._view.writable),
            "strides": None if self.contiguous else self.strides,
            "stream": _LEGACY if self.stream == 0 else self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of device and its number: (2, ordinal) of a GPU, (1, 0) for memory of the host driver."""
        return (dlpack.CUDA, self._view.device) if self._on_gpu else (dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule, as the Python array API standard asks for it; nothing is ever copied.

        ``stream`` is the consumer's: on a GPU None or 1 is the legacy default stream, 2 the per-thread one, -1 asks
        for no order. Raises BufferError for a copy, another device or a type that DLPack lacks.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"{self!r} stays where it is; copy it with the library that takes it")
        self._order(stream)
        wide = self.dtype if dlpack.is_numpys(self.dtype) else np.dtype(f"u{self.dtype.itemsize}")
        return dlpack.capsule(self._numbers(wide), self.dtype, self.__dlpack_device__(), max_version)

    # -- steps --------------------------------------------------------------------------------------------------

    @property
    def _on_gpu(self) -> bool:
        return self._device.backing == "device"

    def _numbers(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The memory as NumPy sees it. On a GPU nobody but this class has it, for the address alone."""
        return np.ndarray(self.shape, dtype, np.asarray(self._view), 0, self.strides)

    def _order(self, consumer: int | None) -> None:
        """Let the consumer's stream wait for ours."""
        if not self._on_gpu:
            if consumer is not None:
                raise BufferError(
                    f"{self!r} is memory of the host, which has no stream {consumer}; ask with stream=None"
                )
            return self._wait_here()
        if consumer == 0 or (consumer is not None and consumer < _NO_ORDER):
            raise BufferError(f"stream {consumer} is not one of DLPack's; give None, -1, 1, 2 or a stream's handle")
        handle = _LEGACY if consumer is None else consumer
        if self.stream is None or handle == _NO_ORDER or handle == (self.stream or _LEGACY):
            return None
        with self._device.current():
            self._device.driver.stream_wait(handle, self.stream)
        return None

    def _wait_here(self) -> None:
        if self.stream is not None:
            with self._device.current():
                self._device.driver.stream_synchronize(self.stream)


def contiguous_strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Bytes from one number to the next along each axis, the last axis fastest."""
    return tuple(item * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
