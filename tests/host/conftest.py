"""What the tests of several packages share: sweeping.py, streams, the public names, and whether kernels can run."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import vmm
from kernels_cu import CompilerMissingError
from kernels_cu.compiler import find_compiler

COMMAND_LINES = {"vmm.commands", "paged.commands"}


@pytest.fixture(scope="session")
def sweeping() -> ModuleType:
    """Worlds in which every call fails once."""
    spec = importlib.util.spec_from_file_location("failure_sweeping", Path(__file__).with_name("sweeping.py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def streams(device: vmm.Device) -> Iterator[list[int]]:
    """Two streams that keep order with no other."""
    with device.current():
        made = [int(device.driver.api.cuStreamCreate(1)[1]) for _ in range(2)]
    yield made
    with device.current():
        for stream in made:
            device.driver.api.cuStreamDestroy(stream)


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skip, and say why, where no C++ compiler runs the kernels."""
    try:
        find_compiler()
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def public_names() -> set[str]:
    """Each name of each package's and module's ``__all__``, with dots, but for those of command lines."""
    names: set[str] = set()
    for package in map(importlib.import_module, ("vmm", "paged", "kernels_cu")):
        inside = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
        for module in [package.__name__, *(name for name in inside if not name.endswith("__main__"))]:
            if module not in COMMAND_LINES:
                names |= {f"{module}.{name}" for name in getattr(importlib.import_module(module), "__all__", ())}
    return names
