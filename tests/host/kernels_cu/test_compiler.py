"""Which compiler is taken, what a machine without one is told, and what a user sees of a compile."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import pytest

from kernels_cu import CompileError, CompilerMissingError, HostTarget
from kernels_cu import compiler as compilers
from kernels_cu.catalogue import KERNELS, built_for
from kernels_cu.compiler import FLAGS, Compiler, find_compiler, first_error
from kernels_cu.host_build import build_kernel
from kernels_cu.source import PACKAGE, gpu_source

CONSTANTS = {"ELEMENT": "float32", "HEAD_DIM": 8, "LAYOUT_VLLM": 0}


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH with nothing on it but the compilers that the test puts there, and no CXX and no ziglang."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda _: None)

    def add(name, macros, status=0):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\nprintf '{macros}'\nexit {status}\n")
        script.chmod(0o755)
        return str(script)

    yield add
    compilers._find_compiler.cache_clear()


def test_without_a_compiler_the_error_says_how_to_get_one(tools, cases):  # noqa: ARG001
    with pytest.raises(CompilerMissingError) as caught:
        find_compiler()
    assert str(caught.value) == (
        "kernels on the CPU need a C++ compiler: there is no C++ compiler on the PATH; "
        "install g++ 12 or clang 15 or newer, or run: python -m pip install 'pagewalk[host]'"
    )
    case = cases.Case("float32", head_dim=248, lengths=(1,))
    with pytest.raises(CompilerMissingError, match=r"python -m pip install 'pagewalk\[host\]'"):
        case.attend(HostTarget())


def test_the_first_that_is_new_enough_is_taken(tools):
    tools("c++", "#define __GNUC__ 11\\n")
    new = tools("clang++", "#define __GNUC__ 4\\n#define __clang_major__ 15\\n")
    assert find_compiler().command == (new,)


@pytest.mark.parametrize(
    ("macros", "status", "text"),
    [
        ("#define __GNUC__ 11\\n", 0, "g\\+\\+ is g\\+\\+ 11, 12 is needed; install g\\+\\+ 12 or clang 15 or newer"),
        ("#define __GNUC__ 4\\n#define __clang_major__ 14\\n", 0, "is clang 14, 15 is needed"),
        ("", 1, "did not run: it gave no reason \\(exit status 1\\)"),
        ("", 0, "is not a C\\+\\+ compiler that runs"),
    ],
)
def test_what_is_too_old_is_named(tools, macros, status, text):
    tools("g++", macros, status)
    with pytest.raises(CompilerMissingError, match=text):
        find_compiler()


def test_cxx_comes_first_and_alone(tools, monkeypatch):
    tools("c++", "#define __GNUC__ 13\\n")
    mine = tools("mine", "#define __GNUC__ 12\\n")
    monkeypatch.setenv("CXX", "mine -DX=1")
    assert find_compiler().command == ("mine", "-DX=1")
    monkeypatch.setenv("CXX", mine + "-not-there")
    with pytest.raises(
        CompilerMissingError, match=r"CXX names '.*mine-not-there', which is not on the PATH; unset it, or"
    ):
        find_compiler()


def test_ziglang_is_the_last_resort(tools, monkeypatch):
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: name == "ziglang" or None)
    ran = []

    def run(command):
        ran.append(command)
        return compilers.subprocess.CompletedProcess(command, 0, "#define __clang_major__ 20\n", "")

    monkeypatch.setattr(compilers, "_run", run)
    found = find_compiler()
    assert found.command == (sys.executable, "-m", "ziglang", "c++", "-nostdlib++")
    assert found.name == "zig c++"
    found.run("a kernel", "-DX=1", "a.cpp", "-o", "a.so")
    assert ran[1] == [*found.command, *FLAGS, "-DX=1", "a.cpp", "-o", "a.so"]
    compilers._find_compiler.cache_clear()
    tools("g++", "#define __GNUC__ 12\\n")
    assert find_compiler().command[0].endswith("g++")


def test_a_compiler_that_never_answers_is_given_up(tmp_path, monkeypatch):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setattr(compilers, "LONGEST_RUN_S", 0.2)
    with pytest.raises(CompilerMissingError, match=r"slow did not run: error: no answer in 0\.2 s; set PAGEWALK_CACHE"):
        find_compiler()


@pytest.mark.parametrize("chosen", ["g++ 'x", "   '", "/tmp"])
def test_a_choice_that_is_no_command_is_one_line(monkeypatch, chosen):
    monkeypatch.setenv("CXX", chosen)
    with pytest.raises(CompilerMissingError, match=r"CXX names .* which is not on the PATH; unset it") as raised:
        find_compiler()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        (
            "/usr/bin/ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status\n",
            "/usr/bin/ld: final link failed: No space left on device",
        ),
        ("ld: warning: old\nld: final link failed: bad value\n", "ld: final link failed: bad value"),
        ("In file included\nk.cu:3:1: error: no x\nk.cu:4:1: error: no y\n", "k.cu:3:1: error: no x"),
        ("collect2: error: ld returned 1 exit status\n", "collect2: error: ld returned 1 exit status"),
        ("\n  Killed\n", "Killed"),
        ("", "it gave no reason (exit status 4)"),
    ],
)
def test_what_a_compiler_said_is_told_by_its_most_telling_line(stderr, told):
    assert first_error(subprocess.CompletedProcess([], 4, "", stderr)) == told


def test_zig_is_told_where_to_keep_its_files(tmp_path, monkeypatch):
    teller = tmp_path / "teller"
    teller.write_text('#!/bin/sh\necho "error: $ZIG_GLOBAL_CACHE_DIR" >&2\nexit 1\n')
    teller.chmod(0o755)
    monkeypatch.setenv("CXX", str(teller))
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "kept"))
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    with pytest.raises(CompilerMissingError, match=rf"teller did not run: error: {tmp_path}/kept/zig;"):
        find_compiler()


@pytest.mark.usefixtures("target")
def test_an_error_in_a_kernel_is_one_line_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "cache"))
    broken = tmp_path / "broken.cu"
    broken.write_text('#include "paged_kv.cuh"\n\nextern "C" __global__ void broken(int* x) { *x = nothing_here; }\n')
    with pytest.raises(
        CompileError, match=r"could not compile broken: broken\.cu:3:\d+: error: .*nothing_here"
    ) as caught:
        build_kernel(broken, CONSTANTS)
    assert "\n" not in str(caught.value)
    left = {path.name.split("-")[0] for path in (tmp_path / "cache").iterdir()}
    assert left == {"before_shared", "behind_shared"}  # what every kernel is linked with


def test_a_missing_header_is_named(tmp_path):
    source = tmp_path / "k.cu"
    source.write_text('#include "nowhere.cuh"\n')
    with pytest.raises(
        CompileError, match=rf"k\.cu includes nowhere\.cuh, which is neither in {tmp_path} nor in .*kernels_cu$"
    ):
        gpu_source(source)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "lines"), [(Terminal, 1), (io.StringIO, 0)])
@pytest.mark.usefixtures("target")
def test_a_compile_is_announced_on_a_terminal_and_in_the_log(tmp_path, monkeypatch, caplog, stream, lines):
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    seen = stream()
    monkeypatch.setattr(sys, "stderr", seen)
    with caplog.at_level(logging.INFO, "pagewalk"):
        build_kernel(PACKAGE / "paged_attention_simple.cu", CONSTANTS)
        build_kernel(PACKAGE / "paged_attention_simple.cu", CONSTANTS)
    (record,) = caplog.records
    assert record.name == "pagewalk"
    assert record.message.startswith(
        "compiling paged_attention_simple (ELEMENT=float32 HEAD_DIM=8 LAYOUT_VLLM=0) with "
    )
    assert record.message.endswith(" s")
    assert seen.getvalue().count("\n") == lines
    assert seen.getvalue().startswith("pagewalk: compiling paged_attention" if lines else "")


def _strict():
    found = find_compiler()
    return Compiler((*found.command, "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"), found.identity)


IN_A_PLAIN_RUN = ("append_kv", "paged_attention_simple", "paged_decode")


@pytest.mark.parametrize(
    "kernel",
    [name if name in IN_A_PLAIN_RUN else pytest.param(name, marks=pytest.mark.exhaustive) for name in KERNELS],
)
@pytest.mark.usefixtures("target")
def test_the_sources_give_no_warnings(tmp_path, monkeypatch, kernel):
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    strict = _strict()
    monkeypatch.setattr("kernels_cu.host_build.find_compiler", lambda: strict)
    for layout in ("hnd", "vllm"):
        if built := built_for(kernel, "float16", 64, layout, "host"):
            assert build_kernel(PACKAGE / f"{kernel}.cu", built.constants).is_file()


@pytest.mark.usefixtures("target")
def test_the_runtime_gives_no_warnings(tmp_path, monkeypatch):
    from kernels_cu.host_build import build_runtime

    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    strict = _strict()
    monkeypatch.setattr("kernels_cu.host_build.find_compiler", lambda: strict)
    assert build_runtime().is_file()


def test_a_kernel_that_is_loaded_needs_no_compiler_any_more(target, cases, monkeypatch):
    case = cases.Case("float32", head_dim=8, lengths=(40,))
    case.append(target)
    first = case.attend(target)
    monkeypatch.setattr("kernels_cu.host_build.find_compiler", lambda: pytest.fail("looked for a compiler"))
    assert (case.attend(target) == first).all()
