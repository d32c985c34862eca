"""What a user's program sees: the programs of tests/typing use every public name, run, and pass mypy --strict."""

import ast
import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests" / "typing").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
NO_STUBS = "\n".join(
    f"[mypy-{name}.*]\nignore_missing_imports = true\nfollow_imports = skip"
    for name in ("cuda", "cupy", "matplotlib", "ml_dtypes")
)


def used_names(program):
    """Every dotted name that a program writes, with what its imports make of the first part."""
    tree = ast.parse(program.read_text())
    known = {"vmm": "vmm", "paged": "paged", "kernels_cu": "kernels_cu"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in known:
            yield ".".join([known[node.id], *parts])


def named(name):
    """What a dotted name stands for, as far as its parts go; ``paged.replay`` is the function."""
    package, *parts = name.split(".")
    found = importlib.import_module(package)
    for done in range(len(parts)):
        if not hasattr(found, parts[done]):
            with contextlib.suppress(ImportError):
                found = importlib.import_module(".".join([package, *parts[:done]]))
        found = getattr(found, parts[done], None)
    return found


def test_every_public_name_is_used(public_names):
    used = {name for program in PROGRAMS for name in used_names(program)}
    used |= {name.rpartition(".")[0] for name in used if "." in name}  # a module by what is in it
    same = {id(named(name)) for name in used}  # a module's other name is as good
    assert len(public_names) > 100
    assert sorted(name for name in public_names - used if id(named(name)) not in same) == [], (
        "use each in one of the programs of tests/typing"
    )


LONG = {"user_of_paged"}  # it draws, replays and records


@pytest.mark.parametrize(
    "program",
    [pytest.param(path, marks=pytest.mark.exhaustive) if path.stem in LONG else path for path in PROGRAMS],
    ids=lambda path: path.stem,
)
def test_a_program_runs(program, tmp_path, request):
    if "kernels" in program.stem:
        request.getfixturevalue("compiler")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_the_programs_and_examples_pass_mypy_strict(tmp_path):
    pytest.importorskip("mypy", reason="needs the dev extra: python -m pip install -e '.[dev]'")
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\n{NO_STUBS}\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(tmp_path / "cache")]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *map(str, [*PROGRAMS, *EXAMPLES])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
