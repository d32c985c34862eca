"""The GPU path as far as it goes without a GPU: what is handed to CuPy, and what comes of its errors."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from kernels_cu import CompileError, CompilerMissingError, HostTarget, LaunchError, PagedKV, launch, loader
from kernels_cu.checked_launch import launch_checked
from kernels_cu.constants import constants_for, define
from kernels_cu.cupy_kernel import CupyKernel
from kernels_cu.errors import KernelFault
from kernels_cu.parameters import Parameter
from kernels_cu.source import PACKAGE, gpu_source

CONSTANTS = {**constants_for("float16", 64, "hnd"), "SOURCE": "float16", "ROTARY": 0, "WIDE": 1}


class CompileException(Exception):  # noqa: N818 - CuPy's name
    pass


class CUDADriverError(RuntimeError):
    def __init__(self, status):
        self.status = status


class FakeKernel:
    """Takes what a RawKernel takes, and writes it down."""

    def __init__(self, name):
        self.name, self.calls, self.error = name, [], None
        self.kernel = SimpleNamespace(ptr=0xABC)

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        self.calls.append((grid, block, args, shared_mem, stream.ptr))
        if self.error:
            raise self.error


class FakeCupy:
    """The part of CuPy that is used, on paper."""

    def __init__(self):
        self.modules, self.kernels, self.error = [], {}, None
        self.cuda = SimpleNamespace(
            compiler=SimpleNamespace(CompileException=CompileException),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        )

    def RawModule(self, *, code, options):  # noqa: N802 - CuPy's name
        assert isinstance(options, tuple)
        self.modules.append((code, options))
        return SimpleNamespace(get_function=self._function)

    def _function(self, name):
        if self.error:
            raise self.error
        return self.kernels.setdefault(name, FakeKernel(name))


class GpuTarget(HostTarget):
    arch = "sm_90"

    def fault(self, address, write):
        return KernelFault(address, write)


class DeviceArray:
    """An array as CuPy shows it: address, type, shape, strides in bytes."""

    @property
    def __cuda_array_interface__(self):
        raise AssertionError("asking for it waits for the array's stream")

    def __init__(self, address, array):
        self.data = SimpleNamespace(ptr=address)
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.itemsize, self.ndim, self.size, self.flags = array.itemsize, array.ndim, array.size, array.flags


@pytest.fixture
def cupy(monkeypatch):
    """Stands in for CuPy; the driver's table is that of paged_attention_simple or append_kv, by the argument count."""
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(loader, "_loaded", {})
    pool = [8] * 5 + [4] * 2
    sizes = {"append_kv": [*pool] + [8] * 9 + [4] * 2, "paged_attention_simple": [*pool] + [8] * 7 + [4] * 2}

    def table(pointer):
        assert pointer == 0xABC
        (name,) = fake.kernels
        return tuple(Parameter(0, size) for size in sizes[name])

    monkeypatch.setattr("kernels_cu.cupy_kernel._driver_parameters", table)
    return fake


def _pool():
    return PagedKV(1 << 40, 1 << 41, "float16", "hnd", 16, 2, 64, 1 << 33, 1024, 64)


def test_attention_hands_over_scalars_of_the_right_width(cupy):
    query = np.zeros((3, 8, 64), np.float16)
    tables, lengths = np.zeros((3, 7), np.int32), np.zeros(3, np.int32)
    arrays = [DeviceArray(1 << (50 + i), array) for i, array in enumerate((query, tables, lengths, query))]
    launch.paged_attention_simple(GpuTarget(), _pool(), *arrays, scale=0.5, stream=77)
    ((grid, block, args, shared, stream),) = cupy.kernels["paged_attention_simple"].calls
    assert (grid, block, shared, stream) == ((8, 3, 1), (32, 1, 1), 0, 77)
    pool, out, others = [1 << 40, 1 << 41, 1 << 33, 1024, 64, 16], 1 << 53, [1 << 50, 1 << 51, 1 << 52]
    assert [int(argument) for argument in args[:-1]] == [*pool, 4, out, *others, 512, 512, 7, 7]
    types = ["uint64"] * 2 + ["int64"] * 3 + ["int32"] * 2 + ["uint64"] * 4 + ["int64"] * 3 + ["int32", "float32"]
    assert [argument.dtype.name for argument in args] == types
    assert args[-1] == np.float32(0.5 * np.log2(np.e))


