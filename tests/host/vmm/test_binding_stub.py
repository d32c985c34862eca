"""The stub library itself: its signatures are NVIDIA's, and it has every call that vmm makes."""

import importlib.util
import re
from pathlib import Path

import pytest

import vmm.driver

STUB = Path(__file__).with_name("stub_libcuda")


def cuda_headers():
    """The folder of cuda.h in the wheel of the CUDA runtime, or None."""
    found = importlib.util.find_spec("nvidia")
    roots = found.submodule_search_locations if found else []
    return next((path.parent for root in roots for path in sorted(Path(root).glob("cu*/include/cudaTypedefs.h"))), None)


def test_signatures_and_structs_are_those_of_cuda_h(stub_build, tmp_path):
    """A width or an order that differs from cuda.h, or from the version that calls.h names, does not compile."""
    headers = cuda_headers()
    if headers is None:
        pytest.skip("cuda.h is not here; it comes with: python -m pip install nvidia-cuda-runtime")
    stub_build.library(tmp_path, "-DWITH_CUDA_H", f"-I{headers}")


def test_the_stub_has_every_call_of_the_driver():
    """A new call of vmm gets a line in calls.h, a function that records it, and a check of its bytes."""
    made = set(re.findall(r"api\.(cu\w+)\(", Path(vmm.driver.__file__).read_text()))
    assert len(made) > 30
    assert made <= set(re.findall(r"^CALL\((\w+),", (STUB / "calls.h").read_text(), re.MULTILINE))


def test_the_bytes_of_every_call_are_checked():
    made = set(re.findall(r"api\.(cu\w+)\(", Path(vmm.driver.__file__).read_text()))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_binding_*.py"))
    assert {call for call in made if f'"{call}"' not in tests} == set()
