"""Every example runs as a process, checks its own result, and leaves nothing on its error stream."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_cu.compiler import find_compiler
from kernels_cu.errors import CompilerMissingError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
NEEDS_COMPILER = {"04_paged_attention.py"}


def compiler_is_there():
    try:
        find_compiler()
    except CompilerMissingError:
        return False
    return True


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path, tmp_path):
    if path.name in NEEDS_COMPILER and not compiler_is_there():
        pytest.skip("no C++ compiler: pip install 'pagewalk[host]'")
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("name", sorted(NEEDS_COMPILER))
def test_without_a_compiler_an_example_says_in_one_line_what_to_install(name, tmp_path):
    path = next(path for path in EXAMPLES if path.name == name)
    environment = {**os.environ, "CXX": "no-such-compiler", "VMM_DRIVER": "host"}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: CXX names 'no-such-compiler'")
    assert done.stderr.endswith("python -m pip install 'pagewalk[host]'\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_says_what_the_reader_will_see(path):
    text = path.read_text()
    assert 40 <= len(text.splitlines()) <= 90
    assert "ou will see" in text.split('"""')[1]


def test_the_first_five_keep_their_numbers():
    assert [path.stem for path in EXAMPLES[:5]] == [
        "01_reserve_map_unmap",
        "02_grow_in_place",
        "03_two_layers",
        "04_paged_attention",
        "05_physical_vs_virtual",
    ]
