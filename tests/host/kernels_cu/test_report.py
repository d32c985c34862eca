"""python -m kernels_cu report: figures from the cubin, as a table and as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from kernels_cu import CompilerMissingError, nvrtc
from kernels_cu.__main__ import run
from kernels_cu.report import KERNELS
from kernels_cu.sass import find_nvdisasm


def _need_nvrtc():
    try:
        return nvrtc.nvrtc_version()
    except CompilerMissingError as error:
        pytest.skip(str(error))


def _need_nvdisasm():
    try:
        find_nvdisasm()
    except CompilerMissingError as error:
        pytest.skip(str(error))


def _hide_nvdisasm(monkeypatch):
    def not_there():
        raise CompilerMissingError("not there")

    monkeypatch.setattr("kernels_cu.report.find_nvdisasm", not_there)


def _run(*arguments, command="report"):
    """What the command line prints, and its exit status."""
    said, complained = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS="100"),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        status = run([command, *arguments] if command else [*arguments])
    return SimpleNamespace(exit_code=status, stdout=said.getvalue(), stderr=complained.getvalue())


def test_the_table_has_every_kernel(monkeypatch):
    version = _need_nvrtc()
    _hide_nvdisasm(monkeypatch)
    done = _run("--arch", "sm_90")
    first, above, header, *rows = done.stdout.splitlines()
    assert first.startswith(f"NVRTC {version}, bfloat16, head_dim 128, hnd; figures of the cubins, no device used")
    assert above.split() == ["thread"]  # blocks, not KV blocks
    assert header.split() == ["kernel", "arch", "registers", "spills", "stack", "shared", "blocks", "params"]
    assert [row.split()[:2] for row in rows] == [[kernel, "sm_90"] for kernel in KERNELS]
    assert all(re.fullmatch(r"\w+ +sm_90 +\d+ +0 +0 +\d+ +\d+ +\d+ *", row) for row in rows)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_command_is_silent_but_for_the_report():
    _need_nvrtc()
    command = [sys.executable, "-m", "kernels_cu", "report", "--arch", "sm_80", "--kernel", "fill_blocks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[3].startswith("fill_blocks  sm_80 ")
    assert done.stderr == ""  # the bar that shows progress is for a terminal


def test_the_main_loop_of_decode_stands_below():
    _need_nvrtc()
    _need_nvdisasm()
    done = _run("--arch", "sm_90", "--kernel", "paged_decode", "--kernel", "append_kv")
    title, header, row = done.stdout.split("\n\n")[1].splitlines()
    assert title == "instructions of the main loop for 16 tokens, and their part of the issue slots"
    assert header.split() == [
        "kernel",
        "arch",
        "all",
        "copies",
        "of",
        "16",
        "B",
        "HMMA",
        "LDSM",
        "MOVM",
        "BAR",
        "issue",
    ]
    assert re.fullmatch(r"paged_decode +sm_90 +\d+ +16 +16 +16 +16 +2 +0 +1\d% *", row)


def test_without_nvdisasm_the_other_figures_are_there(monkeypatch):
    _need_nvrtc()

    _hide_nvdisasm(monkeypatch)
    (row,) = json.loads(_run("--json", "--arch", "sm_90", "--kernel", "paged_decode").stdout)["kernels"]
    assert row["main_loop"] is None
    assert row["thread_blocks"] == 2


def test_json_is_one_object_with_the_parameter_table():
    version = _need_nvrtc()
    found = json.loads(_run("--json", "--arch", "sm_90", "--kernel", "append_kv", "--dtype", "float32").stdout)
    assert (found["schema"], found["nvrtc"]) == (1, version)
    (row,) = found["kernels"]
    assert row["constants"].items() >= {"ELEMENT": "float32", "HEAD_DIM": 128, "LAYOUT_VLLM": 0}.items()
    assert row["registers"] > 8
    assert row["spill_bytes"] == row["stack_bytes"] == row["shared_bytes"] == 0
    assert row["parameters"][4:7] == [{"offset": o, "size": s} for o, s in ((32, 8), (40, 4), (44, 4))]


OWN = """
extern "C" __global__ void own(float* x, long long count) {
    __shared__ float kept[WIDTH];
    kept[threadIdx.x % WIDTH] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = kept[count % WIDTH];
}
"""


def test_a_kernel_of_ones_own_is_reported_by_its_file(tmp_path):
    _need_nvrtc()
    source = tmp_path / "own.cu"
    source.write_text(OWN)
    done = _run("--json", "--kernel", str(source), "-D", "WIDTH=512", "--threads", "1024", "--arch", "sm_90")
    (row,) = json.loads(done.stdout)["kernels"]
    assert (row["kernel"], row["threads"], row["thread_blocks"], row["shared_bytes"]) == ("own", 1024, 2, 2048)
    assert row["constants"]["WIDTH"] == "512"
    assert row["parameters"] == [{"offset": 0, "size": 8}, {"offset": 8, "size": 8}]
    assert row["main_loop"] is None
    table = _run("--kernel", str(source), "-D", "WIDTH=512", "--kernel", "fill_blocks", "--arch", "sm_90").stdout
    assert [line.split()[0] for line in table.splitlines()[3:]] == ["own", "fill_blocks"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "cannot be read: No such file"),
        ("__global__ void own() {}", 'own.cu: kernel own has a C++ name that no launch finds; write extern "C"'),
        ('extern "C" __global__ void other() {}', "own.cu has no kernel own: its kernels are other"),
        (OWN, 'identifier "WIDTH" is undefined'),
    ],
)
def test_what_is_wrong_with_a_kernel_of_ones_own_is_one_line(tmp_path, text, error):
    _need_nvrtc()
    if text:
        (tmp_path / "own.cu").write_text(text)
    done = _run("--kernel", str(tmp_path / "own.cu"), "--arch", "sm_90")
    assert (done.exit_code, done.stdout) == (1, "")
    assert error in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_shows_an_example():
    done = _run("--help")
    assert done.exit_code == 0
    assert "python -m kernels_cu report --dtype float16 --head-dim 128 --arch sm_90" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--head-dim", "12"], "12 is not a multiple of 8"),
        (["--head-dim", "264"], "264 is not in the range"),
        (["--dtype", "int4"], "'int4' is not one of"),
        (["--layout", "dhn"], "'dhn' is not one of"),
        (["--kernel", "nothing"], "'nothing' is not one of"),
        (["--shout"], "No such option"),
        (["--memory", "--kernel", "fill_blocks"], "--memory has no fill_blocks of bfloat16, head_dim 128"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments, text):
    done = _run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.fullmatch(rf"error: .*{re.escape(text)}.*\n", done.stderr)


def test_a_kernel_that_is_not_made_for_such_a_cache_is_one_line():
    _need_nvrtc()
    done = _run("--layout", "vllm", "--kernel", "paged_decode")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: paged_decode: not made for bfloat16, head_dim 128, layout vllm\n"


def test_without_a_command_the_help_is_shown_and_the_error_is_one_line():
    done = _run(command="")
    assert done.exit_code == 2
    assert "report" in done.stdout
    assert done.stderr == "error: name a command: report\n"
    assert _run(command="nothing").stderr == "error: No such command 'nothing'.\n"


def test_an_architecture_that_nvrtc_does_not_know_is_one_line():
    _need_nvrtc()
    done = _run("--arch", "sm_30")
    assert done.exit_code == 1
    assert re.fullmatch(r"error: NVRTC could not compile append_kv for sm_30: .*\n", done.stderr)


def test_a_missing_nvrtc_is_one_line_that_names_the_extra(monkeypatch):
    def not_there():
        raise RuntimeError("no library")

    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", not_there)
    done = _run()
    assert done.exit_code == 1
    assert re.fullmatch(r"error: the NVRTC library was not found .*pip install 'pagewalk\[test\]'\n", done.stderr)
