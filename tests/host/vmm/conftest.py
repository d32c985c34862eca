"""The stub libcuda: built once, and the functions that tests run over it in a process of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(name: str) -> ModuleType:
    """A module of the folder stub_libcuda."""
    path = Path(__file__).with_name("stub_libcuda") / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"stub_libcuda_{name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def stub_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The process in which the real bindings find the stub."""
    library = _load("build").library(tmp_path_factory.mktemp("stub"))
    worker = _load("runner").Worker(library.parent)
    yield worker
    worker.close()


@pytest.fixture
def stub(stub_worker: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """``stub(function, *arguments, **settings)`` runs a function of this test file over the stub: (value, calls).

    Settings are environment variables of the function, most of them the stub's own. Nothing that a driver gave may be
    left at the end, unless ``leaves=True``.
    """
    return _load("runner").Stub(stub_worker, Path(request.path), tmp_path)


@pytest.fixture(scope="session")
def stub_build() -> ModuleType:
    """How the stub is built."""
    return _load("build")
