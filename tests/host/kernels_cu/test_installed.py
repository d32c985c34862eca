"""A copy of the package as it is installed, without the repository around it, has every source that it compiles."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels_cu

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
import numpy as np
import kernels_cu
from kernels_cu import HostTarget, PagedKV, launch
assert kernels_cu.__file__.startswith(sys.argv[1]), kernels_cu.__file__
pool = np.zeros((2, 2, 1, 4, 8), np.float32)
kv = PagedKV(pool[0].ctypes.data, pool[1].ctypes.data, "float32", "hnd", 4, 1, 8, 32, 32, 8)
ones = np.ones((1, 1, 8), np.float32)
launch.append_kv(HostTarget(), kv, ones, 3 * ones, np.array([5]))
out, one = np.empty_like(ones), np.ones(1, np.int32)
launch.append_kv(HostTarget(), kv, ones, 3 * ones, np.array([4]))
launch.paged_attention_simple(HostTarget(), kv, ones, one[:, None], one, out)
print(out.tolist())
"""


@pytest.mark.usefixtures("target")
def test_kernels_compile_and_run_from_an_installed_copy(tmp_path):
    pytest.importorskip("setuptools", reason="needs setuptools: python -m pip install setuptools")
    source, built = tmp_path / "source", tmp_path / "built"
    source.mkdir()
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(kernels_cu.__file__).parent, source / "kernels_cu", ignore=ignored)
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(built)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(built), "PAGEWALK_CACHE": str(tmp_path / "cache")}
    run = [sys.executable, "-c", PROGRAM, str(built)]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[[[3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]]]\n", "")
