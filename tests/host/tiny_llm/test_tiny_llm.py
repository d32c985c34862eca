"""The program as its reader runs it."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
import tiny_llm
from llama.checkpoint import read_checkpoint
from llama.tokenizer import read_tokenizer
from micro import tour

from kernels_cu import CompileError


def run(examples, *arguments, program="tiny_llm.py", **environment):
    """The program as a process."""
    return subprocess.run(
        [sys.executable, "-W", "error", str(examples / program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, **environment},
    )


@pytest.fixture
def here(capsys):
    """Runs the program's ``main`` in this process: exit status, standard output, standard error."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            tiny_llm.main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        code = ended.value.code
        return (1, out, f"{err}{code}\n") if isinstance(code, str) else (code, out, err)

    return call


@pytest.mark.usefixtures("compiler")
def test_without_arguments_it_is_a_tour_that_checks_itself(examples):
    done = run(examples)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "7 of 7 chapters are right" in done.stdout
    assert "WRONG" not in done.stdout


def test_a_chapter_that_is_wrong_is_said(stage, monkeypatch, capsys):
    def spoiled(model, cache, request):
        return generate(model, cache, request)[: -1 if cache is stage.contiguous else None]

    generate = tour.generate
    monkeypatch.setattr(tour, "CHAPTERS", [tour.answers])
    assert tour.tour(stage)
    monkeypatch.setattr(tour, "generate", spoiled)
    assert not tour.tour(stage)
    assert "WRONG" in capsys.readouterr().out


def test_a_tour_that_is_wrong_is_exit_status_1(here, monkeypatch):
    monkeypatch.setattr(tiny_llm, "tour", lambda _stage: False)
    assert here()[0] == 1


@pytest.mark.usefixtures("compiler")
def test_the_published_text_and_a_line_of_figures(examples, stories):
    done = run(examples, stories / "stories260K.bin")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (stories / "stories260K_greedy.txt").read_text()
    assert "256 tokens in" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("compiler")
def test_prompts_run_as_one_batch_and_a_seed_gives_the_same_text(here):
    drawn = [
        here("--prompt", "one plus one is", "--prompt", "two", "--prompt", "two", *how, "--tokens", 12)[1]
        for how in (["--temperature", 1], ["--temperature", 1, "--seed", 0], ["--temperature", 1, "--seed", 5])
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    first, second, third = drawn[0].strip().split("\n\n")
    assert first.startswith("one plus one is two.")
    assert second[:3] == third[:3] == "two"
    assert second != third  # each has a seed of its own


@pytest.mark.usefixtures("compiler")
def test_beams_from_the_command_line(here):
    status, out, _err = here("--prompt", "one plus one is", "--beams", 3, "--tokens", 2, "--order", "layer")
    assert (status, out) == (0, "one plus one is two.\n")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["no such file"], 1, "error: no such file: No such file or directory"),
        (["{folder}"], 1, "error: {folder}: Is a directory"),
        (["{examples}/tiny_llm.py"], 1, "error: {examples}/tiny_llm.py is no llama2.c checkpoint"),
        (["--tokenizer", "{examples}/tiny_llm.py"], 1, "error: {examples}/tiny_llm.py is no tokenizer of llama2.c"),
        (["--prompt", "one " * 99 + "one"], 1, "error: a prompt of 101 tokens leaves 0 of the model's 96; shorten it"),
        (["--tokens", "96"], 1, "error: a prompt of 1 tokens leaves 95 of the model's 96; give --tokens 95 at most"),
        (["--temperature", "nan"], 2, "Error: Invalid value for '--temperature': nan is no number to draw with."),
        (["--temperature", "inf"], 2, "Error: Invalid value for '--temperature': inf is no number to draw with."),
        (["--temperature", "1", "--top-p", "nan"], 2, "Error: Invalid value for '--top-p': nan is no number"),
        (["--beams", "65"], 2, "Error: Invalid value for '--beams': 65 is not in the range 1<=x<=64."),
        (["--block-size", "0"], 2, "Error: Invalid value for '--block-size'"),
        (["--greedy", "--beams", "2"], 2, "Error: --greedy, --temperature and --beams are three ways"),
        (["--seed", "2"], 2, "Error: --top-p and --seed are for drawing; give --temperature too"),
    ],
)
def test_what_is_wrong_is_one_line(here, examples, tmp_path, arguments, status, says):
    names = {"folder": tmp_path, "examples": examples}
    ended, out, err = here(*(argument.format(**names) for argument in arguments))
    assert (ended, out) == (status, "")
    assert err.splitlines()[-1].startswith(says.format(**names))
    assert status == 2 or err.count("\n") == 1


