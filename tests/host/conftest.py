"""What the tests of both packages share: the module sweeping.py, and streams."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import vmm


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
