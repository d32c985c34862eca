"""Plain device memory (cuMemAlloc) and pinned host memory, in the same address space as the reservations."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from .. import sizes
from .address_space import PlainMemory
from .arguments import number
from .execution import Context
from .mapping_calls import MappingCalls
from .physical import Bank
from .properties import READWRITE
from .results import EXHAUSTED_1, INVALID, INVALID_1, NO_CONTEXT, OK, SUCCESS, Result
from .state import HOST_PAGE

_HOST_FLAGS = 0x7  # portable, device map, write combined


class PlainCalls(MappingCalls):
    """Memory that has an address from the start. It cannot be retained as a handle or unmapped."""

    def cuMemAlloc(self, bytesize: int) -> Result:
        """Allocate device memory in the current context; counted in whole pages of the host."""
        size = number(bytesize)
        current = self._usable()
        if not isinstance(current, Context):
            return current, None
        if not size:
            return INVALID_1
        base = self._plain(size, current.bank)
        return (SUCCESS, cuda.CUdeviceptr(base)) if base else EXHAUSTED_1

    def cuMemFree(self, dptr: Any) -> Result:
        """Free what cuMemAlloc gave; 0 is free already, everything else is refused."""
        return self._plain_free(number(dptr), pinned=False)

    def cuMemHostAlloc(self, bytesize: int, Flags: int) -> Result:
        """Allocate pinned host memory; its one address is valid for the CPU and for every device."""
        size, flags = number(bytesize), number(Flags)
        current = self._usable()
        if not isinstance(current, Context):
            return current, None
        if not size or flags & ~_HOST_FLAGS:
            return INVALID_1
        base = self._plain(size, self._host)
        return (SUCCESS, base) if base else EXHAUSTED_1

    def cuMemAllocHost(self, bytesize: int) -> Result:
        """The same without flags."""
        return self.cuMemHostAlloc(bytesize, 0)

    def cuMemFreeHost(self, p: Any) -> Result:
        """Free what cuMemHostAlloc gave."""
        return self._plain_free(number(p), pinned=True)

    def _drain(self) -> None:
        """Run the work of the current context; the class that has queues does it."""
        raise NotImplementedError

    def _plain(self, size: int, bank: Bank) -> int:
        """Reserve, take, map and allow; 0 where a step is impossible, with the steps before it undone."""
        current = self._current()
        taken = sizes.round_up(size, HOST_PAGE)
        with self._lock:
            base = self._backing.reserve(taken, self.granularity, 0)
            offset = bank.take(taken) if base else None
            if offset is None or not bank.store.map(base, taken, offset) or not self._allow(base, taken):
                if offset is not None:
                    bank.give(offset, taken)
                if base:
                    self._backing.unreserve(base, taken)
                return 0
            handle = current.handle if current else 0
            self._space.add(PlainMemory(base, size, taken, bank, offset, next(self._identities), handle))
        if self.poison is not None:
            bank.store.fill(offset, taken, self.poison)
        return base

    def _allow(self, base: int, size: int) -> bool:
        return self._backing.protect(base, size, READWRITE)

    def _plain_free(self, base: int, *, pinned: bool) -> Result:
        if self._current() is None:
            return NO_CONTEXT
        if not base and not pinned:
            return OK
        self._drain()
        with self._lock:
            region = self._space.exact(base)
            if not isinstance(region, PlainMemory) or (region.bank is self._host) != pinned:
                return INVALID
            self._backing.unreserve(base, region.taken)
            region.bank.give(region.offset, region.taken)
            self._space.remove(region)
            self._note(("cuMemFreeHost" if pinned else "cuMemFree", base, region.size))
        return OK
