"""Count, width and kind of a launch's arguments are checked against what the compiler says the kernel takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostTarget, LaunchError
from kernels_cu.checked_launch import launch_checked
from kernels_cu.cubin import kernel_parameters
from kernels_cu.errors import CompileError
from kernels_cu.host_kernel import HostKernel
from kernels_cu.parameters import Parameter, check_arguments, pack_arguments

KERNEL = Path(__file__).with_name("mixed.cu")
MIXED = [(0, 8, "p"), (8, 4, "i"), (16, 8, "i"), (24, 4, "f"), (32, 8, "f"), (40, 4, "u"), (48, 8, "u")]
"""What C lays out for (double*, int, long long, float, double, unsigned, unsigned long long)."""


def _arguments(out):
    return [
        np.uint64(out.ctypes.data),
        np.int32(-3),
        np.int64(-(1 << 40)),
        np.float32(0.5),
        np.float64(1 / 3),
        np.uint32(1 << 31),
        np.uint64(1 << 63),
    ]


def _launch(arguments, grid=(1, 1, 1)):
    launch_checked(HostTarget(), KERNEL, {}, grid, (32, 1, 1), arguments, stream=0, keepalive=None)


@pytest.mark.usefixtures("target")
def test_the_table_follows_from_the_functions_type():
    assert list(HostKernel(KERNEL, {}).parameters) == [Parameter(*row) for row in MIXED]


@pytest.mark.usefixtures("target")
def test_every_value_arrives():
    out = np.zeros(6)
    arguments = _arguments(out)
    _launch(arguments)
    assert out.tolist() == [float(argument) for argument in arguments[1:]]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: a[:-1], "mixed has 7 parameters, but 6 arguments were passed"),
        (lambda a: [*a, np.int32(0)], "mixed has 7 parameters, but 8 arguments were passed"),
        (lambda a: [*a[:3], 0.5, *a[4:]], "argument 3 must be a NumPy scalar of a fixed width, not 0.5"),
        (lambda a: [*a[:3], np.float64(0.5), *a[4:]], r"argument 3 has 8 bytes \(float64\), .* parameter has 4"),
        (lambda a: [a[0], np.int64(-3), *a[2:]], r"argument 1 has 8 bytes \(int64\), .* parameter has 4"),
        (lambda a: [a[2], a[1], a[0], *a[3:]], "argument 0 is int64, not an address"),
        (lambda a: [*a[:3], np.int32(1), *a[4:]], "argument 3 is int32, not a float"),
        (lambda a: [*a[:5], np.int32(1), a[6]], "argument 5 is int32, not an unsigned integer"),
    ],
)
@pytest.mark.usefixtures("target")
def test_a_mismatch_is_an_error_and_launches_nothing(change, text):
    out = np.zeros(6)
    with pytest.raises(LaunchError, match=text):
        _launch(change(_arguments(out)))
    assert (out == 0).all()


def test_a_table_without_kinds_checks_sizes():
    table = [Parameter(offset, size) for offset, size, _ in MIXED]
    arguments = _arguments(np.zeros(6))
    check_arguments("mixed", table, arguments)
    check_arguments("mixed", table, [np.int64(0), *arguments[1:]])
    with pytest.raises(LaunchError, match="argument 4 has 4 bytes"):
        check_arguments("mixed", table, [*arguments[:4], np.float32(0), *arguments[5:]])


def test_arguments_are_packed_where_the_table_says():
    table = (Parameter(0, 4), Parameter(8, 8), Parameter(16, 2))
    packed = pack_arguments(table, [np.int32(1), np.uint64(2), np.int16(3)])
    assert packed == bytes([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0])


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
@pytest.mark.usefixtures("target")
def test_a_grid_without_blocks_launches_nothing(grid):
    out = np.zeros(6)
    _launch(_arguments(out), grid)
    assert (out == 0).all()


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF\x01\x01", b"PTX"])
def test_what_is_no_cubin_is_an_error(cubin):
    with pytest.raises(CompileError, match="not a cubin"):
        kernel_parameters(cubin, "mixed")
