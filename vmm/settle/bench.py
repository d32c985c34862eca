"""Bench: a driver with a context, the structs that its calls take, and everything given back at the end."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable
from typing import Any

from ..driver import POINTER_ATTRIBUTES, AccessDesc, AllocationProp, Driver, Location, check

DEVICE, HOST, HOST_NUMA = 1, 2, 3
NONE, READ, READWRITE = 0, 1, 3
PINNED, MANAGED = 1, 2
_SPIN_MS = 400
_WAITED = 0.5  # of the time that queued work takes


class Bench:
    """Makes things on ``driver``'s first device, and undoes it all in ``close``, last things first."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.api = driver, driver.api
        self.unit = driver.granularity(0)
        self._undo = contextlib.ExitStack()

    def close(self) -> None:
        """Undo everything; what a probe broke cannot be undone, and is left."""
        self._undo.close()

    def later(self, call: str, *arguments: Any) -> None:
        """Make a call at ``close``, whatever it answers."""
        self._undo.callback(lambda: getattr(self.api, call)(*arguments))

    # -- calls --------------------------------------------------------------------------------------------------

    def status(self, call: str, *arguments: Any) -> str:
        """What a call answers: the name of its status without the prefix, and the number."""
        return self.named(getattr(self.api, call)(*arguments)[0])

    def named(self, status: Any) -> str:
        """A status as it stands in the report."""
        name = getattr(status, "name", "unknown")
        return f"{name.removeprefix('CUDA_').removeprefix('ERROR_')} ({int(status)})"

    def output(self, call: str, *arguments: Any) -> Any:
        """The output of a call that has to succeed."""
        return check(call, getattr(self.api, call)(*arguments))

    def outcome(self, call: str, *arguments: Any) -> str:
        """The outputs of a call where it succeeds, else what it answers."""
        status, *outputs = getattr(self.api, call)(*arguments)
        if status:
            return self.named(status)
        return ", ".join(str(int(value)) if hasattr(value, "__int__") else str(value) for value in outputs)

    # -- structs, also with values that are in no enum ------------------------------------------------------------

    def prop(self, kind: int = DEVICE, ordinal: int = 0, allocation: int = PINNED, handles: int = 0) -> Any:
        """An allocation property."""
        made = AllocationProp()
        (ctypes.c_int * 4).from_address(made.getPtr())[:] = [allocation, handles, kind, ordinal]
        return made

    def grant(self, access: int = READWRITE, kind: int = DEVICE, ordinal: int = 0) -> list[Any]:
        """A list of one access descriptor."""
        made = AccessDesc()
        (ctypes.c_int * 3).from_address(made.getPtr())[:] = [kind, ordinal, access]
        return [made]

    def location(self, kind: int = DEVICE, ordinal: int = 0) -> Any:
        """A memory location."""
        made = Location()
        (ctypes.c_int * 2).from_address(made.getPtr())[:] = [kind, ordinal]
        return made

    def attribute(self, name: str, address: int) -> str:
        """A pointer attribute, or what the question is answered with."""
        return self.outcome("cuPointerGetAttribute", POINTER_ATTRIBUTES[name], address)

    # -- things -------------------------------------------------------------------------------------------------

    def reserve(self, units: int, hint: int = 0) -> int:
        """Addresses for ``units`` granules."""
        base = int(self.output("cuMemAddressReserve", units * self.unit, 0, hint, 0))
        self.later("cuMemAddressFree", base, units * self.unit)
        return base

    def adjacent(self) -> tuple[int, int] | None:
        """Two reservations of two granules, one after the other; None where the driver puts the second elsewhere."""
        size = 2 * self.unit
        first = int(self.output("cuMemAddressReserve", 2 * size, 0, 0, 0))
        self.output("cuMemAddressFree", first, 2 * size)
        first = self.reserve(2, hint=first)
        return (first, first + size) if self.reserve(2, hint=first + size) == first + size else None

    def create(self, units: int = 1, **prop: int) -> int:
        """A handle."""
        handle = int(self.output("cuMemCreate", units * self.unit, self.prop(**prop), 0))
        self.later("cuMemRelease", handle)
        return handle

    def map(self, address: int, handle: int, units: int = 1) -> None:
        """Map a whole allocation."""
        self.output("cuMemMap", address, units * self.unit, 0, handle, 0)
        self.later("cuMemUnmap", address, units * self.unit)

    def mapped(self, units: int = 1, access: int | None = READWRITE, spare: int = 0) -> int:
        """A reservation of ``units + spare`` granules whose first ``units`` are mapped, a handle each."""
        base = self.reserve(units + spare)
        for index in range(units):
            self.map(base + index * self.unit, self.create())
        if access is not None:
            self.output("cuMemSetAccess", base, units * self.unit, self.grant(access), 1)
        return base

    # -- waiting ------------------------------------------------------------------------------------------------

    def waits_for_work(self, call: Callable[[], Any]) -> str:
        """Whether ``call`` returns only after work that is queued in another stream.

        The work is a host function, usleep of the C library: it needs no kernel, and holds no lock of Python's.
        """
        usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
        stream = self.output("cuStreamCreate", 1)
        self.later("cuStreamDestroy", stream)
        self.output("cuLaunchHostFunc", stream, usleep, _SPIN_MS * 1000)
        start = time.perf_counter()
        call()
        took = (time.perf_counter() - start) * 1e3
        self.api.cuStreamSynchronize(stream)
        return "waits" if took > _WAITED * _SPIN_MS else "does not wait"
