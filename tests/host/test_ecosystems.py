"""The table of docs/ecosystems.md: every row names a test that is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ecosystems.md").read_text()
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if "::test_" in line]


def test_every_ecosystem_has_rows():
    names = {row[0].strip() for row in ROWS}
    assert {"CuPy", "cuda.core", "RMM", "PyTorch", "Numba", "DLPack", "FlashInfer", "vLLM", "NumPy"} <= names
    assert all(len(row) == 4 for row in ROWS)


def test_every_row_has_its_test():
    named = [re.search(r"`(\S+\.py)::(test_\w+)`", row[3]).groups() for row in ROWS]
    assert len(set(named)) == len(named) == len(ROWS) > 20
    for file, name in named:
        functions = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert name in functions, f"{file} has no {name}"


def test_a_row_is_marked_gpu_where_its_test_needs_one():
    assert [row for row in ROWS if (row[2].strip() == "GPU") != ("tests/device/" in row[3])] == []
