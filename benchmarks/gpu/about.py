"""What is measured: the device, its driver, and the versions of everything that could make a difference."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import vmm
from vmm.shortage.device_memory import holders_on

from .bench import Bench

PACKAGES = (
    "pagewalk",
    "numpy",
    "cuda-bindings",
    "nvidia-ml-py",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
    "torch",
    "flashinfer-python",
)
_ATTRIBUTES = {"clock_khz": 13, "memory_clock_khz": 36, "bus_bits": 37, "ecc": 32}
"""Numbers of CU_DEVICE_ATTRIBUTE_*."""


def names() -> list[str]:
    """The one item of this step."""
    return ["device"]


def run(name: str, bench: Bench) -> dict[str, Any]:  # noqa: ARG001
    """Name, sizes and versions."""
    side = bench.side
    driver, device = side.device.driver, side.device
    return {
        "name": device.name,
        "driver": device.driver.name,
        "driver_version": driver.version(),
        "arch": side.arch,
        "memory": device.total,
        "free": device.memory_info().free,
        "pci_bus_id": driver.pci_bus_id(0),
        "memory_holders": {held.name: held.bytes for held in holders_on(device)},  # by NVML too, or why not
        "granularity": device.granularity,
        "recommended_granularity": driver.granularity(0, recommended=True),
        "multiprocessors": side.multiprocessors,
        "l2_bytes": side.l2_bytes,
        **{name: _attribute(driver, number) for name, number in _ATTRIBUTES.items()},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {package: version for package in PACKAGES if (version := _version(package))},
    }


def _attribute(driver: vmm.driver.Driver, number: int) -> int | None:
    """An attribute that is only of interest: a driver that has it no more is no failure."""
    try:
        return driver.device_attribute(0, number)
    except (vmm.VmmError, ValueError):
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
