"""What can be said of a kernel's speed from its machine code: the tools on code that is known, then every kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from kernels_cu import CompileError, CompilerMissingError, nvrtc
from kernels_cu.catalogue import KERNELS, built_for
from kernels_cu.constants import define
from kernels_cu.main_loop import MACHINES, main_loop
from kernels_cu.nvrtc import compile_cubin
from kernels_cu.occupancy import thread_blocks
from kernels_cu.report import resources
from kernels_cu.sass import Code, Instruction, disassemble
from kernels_cu.source import PACKAGE, gpu_source

ARCHS = ("sm_80", "sm_90", "sm_100")
SOME = [arch if arch == "sm_90" else pytest.param(arch, marks=pytest.mark.exhaustive) for arch in ARCHS]
"""A plain run looks at one of them: disassembling takes longer than compiling."""
LOOPS = Path(__file__).with_name("loops.cu")


@pytest.fixture(scope="module", autouse=True)
def _tools():
    try:
        nvrtc.nvrtc_version()
        disassemble(b"", "nothing")
    except CompilerMissingError as error:
        pytest.skip(str(error))
    except CompileError:
        pass  # nvdisasm is there, and wants a cubin


@cache
def _code(kernel, arch, dtype="bfloat16", head_dim=128, **options):
    built = built_for(kernel, dtype, head_dim, "hnd", arch)
    if built is None:
        pytest.skip(f"{kernel} is not made for {dtype}")
    text = gpu_source(PACKAGE / f"{kernel}.cu")
    return disassemble(compile_cubin(kernel, text, define({**built.constants, **options}), arch).cubin, kernel)


def _loops(**constants):
    return disassemble(compile_cubin("loops", gpu_source(LOOPS), define(constants), "sm_90").cubin, "loops")


def test_loops_are_what_lies_between_a_label_and_a_branch_back_to_it():
    lines = [("", ".L_x_0"), ("IADD3", ""), ("", ".L_x_1"), ("HMMA.16816.F32", ""), ("BRA.U", "UP0, `(.L_x_1)")]
    lines += [("BRA", "`(.L_x_2)"), ("BRA", "`(.L_x_0)"), ("", ".L_x_2"), ("EXIT", "")]
    loops = list(Code([Instruction(*line) for line in lines]).loops())
    assert [[line.name for line in loop.instructions] for loop in loops] == [
        ["HMMA", "BRA"],
        ["IADD3", "HMMA", "BRA", "BRA", "BRA"],
    ]


def test_a_main_loop_is_the_one_that_copies_and_multiplies():
    found = main_loop(_loops())
    assert (found.copies, found.wide_copies, found.products, found.matrix_loads) == (1, 1, 1, 1)
    assert (found.transposes, found.barriers, found.bytes) == (1, 0, 512)
    assert found.for_tokens(found.products, token_bytes=512) == 16
    assert main_loop(_loops(BARRIER=1)).barriers == 1
    narrow = main_loop(_loops(NARROW_COPY=1))
    assert (narrow.copies, narrow.wide_copies) == (2, 1)


def test_a_kernel_without_such_a_loop_has_none():
    assert main_loop(_code("append_kv", "sm_90")) is None


def test_a_cubin_has_its_own_kernels_only():
    cubin = compile_cubin("loops", gpu_source(LOOPS), (), "sm_90").cubin
    with pytest.raises(CompileError, match="the cubin has no kernel other; it has loops"):
        disassemble(cubin, "other")
    with pytest.raises(CompileError, match="nvdisasm refused the cubin of loops"):
        disassemble(b"not a cubin", "loops")


@pytest.mark.parametrize(
    ("registers", "shared_kib", "sm_80", "sm_90"),
    [
        (124, 96, 1, 2),
        (124, 64, 2, 3),
        (124, 128, 1, 1),
        (80, 48, 3, 4),
        (255, 0, 2, 2),
        (32, 0, 16, 16),
        (0, 0, 16, 16),
    ],
)
def test_occupancy_of_blocks_of_four_warps(registers, shared_kib, sm_80, sm_90):
    for arch, wanted in (("sm_80", sm_80), ("sm_90", sm_90), ("sm_100", sm_90)):
        assert thread_blocks(arch, 128, registers, shared_kib * 1024) == wanted


def test_occupancy_of_other_blocks():
    assert thread_blocks("sm_90", 1024, 32, 0) == 2
    assert thread_blocks("sm_90", 1024, 65, 0) == 0  # 72 registers a thread are more than there are
    assert thread_blocks("sm_90", 32, 16, 0) == 32
    assert thread_blocks("sm_90", 33, 16, 0) == 32
    assert thread_blocks("sm_90", 96, 168, 0) == 4  # 3 warps of 5376 registers: each part has room for 3


TENSOR_CORES = [name for name in ("paged_decode", "contiguous_decode", "paged_prefill") if name in KERNELS]
LARGE = [name if name in TENSOR_CORES else pytest.param(name, marks=pytest.mark.exhaustive) for name in KERNELS]


@pytest.mark.parametrize("arch", SOME)
@pytest.mark.parametrize("kernel", LARGE)
def test_no_local_memory_and_no_double_precision(kernel, arch):
    code = _code(kernel, arch)
    assert len(code.instructions) > 10
    assert code.count(r"(LDL|STL)\b.*") == 0
    assert code.count(r"(DADD|DMUL|DFMA|DSETP|F2F\.F64|I2F\.F64).*") == 0


DECODE = [name for name in ("paged_decode", "contiguous_decode") if name in KERNELS]


@pytest.mark.parametrize(("dtype", "arch"), [("bfloat16", arch) for arch in ARCHS] + [("float16", "sm_90")])
@pytest.mark.parametrize("kernel", DECODE)
def test_decode_moves_16_bytes_a_lane_and_multiplies_on_tensor_cores(kernel, dtype, arch):
    code = _code(kernel, arch, dtype)
    loop = main_loop(code)
    assert code.count(r"LDGSTS\b.*") == code.count(r"LDGSTS\b.*\.128")
    assert (loop.copies, loop.wide_copies, loop.bytes) == (16, 16, 8192)
    token_bytes = 2 * 128 * 2
    counts = loop.products, loop.matrix_loads, loop.transposes
    assert [loop.for_tokens(count, token_bytes) for count in counts] == [16, 16, 2]
    assert loop.barriers == 0
    assert code.count(r"LDGDEPBAR") > 0


@pytest.mark.parametrize("kernel", DECODE)
def test_decode_leaves_the_memory_busy(kernel):
    """sm_90, head_dim 128. The code is the same for every group up to 8: the query's rows are padded to 8."""
    for dtype in ("float16", "bfloat16"):
        built = built_for(kernel, dtype, 128, "hnd", "sm_90")
        needs = resources(kernel, built.constants, "sm_90")
        assert (needs.spills, needs.stack) == (0, 0)
        assert needs.registers <= 128
        assert thread_blocks("sm_90", built.threads, needs.registers, built.shared_bytes + needs.shared) == 2
        assert main_loop(_code(kernel, "sm_90", dtype)).issue_share(MACHINES["sm_90"]) <= 0.20


