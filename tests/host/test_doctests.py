"""The examples in docstrings, each module's in its own namespace, with warnings as errors."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_EXAMPLES = [
    path
    for package in ("vmm", "paged", "kernels_cu")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text()
]


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_there_are_examples():
    assert {"vmm.growable", "paged.layout", "paged.pool", "kernels_cu.conventions"} <= set(map(name_of, WITH_EXAMPLES))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_module_hold(path, capsys):
    found = doctest.testmod(importlib.import_module(name_of(path)))
    assert found.failed == 0, capsys.readouterr().out
    assert found.attempted > 0


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_examples_stand_four_spaces_in_so_that_the_site_shows_them_as_code(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            lines = [line for line in ast.get_docstring(node).splitlines() if line.lstrip().startswith(">>> ")]
            assert [line for line in lines if not line.startswith("    ")] == []
