"""What every test gets: the proof that it leaves nothing alive, and devices to work on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver as cuda

import vmm


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--driver", action="append", choices=("host", "cuda"), help="drivers for the conformance suite (default: all)"
    )


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test may leave a reservation, mapping, allocation or context in any host driver that it made."""
    made: weakref.WeakSet[vmm.HostDriver] = weakref.WeakSet()
    first = vmm.HostDriver.__init__

    def remember(self: vmm.HostDriver, *args: object, **options: object) -> None:
        first(self, *args, **options)
        made.add(self)

    monkeypatch.setattr(vmm.HostDriver, "__init__", remember)
    yield
    if any(driver.live().total for driver in made):
        gc.collect()
    left = {repr(driver): driver.live() for driver in made if driver.live().total}
    assert not left, f"left alive: {left}"


@pytest.fixture
def device() -> Iterator[vmm.Device]:
    """A device of the host driver with 256 MiB of real memory."""
    with vmm.Device(driver=vmm.HostDriver(memory="256 MiB")) as found:
        yield found


@pytest.fixture
def rules() -> Iterator[vmm.Device]:
    """A device of the host driver with rules and no bytes: 1 TiB that costs nothing."""
    with vmm.Device(driver=vmm.HostDriver(memory="1 TiB", backing="none")) as found:
        yield found


class FailingApi:
    """Any driver's functions, of which one call can be made to fail: the ``at``-th of ``call``, with ``code``."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._call, self._left, self._code = "", 0, 0

    def arm(self, call: str, at: int, code: int = 2) -> None:
        """Fail the ``at``-th call of ``call`` from now, counted from 1."""
        self._call, self._left, self._code = call, at, code

    def disarm(self) -> bool:
        """Fail nothing more; whether the armed call is still to come."""
        waiting, self._call = bool(self._call), ""
        return waiting

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        return self._guard(name, found) if name.startswith("cu") else found

    def _guard(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any) -> Any:
            if name == self._call:
                self._left -= 1
                if not self._left:
                    self._call = ""
                    return (cuda.CUresult(self._code), None)
            return call(*args)

        return guarded


@pytest.fixture
def failing() -> Iterator[tuple[vmm.Device, FailingApi]]:
    """A device with 64 MiB of real memory, and the switch that makes one of its driver's calls fail."""
    api = FailingApi(vmm.HostDriver(memory="64 MiB"))
    with vmm.Device(driver=api) as found:
        yield found, api