def _check_share(kernel, dtype, head_dim, arch):
    """With half of the slots the memory never waits. Elements of 8 bits take more: conversions, for half the bytes."""
    loop = main_loop(_code(kernel, arch, dtype, head_dim))
    most = 0.5 if dtype == "float16" else 0.9 if arch == "sm_100" else 0.6
    assert loop.issue_share(MACHINES[arch]) <= most
    assert (loop.barriers, loop.copies) == (0, loop.wide_copies)


@pytest.mark.parametrize("dtype", ["float16", "e4m3", "int8"])
@pytest.mark.parametrize("kernel", DECODE)
def test_decode_of_a_narrow_cache_has_issue_slots_to_spare(kernel, dtype):
    _check_share(kernel, dtype, 128, "sm_90")


@pytest.mark.exhaustive
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "e4m3", "int8"])
@pytest.mark.parametrize("kernel", DECODE)
def test_the_same_for_every_head_dim_and_architecture(kernel, dtype, head_dim):
    for arch in ARCHS:
        _check_share(kernel, dtype, head_dim, arch)


@pytest.mark.parametrize("kernel", ["copy_blocks", "fill_blocks"])
@pytest.mark.parametrize("arch", SOME)
def test_whole_blocks_are_written_16_bytes_at_a_time(kernel, arch):
    code = _code(kernel, arch)
    assert code.count(r"STG\b.*") == code.count(r"STG\b.*\.128") > 0


@pytest.mark.parametrize("kernel", ["append_kv", "gather_kv"])
@pytest.mark.parametrize("arch", SOME)
def test_tokens_are_moved_16_bytes_at_a_time(kernel, arch):
    code = _code(kernel, arch)
    assert code.count(r"STG\b.*") == code.count(r"STG\b.*\.128") > 0
    assert code.count(r"LDG\b.*\.128.*") >= 2
    assert code.count(r"LDG\b.*") - code.count(r"LDG\b.*\.128.*") == 1  # the token's slot
