"""Pointer queries: whose memory is an address, for reservations, plain memory and pinned host memory alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from .address_space import Mapping, PlainMemory, Region
from .arguments import number
from .copy_calls import CopyCalls
from .physical import Bank
from .properties import READWRITE, Location
from .results import INVALID_1, INVALID_2, NOT_FOUND, SUCCESS, Result

_ATTRIBUTE = cuda.CUpointer_attribute
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2  # CU_MEMORYTYPE


class _Place:
    """What is known about one address."""

    __slots__ = ("address", "asking", "host", "mapping", "region")

    def __init__(self, address: int, region: Region, mapping: Mapping | None, host: Bank, asking: Location) -> None:
        self.address, self.region, self.mapping = address, region, mapping
        self.host, self.asking = host, asking

    @property
    def plain(self) -> PlainMemory | None:
        return self.region if isinstance(self.region, PlainMemory) else None

    @property
    def bank(self) -> Any:
        if self.mapping is not None:
            return self.mapping.allocation.bank
        return self.plain.bank if self.plain else None

    @property
    def span(self) -> tuple[int, int]:
        """(base, size) of the mapping or plain memory; (0, 0) where nothing is mapped."""
        if self.mapping is not None:
            return self.mapping.base, self.mapping.size
        return (self.region.base, self.region.size) if self.plain else (0, 0)

    @property
    def device(self) -> int:
        """The device of the memory; pinned host memory belongs to the first, a reservation to none."""
        if self.bank is None:
            return -2
        return 0 if self.bank is self.host else int(self.bank.location[1])

    @property
    def access(self) -> int:
        """What the device that asks may do."""
        if self.mapping is None:
            return READWRITE if self.plain else 0
        return self.mapping.access.get(self.asking, 0)


def _context(place: _Place) -> int:
    return place.plain.context if place.plain else 0


def _memory_type(place: _Place) -> int:
    if place.bank is None:
        return 0
    return _HOST_MEMORY if place.bank is place.host else _DEVICE_MEMORY


def _buffer_id(place: _Place) -> int:
    if place.mapping is not None:
        return place.mapping.allocation.handle
    return place.plain.id if place.plain else 0


_VALUES: dict[str, Callable[[_Place], Any]] = {
    "CONTEXT": lambda place: cuda.CUcontext(_context(place)),
    "MEMORY_TYPE": _memory_type,
    "DEVICE_POINTER": lambda place: cuda.CUdeviceptr(place.address),
    "HOST_POINTER": lambda place: place.address if place.bank is place.host else None,
    "SYNC_MEMOPS": lambda _place: False,
    "BUFFER_ID": _buffer_id,
    "IS_MANAGED": lambda _place: False,
    "DEVICE_ORDINAL": lambda place: place.device,
    "IS_LEGACY_CUDA_IPC_CAPABLE": lambda _place: False,
    "RANGE_START_ADDR": lambda place: cuda.CUdeviceptr(place.region.base),
    "RANGE_SIZE": lambda place: place.region.size,
    "MAPPED": lambda place: place.bank is not None,
    "ALLOWED_HANDLE_TYPES": lambda place: place.mapping.allocation.prop.handle_types if place.mapping else 0,
    "IS_GPU_DIRECT_RDMA_CAPABLE": lambda _place: 0,
    "ACCESS_FLAGS": lambda place: place.access,
    "MEMPOOL_HANDLE": lambda _place: cuda.CUmemoryPool(0),
    "MAPPING_SIZE": lambda place: place.span[1],
    "MAPPING_BASE_ADDR": lambda place: cuda.CUdeviceptr(place.span[0]),
    "MEMORY_BLOCK_ID": _buffer_id,
}
_NAMES = {
    int(getattr(_ATTRIBUTE, f"CU_POINTER_ATTRIBUTE_{name}")): name
    for name in _VALUES
    if hasattr(_ATTRIBUTE, f"CU_POINTER_ATTRIBUTE_{name}")
}
_NULL = {"CONTEXT": cuda.CUcontext, "DEVICE_POINTER": cuda.CUdeviceptr, "RANGE_START_ADDR": cuda.CUdeviceptr,
         "MAPPING_BASE_ADDR": cuda.CUdeviceptr, "MEMPOOL_HANDLE": cuda.CUmemoryPool,
         "MAPPED": bool, "IS_MANAGED": bool, "SYNC_MEMOPS": bool,
         "IS_LEGACY_CUDA_IPC_CAPABLE": bool, "DEVICE_ORDINAL": lambda: -2}  # fmt: skip


class PointerCalls(CopyCalls):
    """Answers about addresses. The plural form knows no error: an address that is nobody's has null values."""

    def _place(self, address: int) -> _Place | None:
        region = self._space.find(address)
        if region is None:
            return None
        current = self._current() or self._contexts[0]
        return _Place(address, region, self._space.mapping_at(address), self._host, current.bank.location)

    def cuPointerGetAttribute(self, attribute: Any, ptr: Any) -> Result:
        """One attribute; an address that is nobody's is refused, and so is what the driver does not keep."""
        name = _NAMES.get(int(attribute))
        place = self._place(number(ptr))
        if name is None or place is None:
            return INVALID_1
        return SUCCESS, _VALUES[name](place)

    def cuPointerGetAttributes(self, numAttributes: int, attributes: Any, ptr: Any) -> Result:
        """Several attributes of one address."""
        count = number(numAttributes)
        if count > len(attributes):
            raise RuntimeError(f"List is too small: {len(attributes)} < {count}")
        names = [_NAMES.get(int(attribute)) for attribute in attributes[:count]]
        if not names or None in names:
            return INVALID_1
        place = self._place(number(ptr))
        return SUCCESS, [_VALUES[str(name)](place) if place else _NULL.get(str(name), int)() for name in names]

    def cuMemGetAddressRange(self, dptr: Any) -> Result:
        """(base, size) of the single mapping, or of the plain memory, that contains the address."""
        place = self._place(number(dptr))
        if place is None:
            return NOT_FOUND, None, None
        base, size = place.span
        return (SUCCESS, cuda.CUdeviceptr(base), size) if size else INVALID_2
