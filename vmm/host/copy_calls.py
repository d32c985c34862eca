"""Copies and fills, with the checks that a driver makes on the host: every byte is mapped and may be touched."""

from __future__ import annotations

from typing import Any

from .address_space import PlainMemory
from .arguments import host_address, number
from .execution import Context
from .properties import READ, READWRITE
from .results import INVALID, OK, Result
from .stream_calls import StreamCalls


class CopyCalls(StreamCalls):
    """cuMemcpy and cuMemset in all forms. A refused one has written nothing."""

    def cuMemcpy(self, dst: Any, src: Any, ByteCount: int) -> Result:
        """Copy between any two addresses; which side each is on follows from the addresses."""
        return self._copy(number(dst), number(src), number(ByteCount), 0)

    def cuMemcpyAsync(self, dst: Any, src: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        return self._copy(number(dst), number(src), number(ByteCount), hStream)

    def cuMemcpyHtoD(self, dstDevice: Any, srcHost: Any, ByteCount: int) -> Result:
        """Copy from a host address or buffer to device memory."""
        return self.cuMemcpyHtoDAsync(dstDevice, srcHost, ByteCount, 0)

    def cuMemcpyHtoDAsync(self, dstDevice: Any, srcHost: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        size = number(ByteCount)
        return self._copy(number(dstDevice), host_address(srcHost, size), size, hStream, known_target=True)

    def cuMemcpyDtoH(self, dstHost: Any, srcDevice: Any, ByteCount: int) -> Result:
        """Copy from device memory to a host address or buffer."""
        return self.cuMemcpyDtoHAsync(dstHost, srcDevice, ByteCount, 0)

    def cuMemcpyDtoHAsync(self, dstHost: Any, srcDevice: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        size = number(ByteCount)
        return self._copy(host_address(dstHost, size), number(srcDevice), size, hStream, known_source=True)

    def cuMemcpyDtoD(self, dstDevice: Any, srcDevice: Any, ByteCount: int) -> Result:
        """Copy between device addresses; overlapping spans are copied as by memmove."""
        return self.cuMemcpyDtoDAsync(dstDevice, srcDevice, ByteCount, 0)

    def cuMemcpyDtoDAsync(self, dstDevice: Any, srcDevice: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        size = number(ByteCount)
        return self._copy(number(dstDevice), number(srcDevice), size, hStream, known_target=True, known_source=True)

    def _copy(
        self,
        target: int,
        source: int,
        size: int,
        stream: Any,
        *,
        known_target: bool = False,
        known_source: bool = False,
    ) -> Result:
        """Check both sides, then move. A ``known`` side must be memory of this driver, another any host memory."""
        context = self._context_for(stream)
        if not isinstance(context, Context):
            return (context,)
        if not size:
            return OK
        with self._lock:
            if not self._may_touch(context, source, size, READ, known_source) or not self._may_touch(
                context, target, size, READWRITE, known_target
            ):
                return INVALID
            self._backing.move(target, source, size)
        return OK

    def _may_touch(self, context: Context, address: int, size: int, needed: int, known: bool) -> bool:
        """Whether the context's device may read (or write) all of [address, address + size)."""
        if not address:
            return False
        region = self._space.find(address)
        if region is None:  # host memory that this driver did not make: the caller vouches for it, except for its end
            return not known and self._space.overlaps(address, address + size) is None
        if isinstance(region, PlainMemory):
            return address + size <= region.end
        location = context.bank.location
        at, end = address, address + size
        while at < end:
            mapping = self._space.mapping_at(at)
            if mapping is None or mapping.access.get(location, 0) < needed:
                return False
            at = mapping.end
        return True

    # -- fills --------------------------------------------------------------------------------------------------

    def cuMemsetD8(self, dstDevice: Any, uc: int, N: int) -> Result:
        """Set N bytes."""
        return self._fill(dstDevice, uc, N, 1, 0)

    def cuMemsetD8Async(self, dstDevice: Any, uc: int, N: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        return self._fill(dstDevice, uc, N, 1, hStream)

    def cuMemsetD16(self, dstDevice: Any, us: int, N: int) -> Result:
        """Set N elements of 2 bytes."""
        return self._fill(dstDevice, us, N, 2, 0)

    def cuMemsetD16Async(self, dstDevice: Any, us: int, N: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        return self._fill(dstDevice, us, N, 2, hStream)

    def cuMemsetD32(self, dstDevice: Any, ui: int, N: int) -> Result:
        """Set N elements of 4 bytes."""
        return self._fill(dstDevice, ui, N, 4, 0)

    def cuMemsetD32Async(self, dstDevice: Any, ui: int, N: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        return self._fill(dstDevice, ui, N, 4, hStream)

    def _fill(self, address: Any, value: int, count: int, width: int, stream: Any) -> Result:
        pattern = int(value).to_bytes(width, "little")  # OverflowError for what does not fit, as from the bindings
        address, size = number(address), number(count) * width
        context = self._context_for(stream)
        if not isinstance(context, Context):
            return (context,)
        if address % width:
            return INVALID
        if not size:
            return OK
        with self._lock:
            if not self._may_touch(context, address, size, READWRITE, True):
                return INVALID
            self._backing.fill(address, size, pattern)
        return OK
