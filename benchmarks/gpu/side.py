"""Side: the device that a run measures, with the array library that belongs to it. A dry run has the host driver.

Steps know no more of where they run than this; everything that only a GPU can do is ``capture``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import vmm

DTYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "uint8": np.uint8,
}
Call = Callable[[int], None]
"""Queues work on the stream whose handle it is given."""

_MULTIPROCESSORS, _L2_BYTES = 16, 38  # CU_DEVICE_ATTRIBUTE_*
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_DRY_MEMORY = "1 GiB"


class Side:
    """A device with a stream of its own. It fits kernels_cu's Target, and adds nothing to a launch: graphs take it."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self._undo = contextlib.ExitStack()
        chosen = vmm.HostDriver(memory=_DRY_MEMORY) if dry else "cuda"
        self.device = self._undo.enter_context(vmm.Device(0, driver=chosen))
        self._undo.enter_context(self.device.current())
        self.arch = self.device.arch
        self.xp: Any = np if dry else __import__("cupy")
        self.launched: list[int] = []  # the stream of each launch, for a dry capture
        self._stream = self._make_stream()
        self._supply: vmm.ChunkSupply | None = None
        self._undo.callback(self._close_supply)

    def close(self) -> None:
        """Give everything back."""
        self._undo.close()

    @property
    def stream(self) -> int:
        """The handle of the stream that is timed."""
        return int(self._stream if self.dry else self._stream.ptr)

    @property
    def multiprocessors(self) -> int:
        """How many multiprocessors the device has."""
        return self.device.driver.device_attribute(0, _MULTIPROCESSORS)

    @property
    def l2_bytes(self) -> int:
        """Size of its L2 cache."""
        return self.device.driver.device_attribute(0, _L2_BYTES)

    # -- memory ---------------------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Bytes of physical memory that a range may have: free, or kept for the next one."""
        return self.device.memory_info().free + (self._supply.cached if self._supply else 0)

    def supply(self, chunk: int) -> vmm.ChunkSupply:
        """Chunks of this size; they are kept from one case to the next, for making them takes longer than a case."""
        if self._supply is None or self._supply.chunk_size != chunk:
            self._close_supply()
            self._supply = vmm.ChunkSupply(self.device, chunk, cache=self.device.total)
        return self._supply

    def _close_supply(self) -> None:
        if self._supply is not None:
            self._supply.close()
            self._supply = None

    # -- the target of launches ----------------------------------------------------------------------------------

    def submit(self, stream: int, call: Callable[[], None], keepalive: object) -> None:  # noqa: ARG002
        """Launch at once: steps keep what they launch alive, and wait before they let go of it."""
        self.launched.append(stream)
        call()

    def fault(self, address: int, write: bool) -> Exception:
        """The error for a kernel's access to an address that it must not touch."""
        return self.device.fault(address, write)

    # -- arrays ---------------------------------------------------------------------------------------------------

    def array(self, values: Any) -> Any:
        """A copy of a NumPy array on this side; none of e4m3, which CuPy does not make."""
        made = self.xp.array(values)
        self.device.synchronize()  # it was copied in another stream than the one that will use it
        return made

    def poisoned(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of this side with every bit set: NaN in each type."""
        kind = np.dtype(DTYPES[dtype])
        made = self.xp.full(math.prod(shape) * kind.itemsize, 0xFF, np.uint8).view(kind).reshape(shape)
        self.device.synchronize()
        return made

    def poison(self, array: Any) -> None:
        """Set every bit of an array."""
        array.view(np.uint8)[...] = 0xFF
        self.device.synchronize()

    def host(self, array: Any) -> Any:
        """The values of an array of this side in NumPy, when all work is done."""
        self.device.synchronize()
        return np.array(array) if isinstance(array, np.ndarray) else array.get()

    def read(self, address: int, dtype: str, shape: tuple[int, ...]) -> Any:
        """The numbers at an address, in NumPy."""
        found = bytearray(math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize)
        self.device.driver.copy_out(found, address, len(found))
        return np.frombuffer(found, DTYPES[dtype]).reshape(shape)

    def on_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Let array operations inside a ``with`` go to the stream."""
        return contextlib.nullcontext() if self.dry else self._stream

    # -- graphs ---------------------------------------------------------------------------------------------------

    def capture(self, calls: Sequence[Call]) -> Callable[[], None]:
        """Queue ``calls`` into one graph, and return what starts it on the stream. The kernels must be loaded."""
        if self.dry:
            return self._dry_capture(calls)
        with self.on_stream():
            self._stream.begin_capture()
            try:
                for call in calls:
                    call(self.stream)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # a capture that failed gives no graph
                    self._stream.end_capture()
                raise
            graph = self._stream.end_capture()
        return lambda: graph.launch(self._stream)

    def _dry_capture(self, calls: Sequence[Call]) -> Callable[[], None]:
        """Make the calls, and see that each launch went to the stream: on another it would not be in the graph."""
        self.launched.clear()
        for call in calls:
            call(self.stream)
        astray = next((stream for stream in self.launched if stream != self.stream), None)
        if astray is not None:
            raise AssertionError(f"a launch went to stream {astray}, and not to {self.stream}, which is captured")

        def replay() -> None:
            for call in calls:
                call(self.stream)

        return replay

    def _make_stream(self) -> Any:
        if not self.dry:
            return self.xp.cuda.Stream(non_blocking=True)
        api = self.device.driver.api
        made = int(vmm.driver.check("cuStreamCreate", api.cuStreamCreate(_NON_BLOCKING)))
        self._undo.callback(lambda: api.cuStreamDestroy(made))
        return made
