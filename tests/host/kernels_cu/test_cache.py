"""Compiled objects are kept by content, and any number of processes may make them at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernels_cu import CompileError
from kernels_cu.cache import STALE_S, cache_folder, content_key, fetch
from kernels_cu.compiler import Compiler, find_compiler
from kernels_cu.host_build import build_kernel
from kernels_cu.source import gpu_source, host_source

CONSTANTS = {"ELEMENT": "float32", "HEAD_DIM": 8, "LAYOUT_VLLM": 0}
KERNEL = '#include "header.cuh"\nextern "C" __global__ void k(int* x) { *x = VALUE; }\n'


@pytest.fixture
def kernel(tmp_path, monkeypatch, target):  # noqa: ARG001 - skips without a compiler
    """A kernel with a header of its own, and an empty cache."""
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "header.cuh").write_text("#define VALUE 1\n")
    (tmp_path / "k.cu").write_text(KERNEL)
    return tmp_path / "k.cu"


def test_the_folder_is_the_users_choice(monkeypatch):
    monkeypatch.delenv("PAGEWALK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/pagewalk")
    monkeypatch.setenv("XDG_CACHE_HOME", "/tmp/xdg")
    assert cache_folder() == Path("/tmp/xdg/pagewalk")
    monkeypatch.setenv("PAGEWALK_CACHE", "/tmp/mine")
    assert cache_folder() == Path("/tmp/mine")


def test_parts_do_not_run_into_each_other():
    assert content_key(["ab", "c"]) != content_key(["a", "bc"])
    assert content_key(["ab", "c"]) == content_key(["ab", "c"])


def test_the_same_content_is_compiled_once(kernel, monkeypatch):
    first = build_kernel(kernel, CONSTANTS)
    monkeypatch.setattr(Compiler, "run", lambda *_: pytest.fail("compiled again"))
    assert build_kernel(kernel, CONSTANTS) == first


def test_constants_headers_flags_and_processor_are_a_part_of_the_name(kernel, monkeypatch):
    names = [build_kernel(kernel, CONSTANTS), build_kernel(kernel, {**CONSTANTS, "HEAD_DIM": 16})]
    kernel.with_name("header.cuh").write_text("#define VALUE 2\n")
    names.append(build_kernel(kernel, CONSTANTS))
    monkeypatch.setattr("kernels_cu.host_build.FLAGS", ("-DOTHER",))
    names.append(build_kernel(kernel, CONSTANTS))
    found = find_compiler()
    other = Compiler(found.command, found.identity + "#define __AVX1024__ 1\n")
    monkeypatch.setattr("kernels_cu.host_build.find_compiler", lambda: other)
    names.append(build_kernel(kernel, CONSTANTS))
    assert len(set(names)) == len(names)


@pytest.mark.usefixtures("target")
def test_what_a_compiler_says_of_itself_names_its_version_and_the_processor():
    identity = find_compiler().identity
    assert "#define __VERSION__ " in identity
    assert "#define __AVX2__ 1" in identity if " avx2 " in Path("/proc/cpuinfo").read_text() else True


def test_both_texts_hold_their_headers(kernel):
    for text in (gpu_source(kernel), host_source(kernel)):
        assert "#define VALUE 1" in text
        assert '#include "' not in text
    assert "<" not in gpu_source(kernel).replace("VALUE", "")


def test_a_failed_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))

    def build(path):
        path.write_text("half")
        raise CompileError("no")

    with pytest.raises(CompileError, match="no"):
        fetch("object.so", build)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(
        CompileError, match=r"cannot keep compiled kernels in .*; set PAGEWALK_CACHE to a writable folder"
    ):
        fetch("object.so", lambda path: path.write_text(""))


def _old(folder):
    long_ago = time.time() - STALE_S - 1
    os.utime(folder, (long_ago, long_ago))


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    outside, dead, fresh, link = (
        tmp_path / name for name in ("kept", "building-dead", "building-new", "building-link")
    )
    for folder in (outside, dead, fresh):
        folder.mkdir()
        (folder / "half.so").write_text("")
    link.symlink_to(outside)
    for folder in (outside, dead):
        _old(folder)
    fetch("object.so", lambda path: path.write_text("whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["building-link", "building-new", "kept", "object.so"]
    assert (outside / "half.so").exists()


def test_the_folder_of_a_process_that_lives_stays_however_old_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    other = """
import sys
from kernels_cu.cache import fetch
def build(path):
    print(path, flush=True)
    sys.stdin.readline()
    path.write_text("slow")
fetch("slow.so", build)
"""
    command = [sys.executable, "-c", other]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        folder = Path(process.stdout.readline().strip()).parent
        _old(folder)
        fetch("one.so", lambda path: path.write_text(""))
        assert folder.is_dir()
        process.kill()
        process.wait()
        _old(folder)
        fetch("two.so", lambda path: path.write_text(""))
        assert not folder.exists()


@pytest.mark.usefixtures("target")
def test_processes_that_compile_the_same_at_once_all_succeed(tmp_path):
    program = """
import numpy as np
from kernels_cu import HostTarget, launch, PagedKV
pool = np.zeros((2, 1, 4, 8), np.float32)
kv = PagedKV(pool.ctypes.data, pool.ctypes.data, "float32", "hnd", 4, 1, 8, 32, 32, 8)
ones = np.ones((1, 1, 8), np.float32)
launch.append_kv(HostTarget(), kv, ones, ones, np.array([5]))
assert pool.sum() == pool[1, 0, 1].sum() == 8
"""
    environment = {**os.environ, "PAGEWALK_CACHE": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(3)]
    assert [process.wait(timeout=120) for process in started] == [0, 0, 0]
    built = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert built == ["append_kv", "before_shared", "behind_shared", "runtime"]
