"""What the tests on a GPU start from: CuPy, a device, a target, the cases of the CPU's tests; without one they skip."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vmm
from kernels_cu import KernelFault

CASES = Path(__file__).parents[1] / "host" / "kernels_cu" / "cases.py"


@pytest.fixture(scope="session")
def cupy() -> Any:
    """CuPy where it finds a GPU."""
    found = pytest.importorskip("cupy", reason="needs CuPy: python -m pip install 'pagewalk[cuda13]'")
    if not found.is_available():
        pytest.skip("needs a GPU and its driver")
    return found


@pytest.fixture
def gpu() -> Iterator[vmm.Device]:
    """The first GPU, through the real driver."""
    try:
        device = vmm.Device(0, driver="cuda")
    except vmm.DriverMissingError as error:
        pytest.skip(f"needs a GPU and its driver: {error}")
    with device:
        yield device


class GpuTarget:
    """The smallest target on CuPy's current device: its stream keeps the order, the tests keep the arrays."""

    def __init__(self, cupy: Any) -> None:
        self.arch = f"sm_{cupy.cuda.Device().compute_capability}"

    def submit(self, stream: int, call: Callable[[], None], keepalive: object) -> None:  # noqa: ARG002
        """Launch at once."""
        call()

    def fault(self, address: int, write: bool) -> Exception:
        """Return a KernelFault."""
        return KernelFault(address, write)


@pytest.fixture
def target(cupy: Any) -> GpuTarget:
    """CuPy's current device."""
    return GpuTarget(cupy)


@pytest.fixture(scope="session")
def cases() -> ModuleType:
    """The module of cases that the CPU's tests use."""
    spec = importlib.util.spec_from_file_location("kernel_cases", CASES)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
