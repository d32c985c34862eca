"""Initialisation, devices, contexts and error names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from cuda.bindings import driver as cuda

from . import gate
from .arguments import number
from .execution import Context, Work
from .results import (
    ILLEGAL_ADDRESS,
    INVALID,
    INVALID_1,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    NO_CONTEXT,
    NO_CONTEXT_1,
    OK,
    SUCCESS,
    Result,
)
from .state import HostState

_ATTRIBUTE = cuda.CUdevice_attribute
_NAME = "CU_DEVICE_ATTRIBUTE_"
_KNOWN = {
    "MAX_THREADS_PER_BLOCK": 1024,
    "WARP_SIZE": 32,
    "UNIFIED_ADDRESSING": 1,
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 1,
    "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
    "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
    "MULTIPROCESSOR_COUNT": os.cpu_count() or 1,
    "CAN_MAP_HOST_MEMORY": 1,
    "INTEGRATED": 1,
}
_VALUES = {
    int(getattr(_ATTRIBUTE, _NAME + name)): value
    for name, value in _KNOWN.items()
    if hasattr(_ATTRIBUTE, _NAME + name)  # older bindings do not know all of them
}
_EXISTING = frozenset(int(member) for member in _ATTRIBUTE)


class DeviceCalls(HostState):
    """cuInit to cuDeviceCanAccessPeer; an attribute that the host driver does not have is 0."""

    def cuInit(self, Flags: int) -> Result:
        """Open the driver; flags must be 0."""
        if number(Flags):
            return INVALID
        gate.open_(self)
        return OK

    def cuDriverGetVersion(self) -> Result:
        """The version of the interface that the bindings were made for."""
        return SUCCESS, int(cuda.CUDA_VERSION)

    def cuDeviceGetCount(self) -> Result:
        """How many devices there are."""
        return SUCCESS, len(self._devices)

    def cuDeviceGet(self, ordinal: int) -> Result:
        """The device of that number."""
        if not 0 <= ordinal < len(self._devices):
            return INVALID_DEVICE, None
        return SUCCESS, cuda.CUdevice(ordinal)

    def _ordinal(self, device: Any) -> int:
        """The number of a CUdevice, or -1 where there is none."""
        ordinal = int(device or 0)
        return ordinal if 0 <= ordinal < len(self._devices) else -1

    def cuDeviceGetName(self, length: int, dev: Any) -> Result:
        """The name, padded with NUL to ``length`` bytes."""
        if self._ordinal(dev) < 0:
            return INVALID_DEVICE, None
        if length <= 0:
            return INVALID_1
        return SUCCESS, b"software device"[: length - 1].ljust(length, b"\0")

    def cuDeviceTotalMem(self, dev: Any) -> Result:
        """Physical memory in bytes."""
        ordinal = self._ordinal(dev)
        return (INVALID_DEVICE, None) if ordinal < 0 else (SUCCESS, self._devices[ordinal].total)

    def cuDeviceGetAttribute(self, attrib: Any, dev: Any) -> Result:
        """What the device can do; 0 for every existing attribute that is not listed here."""
        if self._ordinal(dev) < 0:
            return INVALID_DEVICE, None
        found = int(attrib)
        return (SUCCESS, _VALUES.get(found, 0)) if found in _EXISTING else INVALID_1

    def cuDeviceCanAccessPeer(self, dev: Any, peerDev: Any) -> Result:
        """Whether one device reaches another's memory; not its own."""
        if self._ordinal(dev) < 0 or self._ordinal(peerDev) < 0:
            return INVALID_DEVICE, None
        return SUCCESS, int((self._ordinal(dev), self._ordinal(peerDev)) in self._peers)

    def cuGetErrorName(self, error: Any) -> Result:
        """The name of a status; unknown ones are refused."""
        found = int(error)
        return (SUCCESS, cuda.CUresult(found).name.encode()) if found in _RESULTS else INVALID_1

    def cuGetErrorString(self, error: Any) -> Result:
        """A sentence for a status: its name in words."""
        found = int(error)
        if found not in _RESULTS:
            return INVALID_1
        words = cuda.CUresult(found).name.removeprefix("CUDA_ERROR_").removeprefix("CUDA_")
        return SUCCESS, words.replace("_", " ").lower().encode()


_RESULTS = frozenset(int(member) for member in cuda.CUresult)


class ContextCalls(DeviceCalls):
    """Primary contexts, counted, and the current context of each thread."""

    def cuDevicePrimaryCtxRetain(self, dev: Any) -> Result:
        """One more user of the device's primary context."""
        ordinal = self._ordinal(dev)
        if ordinal < 0:
            return INVALID_DEVICE, None
        with self._lock:
            self._contexts[ordinal].count += 1
        return SUCCESS, cuda.CUcontext(self._contexts[ordinal].handle)

    def cuDevicePrimaryCtxRelease(self, dev: Any) -> Result:
        """One user less; below zero is refused. After the last one it is as new: its work has run, a fault is gone."""
        ordinal = self._ordinal(dev)
        if ordinal < 0:
            return (INVALID_DEVICE,)
        context = self._contexts[ordinal]
        if context.count == 1:
            self._finish(context.pending())
        with self._lock:
            if not context.count:
                return NO_CONTEXT
            context.count -= 1
            if not context.count:
                context.renew()
        return OK

    def _finish(self, works: Iterable[Work]) -> None:
        """Run queued work; the class that has queues does it."""
        raise NotImplementedError

    def _context_of(self, handle: Any) -> Context | None:
        value = number(handle)
        return next((c for c in self._contexts if c.handle == value and c.count), None)

    def _current(self) -> Context | None:
        """The calling thread's context, if it has one that is still retained."""
        stack = self._thread.stack
        return stack[-1] if stack and stack[-1].count else None

    def _usable(self) -> Context | Any:
        """The calling thread's context, or the status that refuses it: there is none, or a fault has ended it."""
        current = self._current()
        if current is None:
            return INVALID_CONTEXT
        return current if current.fault is None else ILLEGAL_ADDRESS

    def cuCtxGetCurrent(self) -> Result:
        """The current context, 0 where there is none."""
        stack = self._thread.stack
        return SUCCESS, cuda.CUcontext(stack[-1].handle if stack else 0)

    def cuCtxSetCurrent(self, ctx: Any) -> Result:
        """Replace the top of the stack; 0 takes it off."""
        stack = self._thread.stack
        found = self._context_of(ctx)
        if found is None and number(ctx):
            return NO_CONTEXT
        if stack:
            stack.pop()
        if found is not None:
            stack.append(found)
        return OK

    def cuCtxPushCurrent(self, ctx: Any) -> Result:
        """Put a context on top."""
        found = self._context_of(ctx)
        if found is None:
            return NO_CONTEXT
        self._thread.stack.append(found)
        return OK

    def cuCtxPopCurrent(self) -> Result:
        """Take the top off; an empty stack is refused."""
        stack = self._thread.stack
        return (SUCCESS, cuda.CUcontext(stack.pop().handle)) if stack else NO_CONTEXT_1

    def cuCtxGetDevice(self) -> Result:
        """The device of the current context."""
        current = self._current()
        return NO_CONTEXT_1 if current is None else (SUCCESS, cuda.CUdevice(current.ordinal))

    def cuMemGetInfo(self) -> Result:
        """(free, total) bytes of the current context's device."""
        current = self._usable()
        if not isinstance(current, Context):
            return current, None, None
        if current.bank.files:
            with self._lock:
                current.bank.reap()
        return SUCCESS, current.bank.free, current.bank.total
