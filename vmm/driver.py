"""The only file that speaks to the C API: check every status, and make each call thin.

``Driver`` has one short method a call, with ints in and ints out. It works over any object with the functions of
``cuda.bindings.driver``: that module itself, the software ``HostDriver``, or either of them wrapped by a recorder.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from cuda.bindings import driver as cuda

from .bindings import Bindings
from .errors import OUT_OF_MEMORY, DriverError, DriverMissingError, OutOfMemoryError, ReleaseError, VmmError
from .shortage.refused_call import refused_call

VMM_SUPPORTED = int(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
"""The attribute that says whether a device has the virtual memory calls."""
_NO_TIMING = int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
NO_DEVICE = int(cuda.CUresult.CUDA_ERROR_NO_DEVICE)
"""The status of a machine with a driver and without a GPU."""
AccessDesc, AllocationProp, Location = cuda.CUmemAccessDesc, cuda.CUmemAllocationProp, cuda.CUmemLocation
"""The structs of the calls, for those who fill them with values that no enum has."""
StreamHandle, EventHandle = cuda.CUstream, cuda.CUevent
"""What the bindings wrap the handles of streams and events in."""
POINTER_ATTRIBUTES = {member.name.removeprefix("CU_POINTER_ATTRIBUTE_"): member for member in cuda.CUpointer_attribute}
"""The pointer attributes by the end of their names."""
ILLEGAL_ADDRESS = int(cuda.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
"""The status of work that touched memory without the right to; the context is lost then."""
_DEINITIALIZED = int(cuda.CUresult.CUDA_ERROR_DEINITIALIZED)
_NOT_INITIALIZED = int(cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED)
_INVALID_VALUE = int(cuda.CUresult.CUDA_ERROR_INVALID_VALUE)
_KEPT_UNMAPS = 8
POSIX_FILE_DESCRIPTOR = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
"""The handle type of memory that is shared as a file descriptor."""
_NOT_READY = int(cuda.CUresult.CUDA_ERROR_NOT_READY)


class Access(enum.IntEnum):
    """What a device may do with a mapping, by the driver's own numbers."""

    NONE = 0
    READ = 1
    READWRITE = 3

    @classmethod
    def of(cls, value: Access | str) -> Access:
        """Return the access that "none", "r" or "rw" names. Raises ValueError for anything else."""
        if isinstance(value, Access):
            return value
        try:
            return {"none": cls.NONE, "r": cls.READ, "rw": cls.READWRITE}[value]
        except (KeyError, TypeError):
            raise ValueError(f"access must be 'none', 'r' or 'rw', not {value!r}") from None


def check(call: str, result: tuple[Any, ...], *call_args: object) -> Any:
    """Return what a driver call gave besides its status, or raise the error that its status means.

    Every status of every call passes here. Raises OutOfMemoryError for CUDA_ERROR_OUT_OF_MEMORY, else DriverError.
    """
    status = result[0]
    if status:
        raise error_of(call, int(status), call_args)
    if len(result) == 2:
        return result[1]
    return result[1:] if len(result) > 2 else None


def error_of(call: str, code: int, call_args: tuple[object, ...] = (), hint: str = "") -> VmmError:
    """The error that a status of ``call`` stands for, with the driver's own name for it."""
    name = _name_of(code)
    if code == _NOT_INITIALIZED and not hint:
        hint = "a process that was forked cannot use the driver of its parent; start it with spawn or exec"
    error = DriverError(call, code, name, call_args, hint)
    if code == OUT_OF_MEMORY:
        text = f"{error}; free memory, lower the size, or raise the limit"
        return OutOfMemoryError(text, refused_call(call, call_args))
    return error


def _name_of(code: int) -> str:
    """The driver's own name for a status."""
    return cuda.CUresult(code).name if code in set(cuda.CUresult) else "unknown error"


class NamedRange(Protocol):
    """A range of addresses in chunks, by which an error names an address."""

    name: str
    base: int
    reserved: int
    chunk_size: int


