"""Kernels of a user: found by their file's name, compiled again when they change, and told what is wrong with them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kernels_cu import CompileError, HostTarget, KernelError
from kernels_cu.checked_launch import launch_checked
from kernels_cu.kernel_name import kernel_names
from kernels_cu.loader import load

TEXT = 'extern "C" __global__ void set(int* x) { *x = VALUE; }\n'


@pytest.fixture
def folder(tmp_path, target):  # noqa: ARG001 - skips without a compiler
    """Where the kernels are written."""
    return tmp_path


def _value(source, **constants):
    x = np.zeros(1, np.int32)
    launch_checked(
        HostTarget(), source, constants, (1, 1, 1), (1, 1, 1), (np.uint64(x.ctypes.data),), stream=0, keepalive=x
    )
    return x[0]


def _write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_an_edited_kernel_runs_as_it_is_now(folder):
    source = _write(folder / "set.cu", TEXT.replace("VALUE", "1"))
    assert _value(source) == 1
    first = load(source, {}, "host")
    assert load(source, {}, "host") is first
    _write(source, TEXT.replace("VALUE", "2"))
    assert _value(source) == 2
    _write(source, TEXT.replace("VALUE", "1"))
    assert _value(source) == 1


def test_an_edited_header_of_ones_own_counts_too(folder):
    _write(folder / "value.cuh", "#define VALUE 3\n")
    source = _write(folder / "set.cu", '#include "value.cuh"\n' + TEXT)
    assert _value(source) == 3
    _write(folder / "value.cuh", "#define VALUE 4\n")
    assert _value(source) == 4


def test_a_relative_path_means_the_file_that_it_names_now(folder, monkeypatch):
    for number in (5, 6):
        source = _write(folder / str(number) / "set.cu", TEXT.replace("VALUE", str(number)))
        monkeypatch.chdir(source.parent)
        assert _value(source.relative_to(source.parent)) == number


def test_a_replaced_file_of_the_same_size_and_time_is_another(folder):
    source = _write(folder / "set.cu", TEXT.replace("VALUE", "1"))
    assert _value(source) == 1
    before = source.stat()
    other = _write(folder / "other", TEXT.replace("VALUE", "2"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(source)
    assert _value(source) == 2


def test_a_kernel_without_parameters(folder):
    source = _write(folder / "empty.cu", 'extern "C" __global__ void empty() {}\n')
    launch_checked(HostTarget(), source, {}, (1, 1, 1), (32, 1, 1), (), stream=0, keepalive=None)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("one.cu", 'extern "C" __global__ void two(int* x) {}', r"one\.cu has no kernel one: its kernels are two; a "),
        ("one.cu", "// __global__ void one()\nint x;", r"one\.cu has no kernel one: it has no __global__ function"),
        ("one.cu", "__global__ void one(int* x) {}", r'kernel one has a C\+\+ name .*; write extern "C" __global__'),
        ("my-one.cu", 'extern "C" __global__ void one(int* x) {}', r"my-one\.cu: .* 'my-one' is no name in C; rename"),
        (
            "one.cu",
            'extern "C" __global__ void one(int* x) { y; }',
            r"could not compile one: one\.cu:1:\d+: error: .*y",
        ),
    ],
)
def test_what_is_wrong_with_a_kernel_is_one_line(folder, name, text, error):
    with pytest.raises(CompileError, match=error) as caught:
        _value(_write(folder / name, text))
    assert "\n" not in str(caught.value)


def test_a_block_of_c_names_a_kernel_too(folder):
    text = 'extern "C" {\n__global__ void __launch_bounds__(32 * (1 + 1), 2) set(int* x) { *x = 8; }\n}\n'
    assert _value(_write(folder / "set.cu", text)) == 8
    assert kernel_names(text) == ["set"]


def test_a_file_that_is_not_there_is_named(folder):
    with pytest.raises(CompileError, match=rf"^kernel source {folder}/set\.cu cannot be read: No such file"):
        _value(folder / "set.cu")
    source = _write(folder / "set.cu", TEXT)
    assert _value(source, VALUE=9) == 9
    source.unlink()
    with pytest.raises(CompileError, match=rf"^kernel source {folder}/set\.cu cannot be read: No such file"):
        _value(source, VALUE=9)


@pytest.mark.parametrize("name", ["set", "set.cu", "../set", ""])
def test_a_string_is_a_name_of_the_packages_kernels(target, name):  # noqa: ARG001 - skips without a compiler
    with pytest.raises(CompileError, match=rf"'{name}' is no kernel of the package.*: Path\('.*\.cu'\)$"):
        _value(name)


TURNED = """
extern "C" __global__ void turned(int* x) {
    extern __shared__ ALIGNED TYPE kept[];
    int* const ints = (int*)kept;
    ints[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = ints[blockDim.x - 1 - threadIdx.x];
}
"""


@pytest.mark.parametrize(
    ("aligned", "of"), [("", "int"), ("", "float4"), ("__align__(16)", "unsigned char"), ("alignas(16)", "float4")]
)
def test_dynamic_shared_memory_as_cuda_writes_it(folder, aligned, of):
    source = _write(folder / "turned.cu", TURNED.replace("ALIGNED", aligned).replace("TYPE", of))
    x = np.arange(64, dtype=np.int32)
    arguments = (np.uint64(x.ctypes.data),)
    for shared_bytes, after in ((256, np.arange(64)[::-1]), (128, None)):
        try:
            launch_checked(
                HostTarget(), source, {}, (1, 1, 1), (64, 1, 1), arguments,
                stream=0, keepalive=x, shared_bytes=shared_bytes,
            )  # fmt: skip
            assert x.tolist() == after.tolist()
        except KernelError as error:
            assert after is None
            assert "touches byte 128 of dynamic shared memory, of which the launch gave 128" in str(error)


def test_dynamic_shared_memory_outside_a_function_is_an_error(folder):
    source = _write(folder / "one.cu", 'extern __shared__ int kept[];\nextern "C" __global__ void one(int* x) {}\n')
    with pytest.raises(CompileError, match=r"could not compile one: one\.cu:1:\d+: error"):
        _value(source)
