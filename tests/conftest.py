"""What every test gets: the proof that it leaves nothing alive, and devices to work on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

import vmm
from vmm.host import FailingDriver


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test file with ``STREAMS = ("eager", "deferred")`` runs what uses ``device`` with either kind of streams."""
    kinds = getattr(metafunc.module, "STREAMS", ())
    if kinds and "device" in metafunc.fixturenames:
        metafunc.parametrize("device", kinds, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[vmm.Device]:
    """A device of the host driver with 256 MiB of real memory."""
    with vmm.Device(driver=vmm.HostDriver(memory="256 MiB", streams=getattr(request, "param", "eager"))) as found:
        yield found


@pytest.fixture
def rules() -> Iterator[vmm.Device]:
    """A device of the host driver with rules and no bytes: 1 TiB that costs nothing."""
    with vmm.Device(driver=vmm.HostDriver(memory="1 TiB", backing="none")) as found:
        yield found


@pytest.fixture
def failing() -> Iterator[tuple[vmm.Device, FailingDriver]]:
    """A device with 64 MiB of real memory, and the switch that makes one of its driver's calls fail."""
    api = FailingDriver(vmm.HostDriver(memory="64 MiB"))
    with vmm.Device(driver=api) as found:
        yield found, api
