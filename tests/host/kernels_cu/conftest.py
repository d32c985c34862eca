"""Where kernels run in these tests, and the cases that they run on."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kernels_cu import HostTarget
from kernels_cu.checked_launch import launch_checked

PTX = Path(__file__).with_name("ptx.cu")


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
def target(compiler: None) -> HostTarget:  # noqa: ARG001 - skips without one
    """The CPU; without a compiler for it the test is skipped."""
    return HostTarget()


@pytest.fixture
def run_ptx(target):  # noqa: ARG001 - skips without a compiler
    """Launch ptx.cu in one of its kinds on words [threads, 32]; what each thread wrote, in the same shape."""
    kinds = re.findall(r"\w+", re.search(r"enum \{(.*?)\}", PTX.read_text(), re.DOTALL)[1])

    def launch(kind, words, host_run=None, **constants):
        given = np.zeros((len(words), 32), np.uint32)
        given[:, : words.shape[1]] = words
        out = np.full_like(given, 0xEEEEEEEE)
        launch_checked(
            HostTarget(host_run),
            PTX,
            constants,
            (1, 1, 1),
            (len(given), 1, 1),
            (np.uint64(out.ctypes.data), np.uint64(given.ctypes.data), np.int32(kinds.index(kind))),
            stream=0,
            keepalive=(out, given),
            shared_bytes=48 * len(given),
        )
        return out

    return launch