class Driver:
    """Thin calls over ``api``; all of them raise DriverError or OutOfMemoryError when the driver refuses.

    ``name`` is "cuda" or "host"; ``backing`` says where bytes live: "device", "memory" or "none".
    Addresses, handles, contexts and streams are ints; ``device`` is an ordinal.
    """

    def __init__(self, api: Any, name: str) -> None:
        self.api = Bindings(api) if api is cuda else api
        self.name = name
        self.backing: str = getattr(api, "backing", "device")
        self._process = os.getpid()
        self.ranges: weakref.WeakSet[NamedRange] = weakref.WeakSet()
        self._unmaps: deque[tuple[int, int]] = deque(maxlen=_KEPT_UNMAPS)
        self._properties: dict[tuple[int, bool], Any] = {}
        self._grants: dict[tuple[tuple[int, Access], ...], list[Any]] = {}
        check("cuInit", self.api.cuInit(0), 0)

    def __repr__(self) -> str:
        return f"Driver({self.name}, backing {self.backing})"

    def is_same(self, other: Driver) -> bool:
        """Whether both reach the same driver, wrapped or not: handles and addresses of one are the other's too."""
        return _innermost(self.api) is _innermost(other.api)

    # -- forks --------------------------------------------------------------------------------------------------

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that opened the driver: it can use nothing, and owns nothing."""
        return os.getpid() != self._process

    def _given_back(self, call: str, result: tuple[Any, ...], *call_args: object) -> None:
        """As ``check``, with ReleaseError; in a forked child there is nothing to give back: all is the parent's."""
        if result[0] and not self._is_the_parents(result):
            code = int(result[0])
            raise ReleaseError(call, code, _name_of(code), call_args)

    def _is_the_parents(self, result: tuple[Any, ...]) -> bool:
        """Whether a call was refused because this process is a fork of the one that owns what it names."""
        return int(result[0]) == _NOT_INITIALIZED and self.forked

    # -- faults -------------------------------------------------------------------------------------------------

    def _check(self, call: str, result: tuple[Any, ...], *call_args: object) -> Any:
        """As ``check``, for calls that touch memory or wait for work that does: the error says what is known."""
        status = int(result[0])
        touched = status == _INVALID_VALUE and call.startswith(("cuMemcpy", "cuMemset"))
        if touched or status == ILLEGAL_ADDRESS:
            raise error_of(call, status, call_args, self.known_about(status))
        return check(call, result, *call_args)

    def known_about(self, status: int) -> str:
        """What is known about memory that was touched without the right to, after a call that answered ``status``.

        The host driver knows all of it; a GPU does not even give the address, and the latest unmaps are the suspects.
        """
        ask = getattr(self.api, "diagnosis", None)
        if ask is not None:
            touch = ask(status)
            name = self.name_of(getattr(touch, "address", 0))
            return f"{name}: {touch}" if name else str(touch)
        if status != ILLEGAL_ADDRESS:
            return ""
        recent = ", ".join(f"{address:#x} + {size:#x}" for address, size in reversed(self._unmaps))
        return f"a kernel or copy touched memory that is not there; the latest unmaps, last first: {recent or 'none'}"

    def name_of(self, address: int) -> str:
        """The range of ``ranges`` and the chunk in it that ``address`` lies in; empty where it lies in none."""
        for found in list(self.ranges):
            if found.base <= address < found.base + found.reserved:
                return f"range {found.name!r}, chunk {(address - found.base) // found.chunk_size}"
        return ""

    # -- devices ------------------------------------------------------------------------------------------------

    def version(self) -> int:
        """The driver's version as it writes it: 13040 is 13.4."""
        return int(check("cuDriverGetVersion", self.api.cuDriverGetVersion()))

    def device_count(self) -> int:
        """How many devices there are."""
        return int(check("cuDeviceGetCount", self.api.cuDeviceGetCount()))

    def device_name(self, device: int) -> str:
        """The device's product name."""
        raw = check("cuDeviceGetName", self.api.cuDeviceGetName(256, self._device(device)), 256, device)
        return bytes(raw).split(b"\0")[0].decode()

    def device_total(self, device: int) -> int:
        """Physical memory of the device in bytes."""
        return int(check("cuDeviceTotalMem", self.api.cuDeviceTotalMem(self._device(device)), device))

    def pci_bus_id(self, device: int) -> str:
        """Where the GPU is plugged in, "0000:3b:00.0": its name in other libraries too. Empty for a software device."""
        ask = getattr(self.api, "cuDeviceGetPCIBusId", None)
        if ask is None:
            return ""
        raw = check("cuDeviceGetPCIBusId", ask(32, self._device(device)), 32, device)
        return bytes(raw).split(b"\0")[0].decode()

    def device_attribute(self, device: int, attribute: int) -> int:
        """The value of a CU_DEVICE_ATTRIBUTE number."""
        result = self.api.cuDeviceGetAttribute(cuda.CUdevice_attribute(attribute), self._device(device))
        return int(check("cuDeviceGetAttribute", result, attribute, device))

    def check_supported(self, device: int) -> None:
        """Raise DriverMissingError where ``device`` lacks the virtual memory calls."""
        if not self.device_attribute(device, VMM_SUPPORTED):
            raise DriverMissingError(
                f"device {device} {self.device_name(device)} does not support virtual memory management "
                f"(attribute {VMM_SUPPORTED} is 0); use driver='host'"
            )

    def can_access_peer(self, device: int, peer: int) -> bool:
        """Whether ``device`` can read and write memory of ``peer``."""
        result = self.api.cuDeviceCanAccessPeer(self._device(device), self._device(peer))
        return bool(check("cuDeviceCanAccessPeer", result, device, peer))

    def _device(self, device: int) -> Any:
        return check("cuDeviceGet", self.api.cuDeviceGet(device), device)

    # -- contexts -----------------------------------------------------------------------------------------------

    def context_retain(self, device: int) -> int:
        """Count one more user of the device's primary context and return it."""
        result = self.api.cuDevicePrimaryCtxRetain(self._device(device))
        return int(check("cuDevicePrimaryCtxRetain", result, device))

    def context_release(self, device: int) -> None:
        """Count one user of the primary context less; a driver that has shut down has dropped it by itself."""
        status, found = self.api.cuDeviceGet(device)
        if int(status) == _DEINITIALIZED:
            return
        check("cuDeviceGet", (status, found), device)
        result = self.api.cuDevicePrimaryCtxRelease(found)
        if int(result[0]) not in (_DEINITIALIZED, ILLEGAL_ADDRESS):  # a lost context has nothing more to give
            self._given_back("cuDevicePrimaryCtxRelease", result, device)

    @contextlib.contextmanager
    def context(self, handle: int) -> Iterator[None]:
        """Make a context current inside a ``with``; the caller's own is current again afterwards."""
        check("cuCtxPushCurrent", self.api.cuCtxPushCurrent(cuda.CUcontext(handle)), handle)
        try:
            yield
        finally:
            check("cuCtxPopCurrent", self.api.cuCtxPopCurrent())

    def synchronize(self) -> None:
        """Wait for all work of the current context."""
        self._check("cuCtxSynchronize", self.api.cuCtxSynchronize())

    # -- addresses and physical memory --------------------------------------------------------------------------

    def granularity(self, device: int, *, recommended: bool = False) -> int:
        """The smallest (or the recommended) size of an allocation on ``device`` in bytes."""
        which = cuda.CUmemAllocationGranularity_flags(1 if recommended else 0)
        result = self.api.cuMemGetAllocationGranularity(self._property(device, False), which)
        return int(check("cuMemGetAllocationGranularity", result, device, which.name))

    def reserve(self, size: int, alignment: int = 0, hint: int = 0) -> int:
        """Reserve ``size`` bytes of addresses and return the first; nothing is mapped there yet."""
        result = self.api.cuMemAddressReserve(size, alignment, cuda.CUdeviceptr(hint), 0)
        return int(check("cuMemAddressReserve", result, size, alignment, hint))

    def free(self, address: int, size: int) -> None:
        """Give back a reservation: the exact pair that ``reserve`` made."""
        self._given_back("cuMemAddressFree", self.api.cuMemAddressFree(address, size), address, size)

    def create(self, device: int, size: int, *, exportable: bool = False) -> int:
        """Allocate physical memory on ``device`` and return its handle; it has no address yet."""
        result = self.api.cuMemCreate(size, self._property(device, exportable), 0)
        return int(check("cuMemCreate", result, size, device))

    def release(self, handle: int) -> None:
        """Drop one reference to an allocation; it lives on while it is mapped."""
        self._given_back("cuMemRelease", self.api.cuMemRelease(handle), handle)

    def map(self, address: int, size: int, handle: int) -> None:
        """Map a whole allocation at ``address``; nothing may touch it until access is set."""
        check("cuMemMap", self.api.cuMemMap(address, size, 0, handle, 0), address, size, handle)

    def retain(self, address: int) -> int:
        """The handle that is mapped at ``address``, with one more reference."""
        return int(check("cuMemRetainAllocationHandle", self.api.cuMemRetainAllocationHandle(address), address))

    def export_descriptor(self, handle: int) -> int:
        """A file descriptor of an exportable allocation; the caller closes it. It keeps the memory alive."""
        result = self.api.cuMemExportToShareableHandle(handle, POSIX_FILE_DESCRIPTOR, 0)
        return int(check("cuMemExportToShareableHandle", result, handle, POSIX_FILE_DESCRIPTOR.name))

    def import_descriptor(self, descriptor: int) -> int:
        """A handle for the memory that a descriptor was exported from; the descriptor stays the caller's."""
        result = self.api.cuMemImportFromShareableHandle(descriptor, POSIX_FILE_DESCRIPTOR)
        return int(check("cuMemImportFromShareableHandle", result, descriptor, POSIX_FILE_DESCRIPTOR.name))

    def legacy_ipc_handle(self, address: int) -> bytes:
        """The legacy interprocess handle of plain device memory; memory of the virtual memory calls has none."""
        result = self.api.cuIpcGetMemHandle(address)
        if result[0]:
            hint = "mapped memory has no legacy handle: create it exportable, and share it by export_descriptor"
            raise error_of("cuIpcGetMemHandle", int(result[0]), (address,), hint)
        return ctypes.string_at(result[1].getPtr(), 64)  # the bindings give its 64 bytes no name

    def unmap(self, address: int, size: int) -> None:
        """Unmap one or several whole, adjacent mappings. Does not wait for work that uses them."""
        result = self.api.cuMemUnmap(address, size)
        if result[0] and not self._is_the_parents(result):
            raise error_of("cuMemUnmap", int(result[0]), (address, size))
        self._unmaps.append((address, size))

    def set_access(self, address: int, size: int, grants: Sequence[tuple[int, Access]]) -> None:
        """Set what each (device, access) pair may do with whole, adjacent mappings."""
        key = tuple(grants)
        descriptors = self._grants.get(key)
        if descriptors is None:
            descriptors = self._grants.setdefault(key, [_grant(device, access) for device, access in key])
        result = self.api.cuMemSetAccess(address, size, descriptors, len(descriptors))
        if result[0]:
            raise error_of("cuMemSetAccess", int(result[0]), (address, size, key))

    def get_access(self, device: int, address: int) -> Access:
        """What ``device`` may do at ``address``."""
        location = cuda.CUmemLocation()
        location.type, location.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, device
        return Access(int(check("cuMemGetAccess", self.api.cuMemGetAccess(location, address), device, address)))

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the current context's device."""
        free, total = self._check("cuMemGetInfo", self.api.cuMemGetInfo())
        return int(free), int(total)

    def _property(self, device: int, exportable: bool) -> Any:
        found = self._properties.get((device, exportable))
        if found is None:
            found = self._properties.setdefault((device, exportable), _property(device, exportable))
        return found

    # -- plain memory, and whose memory an address is -----------------------------------------------------------

    def alloc(self, size: int) -> int:
        """Allocate plain device memory (cuMemAlloc) in the current context."""
        return int(self._check("cuMemAlloc", self.api.cuMemAlloc(size), size))

    def alloc_free(self, address: int) -> None:
        """Free plain device memory."""
        self._given_back("cuMemFree", self.api.cuMemFree(address), address)

    def host_alloc(self, size: int) -> int:
        """Allocate pinned host memory in the current context; the address is valid on both sides."""
        return int(self._check("cuMemHostAlloc", self.api.cuMemHostAlloc(size, 0), size))

    def host_free(self, address: int) -> None:
        """Free pinned host memory."""
        self._given_back("cuMemFreeHost", self.api.cuMemFreeHost(address), address)

    def pointer_attributes(self, address: int, names: Sequence[str]) -> list[Any]:
        """The CU_POINTER_ATTRIBUTE values that ``names`` end in, for any address; None or 0 where there is none."""
        attributes = [getattr(cuda.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}") for name in names]
        result = self.api.cuPointerGetAttributes(len(attributes), attributes, address)
        return list(check("cuPointerGetAttributes", result, address, *names))

    # -- moving bytes, streams ----------------------------------------------------------------------------------

    def copy_async(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """Copy between device addresses in the order of ``stream``."""
        result = self.api.cuMemcpyDtoDAsync(target, source, size, stream)
        self._check("cuMemcpyDtoDAsync", result, target, source, size, stream)

    def copy_in(self, target: int, source: Any, size: int) -> None:
        """Copy ``size`` bytes from a host buffer or address to the device, and wait."""
        self._check("cuMemcpyHtoD", self.api.cuMemcpyHtoD(target, source, size), target, "host", size)

    def copy_out(self, target: Any, source: int, size: int) -> None:
        """Copy ``size`` bytes from the device to a host buffer or address, and wait."""
        self._check("cuMemcpyDtoH", self.api.cuMemcpyDtoH(target, source, size), "host", source, size)

    def copy_in_async(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """Copy from pinned host memory at ``source`` to the device in the order of ``stream``."""
        self._check("cuMemcpyHtoDAsync", self.api.cuMemcpyHtoDAsync(target, source, size, stream), target, source, size)

    def copy_out_async(self, target: int, source: int, size: int, stream: int = 0) -> None:
        """Copy from the device to pinned host memory at ``target`` in the order of ``stream``."""
        self._check("cuMemcpyDtoHAsync", self.api.cuMemcpyDtoHAsync(target, source, size, stream), target, source, size)

    def fill_async(self, address: int, byte: int, size: int, stream: int = 0) -> None:
        """Set ``size`` bytes to ``byte`` in the order of ``stream``."""
        result = self.api.cuMemsetD8Async(address, byte, size, stream)
        self._check("cuMemsetD8Async", result, address, byte, size, stream)

    def event_record(self, stream: int) -> int:
        """Create an event that completes when the work now in ``stream`` has; the caller destroys it."""
        event = self.event_create()
        return self.event_record_again(event, stream)

    def event_record_again(self, event: int, stream: int) -> int:
        """Let an event complete when the work now in ``stream`` has, and return it; destroyed where that is refused."""
        status = int(self.api.cuEventRecord(event, stream)[0])
        return self._recorded(event, "cuEventRecord", status, (event, stream))

    def event_record_all(self, context: int) -> int:
        """Create an event that completes when the work now in all streams of ``context``, which is current, has.

        Raises DriverMissingError where the driver is older than the call (CUDA 12.5). While a stream of the context
        captures a graph the call is refused, and the capture is lost.
        """
        event = self.event_create()
        try:
            status = int(self.api.cuCtxRecordEvent(cuda.CUcontext(context), event)[0])
        except DriverMissingError:
            self.event_destroy(event)
            raise
        return self._recorded(event, "cuCtxRecordEvent", status, (context, event))

    def event_create(self) -> int:
        """Create an event, which is complete until it is recorded; the caller destroys it."""
        return int(check("cuEventCreate", self.api.cuEventCreate(_NO_TIMING), _NO_TIMING))

    def _recorded(self, event: int, call: str, status: int, call_args: tuple[int, int]) -> int:
        if status:
            self.event_destroy(event)
            raise error_of(call, status, call_args, self.known_about(status))
        return event

    def event_done(self, event: int) -> bool:
        """Whether the work before an event has completed."""
        status = int(self.api.cuEventQuery(event)[0])
        if status not in (0, _NOT_READY):
            raise error_of("cuEventQuery", status, (event,), self.known_about(status))
        return status == 0

    def event_synchronize(self, event: int) -> None:
        """Wait for the work before an event."""
        self._check("cuEventSynchronize", self.api.cuEventSynchronize(event), event)

    def event_destroy(self, event: int) -> None:
        """Destroy an event."""
        self._given_back("cuEventDestroy", self.api.cuEventDestroy(event), event)

    def stream_wait(self, stream: int, other: int) -> None:
        """Let what is queued on ``stream`` from now on wait for the work that is in ``other`` now."""
        event = self.event_record(other)
        try:
            self._check("cuStreamWaitEvent", self.api.cuStreamWaitEvent(stream, event, 0), stream, event)
        finally:
            self.event_destroy(event)  # the driver keeps what somebody waits for

    def stream_synchronize(self, stream: int) -> None:
        """Wait for the work of a stream; 0 is the default stream of the current context."""
        self._check("cuStreamSynchronize", self.api.cuStreamSynchronize(stream), stream)


def _innermost(api: Any) -> Any:
    """The driver inside what records, counts or fails its calls."""
    while (inner := getattr(api, "_api", None)) is not None:
        api = inner
    return api if not isinstance(api, Bindings) else cuda


def _property(device: int, exportable: bool) -> Any:
    """Pinned memory on ``device``, exportable as a file descriptor or not."""
    found = cuda.CUmemAllocationProp()
    found.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    found.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    found.location.id = device
    if exportable:
        found.requestedHandleTypes = POSIX_FILE_DESCRIPTOR
    return found


def _grant(device: int, access: Access) -> Any:
    found = cuda.CUmemAccessDesc()
    found.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    found.location.id = device
    found.flags = cuda.CUmemAccess_flags(int(access))
    return found


def real_driver() -> Driver:
    """The GPU's driver. What the bindings raise without one, RuntimeError or DriverError, is for the caller to read."""
    return Driver(cuda, "cuda")