@pytest.mark.parametrize(
    ("into", "status", "says"),
    [("> /dev/full", 1, "error: No space left on device\n"), ("| true", 1, ""), (">&-", 0, None)],
)
@pytest.mark.usefixtures("compiler")
def test_output_that_cannot_be_written_is_one_line_or_none(examples, into, status, says):
    command = f"set -o pipefail; '{sys.executable}' -W error tiny_llm.py --prompt two --tokens 20 {into}"
    done = subprocess.run(["bash", "-c", command], cwd=examples, capture_output=True, text=True, timeout=200)
    assert done.returncode == status
    assert says is None or "".join(line for line in done.stderr.splitlines(True) if "tokens in" not in line) == says


def test_a_system_without_open_files_left_is_one_line(here, monkeypatch):
    def refuse(*_given, **_options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(tiny_llm, "run", refuse)
    monkeypatch.setattr(os, "dup2", lambda *_given: None)
    assert here("--prompt", "two") == (1, "", "error: Too many open files\n")


def test_kernels_that_cannot_be_kept_are_one_line(here, monkeypatch):
    def refuse(*_given, **_options):
        raise CompileError("cannot keep compiled kernels")

    monkeypatch.setattr(tiny_llm, "run", refuse)
    assert here("--prompt", "two") == (1, "", "error: cannot keep compiled kernels\n")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("scale", [1e25, 1e35])
def test_weights_that_overflow_are_one_line(here, examples, tmp_path, scale):
    raw = (examples / "micro" / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(raw[:28] + (np.frombuffer(raw[28:], "<f4") * np.float32(scale)).tobytes())
    tokenizer = examples / "micro" / "tokenizer.bin"
    status, out, err = here(tmp_path / "model.bin", "--tokenizer", tokenizer, "--tokens", 2)
    assert (status, out) == (1, "")
    assert err == "error: the model's numbers overflow float32: its weights are those of no trained model\n"


def test_without_a_compiler_it_says_what_to_install(examples):
    done = run(examples, CXX="no-such-compiler", VMM_DRIVER="host")
    assert done.returncode == 1
    assert done.stderr.startswith("error: CXX names 'no-such-compiler'")
    assert done.stderr.count("\n") == 1


def test_the_training_script_writes_a_model_that_can_be_read(examples, tmp_path):
    done = run(examples, "--steps", 2, "--folder", tmp_path, program="train_micro_model.py")
    assert done.returncode == 0, done.stderr
    assert "right answers: 0.00% of the held out" in done.stdout
    config, _weights = read_checkpoint(tmp_path / "model.bin")
    tokenizer = read_tokenizer(tmp_path / "tokenizer.bin", config.vocab)
    assert (tmp_path / "tokenizer.bin").read_bytes() == (examples / "micro" / "tokenizer.bin").read_bytes()
    assert tokenizer.decode(tokenizer.encode("one plus one is two.")) == "one plus one is two."


@pytest.mark.exhaustive
def test_the_example_passes_mypy_strict(examples, tmp_path):
    pytest.importorskip("mypy", reason="needs the dev extra: python -m pip install -e '.[dev]'")
    root, programs = examples.parent, ("tiny_llm.py", "train_micro_model.py", "llama", "micro")
    options = ["--config-file", root / "pyproject.toml", "--cache-dir", tmp_path, "--explicit-package-bases"]
    command = [sys.executable, "-m", "mypy", *options, *(examples / name for name in programs)]
    environment = {**os.environ, "MYPYPATH": f"{examples}{os.pathsep}{root}"}
    done = subprocess.run(
        list(map(str, command)), cwd=root, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout
    assert "no issues found in" in done.stdout
