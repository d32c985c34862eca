"""The one direction: driver -> range -> pool -> table -> kernel. Nothing imports upward."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAY_IMPORT = {"vmm": {"vmm"}, "kernels_cu": {"kernels_cu"}, "paged": {"paged", "vmm", "kernels_cu"}}
C_API = {"vmm/driver.py"}


def imports(path):
    """Absolute names of the modules that a file imports, wherever in the file."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            yield ".".join([*above, *([node.module] if node.module else [])])


def sources(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_package_imports_upward(package):
    assert sources(package)
    wrong = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources(package)
        for name in imports(path)
        if name.split(".")[0] in MAY_IMPORT and name.split(".")[0] not in MAY_IMPORT[package]
    }
    assert not wrong


def test_one_file_speaks_to_the_c_api():
    """The host driver has the binding's types; driver.py makes the calls."""
    users = {
        path.relative_to(ROOT).as_posix()
        for package in ("vmm", "paged")
        for path in sources(package)
        for name in imports(path)
        if name.startswith("cuda")
    }
    assert {user for user in users if not user.startswith("vmm/host/")} == C_API


def test_only_views_and_interop_know_device_arrays():
    users = {
        path.relative_to(ROOT).as_posix()
        for path in sources("vmm")
        for name in imports(path)
        if name.split(".")[0] in {"cupy", "torch", "ml_dtypes"}
    }
    assert {user for user in users if not user.startswith("vmm/interop/")} == {"vmm/views.py"}


def test_lower_floors_of_vmm_import_no_higher_ones():
    floors = [
        "errors",
        "sizes",
        "driver",
        "choice",
        "device",
        "physical",
        "address_range",
        "chunk_supply",
        "chunk_map",
        "growable",
        "heap",
    ]
    height = {f"vmm.{name}": floor for floor, name in enumerate(floors)}
    wrong = [
        (name, imported)
        for name in floors
        for imported in imports(ROOT / "vmm" / f"{name}.py")
        if imported in height and height[imported] >= height[f"vmm.{name}"]
    ]
    assert not wrong
