"""What ``import paged`` gives, and what it must not drag in."""

import contextlib
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import paged


def test_every_public_name_is_there_once():
    assert sorted(set(paged.__all__)) == sorted(paged.__all__)
    assert [name for name in paged.__all__ if not hasattr(paged, name)] == []
    assert {"model", "KVSpec", "KVLayout", "BlockPool", "KVPool", "Sequence", "ContiguousKV", "locate"} <= set(
        paged.__all__
    )


def test_importing_paged_brings_no_charts_and_no_device_arrays():
    code = "import sys, paged; print([name for name in ('cupy', 'matplotlib', 'click', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_every_dotted_name_in_a_docstring_or_a_text_is_there():
    root = Path(paged.__file__).parents[1]
    files = [
        *root.glob("*.md"),
        *(path for package in ("vmm", "paged", "kernels_cu") for path in (root / package).rglob("*.py")),
    ]
    named = {
        name
        for path in files
        for name in re.findall(r"`((?:paged|vmm|kernels_cu)(?:\.[A-Za-z_]+)+)[`(]", path.read_text())
    }
    assert len(named) > 3
    assert [name for name in sorted(named) if not resolves(name)] == []


def resolves(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(".".join(parts[:count]))
            try:
                functools.reduce(getattr, parts[count:], found)
            except AttributeError:
                return False
            return True
    return False