def test_the_source_is_one_text_and_the_options_a_tuple(cupy):
    key = DeviceArray(64, np.zeros((5, 2, 64), np.float16))
    launch.append_kv(GpuTarget(), _pool(), key, key, DeviceArray(32, np.zeros(5, np.int64)))
    ((code, options),) = cupy.modules
    shape = ("-DELEMENT=float16", "-DHEAD_DIM=64", "-DLAYOUT_VLLM=0")
    assert options == (*shape, "-DROTARY=0", "-DSOURCE=float16", "-DWIDE=1")
    assert "struct PagedKV" in code
    assert "asm(" in code
    assert "#include" not in code
    ((grid, block, _, _, stream),) = cupy.kernels["append_kv"].calls
    assert (grid, block, stream) == ((5, 1, 1), (32, 1, 1), 0)


def test_nothing_of_cupy_is_touched_before_the_target_runs_the_launch(cupy):
    held = []

    class DeferredTarget(GpuTarget):
        def submit(self, stream, call, keepalive):  # noqa: ARG002
            held.append(call)

    key = DeviceArray(64, np.zeros((5, 2, 64), np.float16))
    launch.append_kv(DeferredTarget(), _pool(), key, key, DeviceArray(32, np.zeros(5, np.int64)))
    assert cupy.modules == []
    held.pop()()
    assert len(cupy.modules) == 1


def test_the_arguments_are_checked_against_the_drivers_table(cupy):
    cupy._function("append_kv")
    with pytest.raises(LaunchError, match="append_kv has 18 parameters, but 1 arguments"):
        launch_checked(
            GpuTarget(), "append_kv", CONSTANTS, (1, 1, 1), (32, 1, 1), [np.uint64(0)], stream=0, keepalive=None
        )
    assert cupy.kernels["append_kv"].calls == []


def test_numpy_arrays_are_refused_where_kernels_run_on_a_gpu(cupy):
    key = np.zeros((5, 2, 64), np.float16)
    with pytest.raises(LaunchError, match="slots must be a CuPy array where kernels run on a GPU, not ndarray"):
        launch.append_kv(GpuTarget(), _pool(), key, key, np.zeros(5, np.int64))
    assert cupy.modules == []


def _start(kernel):
    kernel.launch(GpuTarget(), (1, 1, 1), (32, 1, 1), [np.uint64(0)], 0)


def test_an_illegal_address_is_the_targets_fault_and_other_errors_stay(cupy):
    kernel = CupyKernel(PACKAGE / "append_kv.cu", CONSTANTS, "sm_90")
    cupy._function("append_kv").error = CUDADriverError(700)
    with pytest.raises(KernelFault) as caught:
        _start(kernel)
    assert caught.value.address == 0
    cupy.kernels["append_kv"].error = CUDADriverError(1)
    with pytest.raises(CUDADriverError):
        _start(kernel)


def test_compile_errors_are_one_line(cupy):
    cupy.error = CompileException("append_kv.cu(7): error: no\nmore\n1 error detected")
    with pytest.raises(CompileError, match=r"^NVRTC could not compile append_kv: append_kv\.cu\(7\): error: no$"):
        _start(CupyKernel(PACKAGE / "append_kv.cu", CONSTANTS, "sm_90"))
    cupy.error = RuntimeError("Failed to find CUDA headers. Please install CUDA toolkit headers via pip: ...")
    with pytest.raises(CompilerMissingError, match=r"pip install 'pagewalk\[cuda13\]' \(or \[cuda12\]\)$"):
        _start(CupyKernel(PACKAGE / "append_kv.cu", CONSTANTS, "sm_90"))
    cupy.error = RuntimeError("something else")
    with pytest.raises(RuntimeError, match="something else"):
        _start(CupyKernel(PACKAGE / "append_kv.cu", CONSTANTS, "sm_90"))


