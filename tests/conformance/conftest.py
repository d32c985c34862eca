"""One suite for every driver: the rules of the driver's calls, in a laboratory that cleans up after each test."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver as cuda

from vmm.host import HostDriver

DEVICE, HOST, HOST_NUMA = 1, 2, 3
NONE, READ, READWRITE = 0, 1, 3


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(text): the row of the rules that a case checks")
    drivers(config)  # one that was asked for and is not there is an error here, once
    config.addinivalue_line("markers", "host_only(reason): the real driver may crash or cannot be brought there")


_HOST_KINDS = {
    "lab": ["host", "rules", "deferred"],
    "bytes_lab": ["host", "deferred"],
    "pair_lab": ["host", "rules", "deferred"],
    "late_lab": ["deferred", "deferred-rules"],
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "host": {"backing": "memory"},
    "rules": {"backing": "none"},
    "deferred": {"backing": "memory", "streams": "deferred"},
    "deferred-rules": {"backing": "none", "streams": "deferred"},
}


def drivers(config: pytest.Config) -> list[str]:
    """The drivers that were asked for, else every one that is there."""
    asked = config.getoption("--driver", default=None)
    if asked:
        if "cuda" in asked and not _cuda_is_there():
            raise pytest.UsageError("--driver cuda: there is no GPU that the bindings can use")
        return [asked] if isinstance(asked, str) else list(asked)
    return ["host", "cuda"] if _cuda_is_there() else ["host"]


def _cuda_is_there() -> bool:
    try:
        return int(cuda.cuInit(0)[0]) == 0 and cuda.cuDeviceGetCount()[1] > 0
    except RuntimeError:  # the bindings find no driver library
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``lab`` takes every driver, ``bytes_lab`` those that keep bytes, ``pair_lab`` those with two devices.

    The host driver is there in several kinds: with bytes, with rules only, and with streams that run late.
    """
    found = drivers(metafunc.config)
    for fixture, kinds in _HOST_KINDS.items():
        if fixture in metafunc.fixturenames:
            labs = [kind for driver in found for kind in (kinds if driver == "host" else [driver])]
            metafunc.parametrize(fixture, labs, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the real driver an unknown answer is something to learn, and a dangerous question is not asked."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})  # of other folders' tests too: any values
        if not any(params.get(fixture) == "cuda" for fixture in _HOST_KINDS):
            continue
        unsafe = item.get_closest_marker("host_only")
        if unsafe:
            item.add_marker(pytest.mark.skip(reason=unsafe.args[0]))
        if item.get_closest_marker("unknown"):
            item.add_marker(pytest.mark.xfail(strict=False, reason="the real driver's answer is not known"))


class Lab:
    """A driver, and everything that a test made with it."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.backing = getattr(api, "backing", "device")
        self.ok(api.cuInit(0))
        self.context = self.ok(api.cuDevicePrimaryCtxRetain(0))
        self.ok(api.cuCtxPushCurrent(self.context))
        self.prop = self.property_of()
        self.unit: int = self.ok(api.cuMemGetAllocationGranularity(self.prop, 0))
        self.reservations: dict[int, int] = {}
        self.mappings: dict[int, int] = {}
        self.handles: list[int] = []
        self.answers: list[str] = []

    # -- the bindings' structs, by numbers: some of them are in no enum ------------------------------------------

    @staticmethod
    def property_of(
        kind: int = DEVICE, ordinal: int = 0, handle_types: int = 0, allocation: int = 1, requests: bytes = b""
    ) -> Any:
        """An allocation property; ``requests`` are the bytes of compressionType and gpuDirectRDMACapable."""
        made = cuda.CUmemAllocationProp()
        ctypes.memmove(made.getPtr() + 24, requests, len(requests))
        (ctypes.c_int * 4).from_address(made.getPtr())[:] = allocation, handle_types, kind, ordinal
        return made

    @staticmethod
    def grant(access: int = READWRITE, kind: int = DEVICE, ordinal: int = 0) -> Any:
        """An access descriptor."""
        made = cuda.CUmemAccessDesc()
        (ctypes.c_int * 3).from_address(made.getPtr())[:] = kind, ordinal, access
        return made

    @staticmethod
    def location(kind: int = DEVICE, ordinal: int = 0) -> Any:
        """A memory location."""
        made = cuda.CUmemLocation()
        (ctypes.c_int * 2).from_address(made.getPtr())[:] = kind, ordinal
        return made

    # -- statuses -----------------------------------------------------------------------------------------------

    @staticmethod
    def ok(result: tuple[Any, ...]) -> Any:
        """The output of a call that must succeed."""
        assert int(result[0]) == 0, cuda.CUresult(result[0])
        return result[1] if len(result) == 2 else result[1:]

    def assert_refused(self, code: int, call: Callable[..., tuple[Any, ...]], *arguments: Any) -> None:
        """The call answers ``code``, gives None for every output, and changes nothing."""
        before = self.picture()
        result = call(*arguments)
        self.answers.append(f"{call.__name__} answered {int(result[0])}, not {code}" if int(result[0]) != code else "")
        assert int(result[0]) == code
        assert all(output is None for output in result[1:])
        assert self.picture() == before

    def picture(self) -> list[Any]:
        """Everything that queries show of what the test made."""
        seen: list[Any] = [self.free()]
        for base, size in self.reservations.items():
            for at in range(base, base + size, self.unit):
                access = self.api.cuMemGetAccess(self.location(), at)
                extent = self.api.cuMemGetAddressRange(at)
                seen.append((at, int(access[0]), access[1], [int(value or 0) for value in extent]))
        seen.extend(int(self.api.cuMemGetAllocationPropertiesFromHandle(handle)[0]) for handle in self.handles)
        return [*seen, self.api.live()] if hasattr(self.api, "live") else seen

    def free(self) -> int:
        """Free physical memory."""
        return int(self.ok(self.api.cuMemGetInfo())[0])

    # -- making things ------------------------------------------------------------------------------------------

    def reserve(self, units: int, hint: int = 0) -> int:
        """Reserve addresses for ``units`` granules."""
        base = int(self.ok(self.api.cuMemAddressReserve(units * self.unit, 0, hint, 0)))
        self.reservations[base] = units * self.unit
        return base

    def reserve_adjacent(self) -> tuple[int, int]:
        """Two reservations of two granules each, one right after the other."""
        start = self.reserve(4)
        self.give_back(start)
        first = self.reserve(2, hint=start)
        second = self.reserve(2, hint=first + 2 * self.unit)
        if second != first + 2 * self.unit:
            pytest.skip("the driver put the second reservation elsewhere")
        return first, second

    def give_back(self, base: int) -> None:
        """Free a reservation."""
        self.ok(self.api.cuMemAddressFree(base, self.reservations.pop(base)))

    def create(self, units: int = 1, ordinal: int = 0) -> int:
        """A handle for ``units`` granules of a device's physical memory."""
        prop = self.property_of(ordinal=ordinal) if ordinal else self.prop
        handle = int(self.ok(self.api.cuMemCreate(units * self.unit, prop, 0)))
        self.handles.append(handle)
        return handle

    def release(self, handle: int) -> None:
        """Drop one reference."""
        self.handles.remove(handle)
        self.ok(self.api.cuMemRelease(handle))

    def map(self, address: int, handle: int, units: int = 1) -> None:
        """Map a whole allocation."""
        self.ok(self.api.cuMemMap(address, units * self.unit, 0, handle, 0))
        self.mappings[address] = units * self.unit

    def unmap(self, address: int, units: int = 1) -> None:
        """Unmap whole mappings."""
        size = units * self.unit
        self.ok(self.api.cuMemUnmap(address, size))
        self.mappings = {at: length for at, length in self.mappings.items() if not address <= at < address + size}

    def allow(self, address: int, units: int = 1, access: int = READWRITE) -> None:
        """Set the device's access."""
        self.ok(self.api.cuMemSetAccess(address, units * self.unit, [self.grant(access)], 1))

    def mapped(self, units: int = 1, access: int | None = READWRITE, spare: int = 0) -> int:
        """A reservation of ``units + spare`` granules whose first ``units`` are mapped, a handle each."""
        base = self.reserve(units + spare)
        for index in range(units):
            self.map(base + index * self.unit, self.create())
        if access is not None:
            self.allow(base, units, access)
        return base

    def access(self, address: int, ordinal: int = 0) -> int:
        """A device's access at an address."""
        return int(self.ok(self.api.cuMemGetAccess(self.location(ordinal=ordinal), address)))

    @contextlib.contextmanager
    def on(self, ordinal: int) -> Iterator[None]:
        """Make another device's context current."""
        self.ok(self.api.cuCtxPushCurrent(self.ok(self.api.cuDevicePrimaryCtxRetain(ordinal))))
        try:
            yield
        finally:
            self.ok(self.api.cuCtxPopCurrent())
            self.ok(self.api.cuDevicePrimaryCtxRelease(ordinal))

    def attribute(self, name: str, address: int) -> Any:
        """One pointer attribute."""
        which = getattr(cuda.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        return self.ok(self.api.cuPointerGetAttribute(which, address))

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the device."""
        self.ok(self.api.cuMemcpyHtoD(address, data, len(data)))

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from the device."""
        found = bytearray(size)
        self.ok(self.api.cuMemcpyDtoH(found, address, size))
        return bytes(found)

    @staticmethod
    def elsewhere(call: Callable[[], Any]) -> Any:
        """What ``call`` gives on a thread without a context."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        thread.join()
        return found[0]

    def close(self) -> None:
        """Wait, unmap, release, free, in this order; the context last."""
        self.api.cuCtxSynchronize()
        for address, size in self.mappings.items():
            self.ok(self.api.cuMemUnmap(address, size))
        for handle in self.handles:
            self.ok(self.api.cuMemRelease(handle))
        for base, size in self.reservations.items():
            self.ok(self.api.cuMemAddressFree(base, size))
        self.ok(self.api.cuCtxPopCurrent())
        self.ok(self.api.cuDevicePrimaryCtxRelease(0))


@contextlib.contextmanager
def laboratory(which: str, **options: Any) -> Iterator[Lab]:
    """A laboratory on the driver of that name; ``options`` are the host driver's."""
    kind = _OPTIONS.get(which)
    found = Lab(cuda if kind is None else HostDriver(memory="64 MiB", **kind, **options))
    try:
        yield found
    finally:
        found.close()


def learn(request: pytest.FixtureRequest, found: Lab) -> Lab:
    """Keep what a driver answers to a question whose answer is not known, for the summary."""
    unknown = request.node.get_closest_marker("unknown")
    if unknown:
        request.node.user_properties.append(("unknown", (unknown.args[0], request.param, found.answers)))
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what a real driver answered to the unknown rows: that is what they are there for."""
    for outcome in ("xpassed", "xfailed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "unknown":
                    row, driver, answers = value
                    said = "; ".join(filter(None, answers)) or ("as expected" if outcome == "xpassed" else "otherwise")
                    terminalreporter.write_line(f"row {row} on {driver}: {said}  [{report.nodeid.split('::')[-1]}]")


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A laboratory on each driver."""
    with laboratory(request.param) as found:
        yield learn(request, found)


@pytest.fixture
def bytes_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A laboratory on each driver that keeps bytes."""
    with laboratory(request.param) as found:
        yield learn(request, found)


@pytest.fixture
def late_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A laboratory whose queued work may not have run before somebody waits: on the host driver it never has."""
    with laboratory(request.param) as found:
        yield found


@pytest.fixture
def pair_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A laboratory on each driver, with two devices that reach each other's memory."""
    if request.param == "cuda" and not _cuda_has_peers():
        pytest.skip("needs two GPUs with access to each other's memory")
    with laboratory(request.param, devices=2) as found:
        yield found


def _cuda_has_peers() -> bool:
    return cuda.cuDeviceGetCount()[1] > 1 and bool(cuda.cuDeviceCanAccessPeer(0, 1)[1])
