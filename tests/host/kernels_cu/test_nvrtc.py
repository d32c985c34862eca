"""Every kernel compiled by NVRTC to the cubin that a GPU would load: no spills, and the parameters of the launch."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels_cu import CompileError, CompilerMissingError, HostTarget, nvrtc
from kernels_cu.catalogue import built_for
from kernels_cu.constants import constants_for, define
from kernels_cu.cubin import kernel_parameters
from kernels_cu.elf import sections
from kernels_cu.nvrtc import compile_cubin, cupy_options
from kernels_cu.report import KERNELS, resources
from kernels_cu.source import PACKAGE, gpu_source

DTYPES = ("float32", "float16", "bfloat16")
MOST_REGISTERS = {"paged_prefill": 176}
"""For head_dim 128. Elsewhere 128, with which four blocks of 128 threads have room on a multiprocessor."""
GPUS = ("sm_80", "sm_90", "sm_100")
POOLS = {
    "sm_80": (("float32", 8, "vllm"), ("bfloat16", 128, "hnd")),
    "sm_90": (("float32", 128, "hnd"), ("float16", 64, "vllm")),
    "sm_100": (("bfloat16", 128, "vllm"),),
}
"""Every type and layout on some GPU; all of them on all in the exhaustive test."""


@pytest.fixture(scope="module", autouse=True)
def _nvrtc():
    try:
        nvrtc.nvrtc_version()
    except CompilerMissingError as error:
        pytest.skip(str(error))


class CubinKernel:
    """A kernel that is compiled as CuPy would, with the table of the cubin, and never runs."""

    def __init__(self, source, constants, arch):
        self.name, self.resources = source, resources(source, constants, arch)
        self.parameters = self.resources.parameters

    def launch(self, *launch):
        pass


@pytest.fixture
def compiled(monkeypatch):
    """Launches compile and check, and then end; the kernels of all of them, by what they were compiled for."""
    found = {}

    def load(source, constants, arch, observed=False):  # noqa: ARG001
        key = (source, tuple(sorted(constants.items())), arch)
        return found.setdefault(key, CubinKernel(source, constants, arch))

    monkeypatch.setattr("kernels_cu.checked_launch.load", load)
    return found


class GpuTarget(HostTarget):
    def __init__(self, arch):
        super().__init__()
        self.arch = arch


class DeviceArray:
    """A NumPy array that says it is on a device."""

    def __init__(self, array):
        self.array, self.data = array, SimpleNamespace(ptr=array.ctypes.data)

    def __getattr__(self, name):
        return getattr(self.array, name)

    def __len__(self):
        return len(self.array)


def _sound(kernel):
    """No spills, no local arrays, and parameters that lie as a C struct would have them."""
    found = kernel.resources
    assert (found.spills, found.stack) == (0, 0), found
    assert found.registers <= MOST_REGISTERS.get(found.kernel, 128), found
    offset = 0
    for parameter in found.parameters:
        offset = -(-offset // parameter.size) * parameter.size
        assert parameter.offset == offset
        offset += parameter.size


@pytest.mark.parametrize(
    "arch", [arch if arch == "sm_90" else pytest.param(arch, marks=pytest.mark.exhaustive) for arch in GPUS]
)
def test_no_spills_and_the_parameters_that_launch_passes(samples, compiled, arch):
    """A launch itself compares its arguments with the cubin's table: a mismatch is an error here."""
    for sample, (dtype, head_dim, layout) in itertools.product(samples.ON_A_POOL, POOLS[arch]):
        sample(GpuTarget(arch), DeviceArray, samples.pool(dtype, layout, head_dim))
    for sample in samples.FAST:
        sample(GpuTarget(arch), DeviceArray, samples.pool("bfloat16", "hnd", 128))
    for sample in samples.ON_BLOCKS:
        sample(GpuTarget(arch), DeviceArray)
    for kernel in compiled.values():
        _sound(kernel)
    assert {kernel.name for kernel in compiled.values()} == set(KERNELS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("head_dim", range(8, 257, 8))
def test_the_same_for_every_head_dim(samples, compiled, head_dim):
    """On the two oldest architectures, whose layouts take turns from one head_dim to the next."""
    turn = head_dim // 8
    for arch, layout in ((GPUS[turn % 2], "hnd"), (GPUS[1 - turn % 2], "vllm")):
        for sample, dtype in itertools.product(samples.ON_A_POOL, DTYPES):
            sample(GpuTarget(arch), DeviceArray, samples.pool(dtype, layout, head_dim))
    for kernel in compiled.values():
        _sound(kernel)


@pytest.mark.exhaustive
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_the_same_for_every_fast_kernel(samples, compiled, head_dim):
    for sample, dtype, layout, arch in itertools.product(samples.FAST, DTYPES[1:], ("hnd", "nhd"), GPUS):
        sample(GpuTarget(arch), DeviceArray, samples.pool(dtype, layout, head_dim))
    for kernel in compiled.values():
        assert (kernel.resources.spills, kernel.resources.stack) == (0, 0), kernel.resources


def test_the_reports_set_is_every_kernel_of_the_package():
    assert {f"{kernel}.cu" for kernel in KERNELS} == {path.name for path in PACKAGE.glob("*.cu")}


@pytest.mark.parametrize("kernel", ["append_kv", "paged_attention_simple"])
def test_shared_memory_is_what_the_source_declares(kernel):
    declared = {"append_kv": 0, "paged_attention_simple": 4 * 128 + 4 * 32 + 8 * 32}
    assert (
        resources(kernel, built_for(kernel, "float16", 128, "hnd", "sm_90").constants, "sm_90").shared
        == declared[kernel]
    )


def test_k_is_read_in_pieces_of_16_bytes():
    """128 / 8 loads for a row of K, in a loop that is unrolled at least eight times."""
    disassembler = _tool("nvdisasm")
    for layout in ("hnd", "vllm"):
        text = gpu_source(PACKAGE / "paged_attention_simple.cu")
        compiled = compile_cubin("k", text, define(constants_for("float16", 128, layout)), "sm_90")
        listing = _run(disassembler, "-c", compiled.cubin)
        assert len(re.findall(r"LDG\.E\.128", listing)) in (8, 16)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", ["append_kv", "gather_kv", "rotate_query", "copy_blocks", "fill_blocks"])
def test_what_moves_rows_and_blocks_moves_16_bytes_at_once(kernel):
    constants = built_for(kernel, "bfloat16", 128, "hnd", "sm_90").constants
    text = gpu_source(PACKAGE / f"{kernel}.cu")
    listing = _run(_tool("nvdisasm"), "-c", compile_cubin(kernel, text, define(constants), "sm_90").cubin)
    assert not re.search(r"(LDG|STG)\.E\.(U8|U16|S8|S16)", listing)
    stores = re.findall(r"\bSTG\S*", listing)
    assert stores
    assert all(".128" in store for store in stores)


@pytest.mark.parametrize(
    ("kernel", "arch"), [("append_kv", "sm_80"), ("paged_attention_simple", "sm_90"), ("paged_decode", "sm_100")]
)
def test_the_table_is_the_one_that_cuobjdump_prints(kernel, arch):
    text = gpu_source(PACKAGE / f"{kernel}.cu")
    constants = built_for(kernel, "bfloat16", 64, "hnd", arch).constants
    cubin = compile_cubin(kernel, text, define(constants), arch).cubin
    listing = _run(_tool("cuobjdump"), "-elf", cubin)
    rows = re.findall(r"Ordinal\s*:\s*0x([0-9a-f]+)\s*Offset\s*:\s*0x([0-9a-f]+)\s*Size\s*:\s*0x([0-9a-f]+)", listing)
    wanted = sorted(tuple(int(number, 16) for number in row) for row in rows)
    assert [(i, p.offset, p.size) for i, p in enumerate(kernel_parameters(cubin, kernel))] == wanted
    assert len(wanted) >= 4


def _tool(name):
    nvidia = pytest.importorskip("nvidia", reason=f"{name} is not installed: python -m pip install nvidia-cuda-{name}")
    for folder in nvidia.__path__:
        for path in Path(folder).glob(f"*/bin/{name}"):
            return path
    pytest.skip(f"{name} is not installed: python -m pip install nvidia-cuda-{name}")


def _run(tool, option, cubin):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def test_the_table_of_a_kernel_with_gaps():
    text = gpu_source(Path(__file__).with_name("mixed.cu"))
    cubin = compile_cubin("mixed", text, (), "sm_90").cubin
    found = [(p.offset, p.size) for p in kernel_parameters(cubin, "mixed")]
    assert found == [(0, 8), (8, 4), (16, 8), (24, 4), (32, 8), (40, 4), (48, 8)]
    with pytest.raises(CompileError, match="the cubin has no kernel other"):
        kernel_parameters(cubin, "other")


def test_an_error_in_a_kernel_is_one_line_with_its_place(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('#include "elements.cuh"\n\nextern "C" __global__ void broken(int* x) { *x = nothing_here; }\n')
    with pytest.raises(
        CompileError, match=r"NVRTC could not compile broken for sm_90: broken\.cu\(3\): error.*nothing_h"
    ):
        compile_cubin("broken", gpu_source(source), (), "sm_90")
    with pytest.raises(CompileError, match=r"NVRTC could not compile broken for sm_1: .*invalid value"):
        compile_cubin("broken", gpu_source(source), (), "sm_1")


def test_the_options_are_those_that_cupy_sends():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: python -m pip install 'pagewalk[cuda13]'")
    from cupy.cuda import compiler

    assert cupy.__version__
    for kernel in ("append_kv", "paged_decode", "copy_blocks"):
        ours = define(built_for(kernel, "float16", 128, "hnd", "sm_90").constants)
        assembled = cupy._core.core.assemble_cupy_compiler_options(ours)
        folders = [option for option in assembled if not option.startswith("-I")]
        sent = (*folders, "-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")
        assert sent == cupy_options(ours, "sm_90")
        text = gpu_source(PACKAGE / f"{kernel}.cu")
        options = (*assembled, *sent[len(folders) :])
        cubin, _ = compiler._NVRTCProgram(text, f"{kernel}.cu", method="cubin").compile(options)
        assert _code(cubin, kernel) == _code(compile_cubin(kernel, text, ours, "sm_90").cubin, kernel)


def _code(cubin, kernel):
    return {name: content for name, content in sections(cubin) if name in (f".text.{kernel}", f".nv.info.{kernel}")}


def test_without_nvrtc_the_error_names_the_extra(monkeypatch):
    def not_there():
        raise RuntimeError("libnvrtc.so.13 not found")

    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", not_there)
    with pytest.raises(
        CompilerMissingError, match=r"NVRTC library was not found .*; run: python -m pip install 'pagewalk\[test\]'"
    ):
        nvrtc.nvrtc_version()