def test_without_cupy_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(loader, "_loaded", {})
    with pytest.raises(CompilerMissingError, match=r"need CuPy .*; run: python -m pip install 'pagewalk\[cuda13\]'"):
        loader.load("append_kv", CONSTANTS, "sm_90")


class FakeDriver:
    """cuFuncGetParamInfo of a function with two parameters."""

    def __init__(self, error=None):
        self.error = error

    def __call__(self, function, index):
        assert int(function) == 5
        if self.error:
            raise self.error
        from cuda.bindings import driver

        if index < 2:
            return driver.CUresult.CUDA_SUCCESS, 8 * index, 8 - 4 * index
        return driver.CUresult.CUDA_ERROR_INVALID_VALUE, None, None


def test_the_drivers_table_is_read_to_its_end(monkeypatch):
    from kernels_cu.cupy_kernel import _driver_parameters

    monkeypatch.setattr("cuda.bindings.driver.cuFuncGetParamInfo", FakeDriver())
    assert _driver_parameters(5) == (Parameter(0, 8), Parameter(8, 4))
    monkeypatch.setattr("cuda.bindings.driver.cuFuncGetParamInfo", FakeDriver(RuntimeError("not found in the library")))
    assert _driver_parameters(5) is None


def test_an_old_driver_leaves_the_table_of_the_cubin(cupy, monkeypatch):
    from kernels_cu import nvrtc

    try:
        nvrtc.nvrtc_version()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setattr("kernels_cu.cupy_kernel._driver_parameters", lambda _: None)
    cupy._function("append_kv")
    table = CupyKernel(PACKAGE / "append_kv.cu", CONSTANTS, "sm_90").parameters
    assert [p.size for p in table] == [8] * 5 + [4] * 2 + [8] * 9 + [4] * 2


def test_cupy_itself_takes_the_text_and_the_options():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: python -m pip install 'pagewalk[cuda13]'")
    module = cupy.RawModule(code=gpu_source(PACKAGE / "append_kv.cu"), options=define(CONSTANTS))
    if cupy.is_available():
        assert module.get_function("append_kv").num_regs > 0
    else:  # it gets as far as asking for a device, and the error is the device's
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=r"cudaErrorInsufficientDriver|cudaErrorNoDevice"):
            module.get_function("append_kv")


def test_cupy_arrays_are_seen_as_they_are():
    """CuPy's arrays on memory of ours need no device: address, type, shape and strides are what the checks read."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: python -m pip install 'pagewalk[cuda13]'")
    from kernels_cu.arrays import DTYPES, view

    memory = cupy.cuda.UnownedMemory(1 << 40, 1 << 20, None, device_id=0)
    for dtype, name in [(np.float32, "float32"), (np.float16, "float16"), (DTYPES["bfloat16"], "bfloat16")]:
        array = cupy.ndarray((6, 4, 8), dtype, memptr=cupy.cuda.MemoryPointer(memory, 256))
        seen = view("query", array[::2], "sm_90", name, (None, 4, 8))
        assert (seen.address, seen.shape, seen.row_stride) == ((1 << 40) + 256, (3, 4, 8), 64)
        with pytest.raises(LaunchError, match="query must be packed behind its first axis"):
            view("query", array[:, ::2], "sm_90", name, (None, None, 8))
    with pytest.raises(LaunchError, match="query must be a NumPy array where kernels run on the CPU, not ndarray"):
        view("query", array, "host", "bfloat16", (None, 4, 8))
