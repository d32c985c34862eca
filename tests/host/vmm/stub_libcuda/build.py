"""Builds the stub library with the C compiler that is there."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = sorted(Path(__file__).parent.glob("*.c"))


def compiler() -> list[str]:
    """$CC, else cc, gcc or clang, else the ziglang package; the test is skipped where there is none."""
    if "CC" in os.environ:
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("no C compiler for the stub libcuda: install gcc or clang, or: python -m pip install ziglang")


def library(folder: Path, *options: str) -> Path:
    """Build libcuda.so.1 in ``folder``; the test fails with what the compiler says."""
    made = folder / "libcuda.so.1"
    command = [*compiler(), "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1", *options]
    command += ["-o", str(made), *map(str, SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{shlex.join(command)}:\n{done.stderr[:2000]}"
    return made
