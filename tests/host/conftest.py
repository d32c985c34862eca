"""The module sweeping.py, for the failure sweeps of both packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def sweeping() -> ModuleType:
    """Worlds in which every call fails once."""
    spec = importlib.util.spec_from_file_location("failure_sweeping", Path(__file__).with_name("sweeping.py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
