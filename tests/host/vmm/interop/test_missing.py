"""A library that is not installed is one line with the command that brings it; none is imported before it is used."""

import subprocess
import sys

import pytest

import vmm

USES = {
    "cupy": (vmm.interop.cupy.allocator, "pagewalk[cuda13]"),
    "cuda.core": (vmm.interop.cuda_core.memory_resource, "pagewalk[interop]"),
    "rmm.mr": (vmm.interop.rmm.memory_resource, "rmm-cu13"),
    "numba.cuda": (vmm.interop.numba.memory_manager, "numba-cuda"),
    "torch": (lambda heap: vmm.interop.torch.tensor(heap.range, "uint8", 8), "torch"),
}


@pytest.mark.parametrize("name", USES)
def test_a_missing_library_is_one_line_with_the_pip_command(device, monkeypatch, name):
    use, package = USES[name]
    vmm.interop.cuda_core._resource_class.cache_clear()
    for found in [found for found in sys.modules if found == name or found.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, found)
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with vmm.Heap(device, "4 MiB") as heap:
        heap.allocate(8)
        with pytest.raises(vmm.DriverMissingError) as caught:
            use(heap)
        assert f"pip install {package}" in str(caught.value).replace("'", "")
        assert "\n" not in str(caught.value)
        del caught


def test_vmm_imports_no_array_library():
    libraries = ["cupy", "torch", "numba", "rmm", "cuda.core"]
    code = f"import sys, vmm; sys.exit(any(name in sys.modules for name in {libraries}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
