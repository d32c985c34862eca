"""Copies and fills, with the checks that a driver makes on the host: every byte is mapped and may be touched."""

from __future__ import annotations

import ctypes
from typing import Any

from ..errors import DriverError
from .address_space import PlainMemory, Region
from .arguments import host_address, number
from .execution import Context, Stream
from .properties import READ, READWRITE
from .results import ILLEGAL_ADDRESS, INVALID, OK, Result
from .stream_calls import StreamCalls


class CopyCalls(StreamCalls):
    """cuMemcpy and cuMemset in all forms. A refused one has written nothing."""

    def cuMemcpy(self, dst: Any, src: Any, ByteCount: int) -> Result:
        """Copy between any two addresses; which side each is on follows from the addresses."""
        return self._copy(number(dst), number(src), number(ByteCount), 0, waits=True)

    def cuMemcpyAsync(self, dst: Any, src: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        return self._copy(number(dst), number(src), number(ByteCount), hStream)

    def cuMemcpyHtoD(self, dstDevice: Any, srcHost: Any, ByteCount: int) -> Result:
        """Copy from a host address or buffer to device memory, and wait."""
        size = number(ByteCount)
        return self._copy(number(dstDevice), host_address(srcHost, size), size, 0, known_target=True, waits=True)

    def cuMemcpyHtoDAsync(self, dstDevice: Any, srcHost: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        size = number(ByteCount)
        return self._copy(number(dstDevice), host_address(srcHost, size), size, hStream, known_target=True)

    def cuMemcpyDtoH(self, dstHost: Any, srcDevice: Any, ByteCount: int) -> Result:
        """Copy from device memory to a host address or buffer, and wait."""
        size = number(ByteCount)
        return self._copy(host_address(dstHost, size), number(srcDevice), size, 0, known_source=True, waits=True)

    def cuMemcpyDtoHAsync(self, dstHost: Any, srcDevice: Any, ByteCount: int, hStream: Any) -> Result:
        """The same in the order of a stream."""
        size = number(ByteCount)
        return self._copy(host_address(dstHost, size), number(srcDevice), size, hStream, known_source=True)

    def cuMemcpyDtoD(self, dstDevice: Any, srcDevice: Any, ByteCount: int) -> Result:
        """Copy between device addresses, without a wait; overlapping spans are copied as by memmove."""
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
        waits: bool = False,
    ) -> Result:
        """Check both sides, then move. A ``known`` side must be memory of this driver, another any host memory."""
        place = self._stream_for(stream)
        if not isinstance(place, Stream):
            return (place,)
        if not size:
            return OK
        context = place.context
        with self._lock:
            if not self._may_touch(context, source, size, READ, known_source) or not self._may_touch(
                context, target, size, READWRITE, known_target
            ):
                return INVALID
            if self._eager:
                self._backing.move(target, source, size)
                return OK
        return self._copy_later(place, target, source, size, waits)

    def _copy_later(self, stream: Stream, target: int, source: int, size: int, waits: bool) -> Result:
        """Queue a copy that was checked; it is checked again when it runs.

        Bytes of memory that is not pinned are read at the call, and a copy into such memory is waited for: a driver
        has to go through a buffer of its own. A copy that ``waits`` does so if one side is on the host.
        """
        sides = self._space.find(source), self._space.find(target)
        kept = self._backing.snapshot(source, size) if sides[0] is None else None
        start = ctypes.addressof(kept) if kept is not None else source

        def run() -> None:
            with self._lock:
                if sides[0] is not None:
                    self._must_touch(stream.context, source, size, READ)
                if sides[1] is not None:
                    self._must_touch(stream.context, target, size, READWRITE)
                self._backing.move(target, start, size)

        work = self._queue(stream, run, kept)
        if sides[1] is None or (waits and any(self._on_the_host(region) for region in sides)):
            return self._wait(stream.context, [work])
        return OK

    def _on_the_host(self, region: Region | None) -> bool:
        return region is None or (isinstance(region, PlainMemory) and region.bank is self._host)

    def _must_touch(self, context: Context, address: int, size: int, needed: int) -> None:
        """Raise the fault of queued work that may not touch memory any more. The lock is held."""
        if not self._may_touch(context, address, size, needed, True):
            context.fault = self._thread.refused
            raise DriverError("queued copy", int(ILLEGAL_ADDRESS), ILLEGAL_ADDRESS.name, (address, size))

    def _may_touch(self, context: Context, address: int, size: int, needed: int, known: bool) -> bool:
        """Whether the context's device may read (or write) all of [address, address + size)."""
        blocked = self._blocked(context, address, size, needed, known)
        if blocked is None:
            return True
        self._thread.refused = self._touch(blocked, needed != READ, context.ordinal)
        return False

    def _touch(self, address: int, write: bool, device: int) -> object:
        """What a refused touch was; the class that knows the history says it."""
        raise NotImplementedError

    def _blocked(self, context: Context, address: int, size: int, needed: int, known: bool) -> int | None:
        """The first address of [address, address + size) that the context's device may not touch; None if it may."""
        if not address:
            return 0
        region = self._space.find(address)
        if region is None:  # host memory that this driver did not make: the caller vouches for it, except for its end
            if known:
                return address
            met = self._space.overlaps(address, address + size)
            return None if met is None else met.base
        if isinstance(region, PlainMemory):
            return None if address + size <= region.end else region.end
        location = context.bank.location
        at, end = address, address + size
        while at < end:
            mapping = self._space.mapping_at(at)
            if mapping is None or mapping.access.get(location, 0) < needed:
                return at
            at = mapping.end
        return None

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
        place = self._stream_for(stream)
        if not isinstance(place, Stream):
            return (place,)
        if address % width:
            self._thread.refused = f"{address:#x} is no multiple of {width}"
            return INVALID
        if not size:
            return OK
        with self._lock:
            if not self._may_touch(place.context, address, size, READWRITE, True):
                return INVALID
            if self._eager:
                self._backing.fill(address, size, pattern)
                return OK

        def run() -> None:
            with self._lock:
                self._must_touch(place.context, address, size, READWRITE)
                self._backing.fill(address, size, pattern)

        self._queue(place, run)
        return OK
