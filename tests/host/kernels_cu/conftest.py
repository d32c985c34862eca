"""Where kernels run in these tests, and the cases that they run on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernels_cu import CompilerMissingError, HostTarget
from kernels_cu.compiler import find_compiler


@pytest.fixture(scope="session")
def cases() -> ModuleType:
    """The module cases.py of this folder, which the tests on a device use too."""
    return _module("cases")


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    """The module samples.py of this folder: one launch of each kernel."""
    return _module("samples")


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"kernel_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _NeverTarget(HostTarget):
    def submit(self, *launch: object) -> None:
        raise AssertionError(f"something was launched: {launch}")


@pytest.fixture
def never() -> HostTarget:
    """A target on which nothing may be launched."""
    return _NeverTarget()


@pytest.fixture
def target() -> HostTarget:
    """The CPU; without a compiler for it the test is skipped."""
    try:
        find_compiler()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    return HostTarget()
