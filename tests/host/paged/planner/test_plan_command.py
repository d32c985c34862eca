"""python -m paged plan: what it prints and writes, and how it refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from paged.commands.group import main

PNG = b"\x89PNG\r\n\x1a\n"
LINE = (
    "python -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-2-7b-hf --gpu-memory-utilization 0.90 "
    "--max-model-len 4096 --max-num-seqs 128 --kv-cache-dtype auto"
)
TOO_LONG = LINE.replace("4096", "8192")


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["plan", *(str(arg) for arg in args)])


def planned(*args: object) -> dict[str, object]:
    """The plan as JSON, from a run that succeeds."""
    found = run("--json", *args)
    assert found.exit_code == 0, found.output
    result: dict[str, object] = json.loads(found.stdout)
    return result


def test_the_pasted_line_is_planned_and_the_positions_are_noted() -> None:
    found = run("--", *TOO_LONG.split(), "--port", "8000", "--trust-remote-code")
    assert found.exit_code == 1, found.output
    text = " ".join(found.stdout.split())
    for words in (
        "llama-2-7b: 6,738,415,616 weights, float16; KV 524,288 bytes a token",
        "note: max_model_len 8,192 is more than the 4,096 positions of llama-2-7b: vLLM refuses to start",
        "ignored: --port 8000, --trust-remote-code",
        "weights 13,476,831,232 12.55 GiB exact",
        "activations 675,282,944 644.00 MiB estimate",
        "CUDA graphs 265,420,800 253.12 MiB estimate",
        "estimate: a formula that fits published logs of vLLM",
        "7,385 blocks of 16 = 118,160 tokens",
        "Length is bound by the model's positions: 4,096, not 8,192.",
        "Concurrency is bound by KV pool: the KV pool holds 101 sequences of 1,158 tokens",
        "2,000 requests with the published quantiles of azure_conv 2023",
    ):
        assert words in text, words
    for row in (
        "mean over decode steps",
        "p99 when it ends",
        "block size 128",
        "chunk 32 MiB",
        "order layer",
        "KV dtype",
    ):
        assert row in text
    assert found.stderr == ""


@pytest.mark.parametrize("form", [LINE.split(), [LINE], LINE.replace(" 4096", "=4096").replace("_", "-").split()])
def test_words_one_quoted_word_and_equals_signs_give_the_same_plan(form: list[str]) -> None:
    options = LINE.split(" ", 5)[5].split()
    words = [word.replace("api-server", "api_server") for word in form]
    assert planned("--", *words)["parts"] == planned("--model", "llama-2-7b", *options)["parts"]


def test_the_newer_form_and_a_model_that_stands_alone() -> None:
    pasted = planned("--", "vllm", "serve", "meta-llama/Llama-2-7b-hf", "--max-num-seqs", "128")
    assert pasted == planned("llama-2-7b", "--max-num-seqs", "128") | {"options": pasted["options"]}


def test_an_option_beside_the_line_takes_its_place_and_says_so() -> None:
    found = planned("--max-num-seqs", "64", "--gpu", "A100-80GB", "--", *LINE.split())
    assert (found["max_num_seqs"], found["gpu"]["name"]) == (64, "A100-80GB")  # type: ignore[index]
    assert "--max-num-seqs 64 takes the place of the line's 128" in found["notes"]  # type: ignore[operator]


def test_a_line_whose_model_is_not_known_is_planned_with_a_config_beside_it(config_file: Callable[..., str]) -> None:
    refused(run("--", "vllm", "serve", "my/Qwen3-0.6B-x"), "unknown model 'my/Qwen3-0.6B-x'", "path of a config.json")
    found = planned("--model", config_file("qwen3-0.6b"), "--", "vllm", "serve", "my/Qwen3-0.6B-x")
    assert found["model"]["name"] == "qwen3-0.6b"  # type: ignore[index]


def test_json_and_picture_are_written_whole(tmp_path: Path) -> None:
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    found = run("llama-2-7b", "--json-output", out, "-o", picture)
    assert found.exit_code == 0, found.output
    assert json.loads(out.read_text())["schema"] == 1
    assert picture.read_bytes().startswith(PNG)
    assert len(picture.read_bytes()) > 10_000
    assert f"The picture is in {picture}." in " ".join(found.stdout.split()) or str(picture) in found.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "plan.png"}


@pytest.mark.parametrize("model", ["mixtral", "deepseek-v2-lite", "windows", "qwen2.5-7b-awq"])
def test_every_kind_of_model_is_planned(config_file: Callable[..., str], model: str) -> None:
    found = run("--model", config_file(model), "--gpu", "H200-141GB")
    assert found.exit_code == 0, found.output
    assert ("a pool each here" in " ".join(found.stdout.split())) == (model == "windows")


def test_layers_of_several_kinds_are_drawn(config_file: Callable[..., str], tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    assert run("--model", config_file("windows"), "-o", picture).exit_code == 0
    assert picture.read_bytes()[:5] == b"<?xml"


def test_json_on_standard_output_stands_alone() -> None:
    found = run("--json", "llama-3-8b")
    assert json.loads(found.stdout)["model"]["name"] == "llama-3-8b"
    assert found.stderr.startswith("llama-3-8b: 8,030,261,248 weights")


def test_a_gpu_on_which_nothing_fits_is_planned_and_fails(tmp_path: Path) -> None:
    picture = tmp_path / "tiny.png"
    found = run("llama-3-70b", "--gpu", "T4-16GB", "-o", picture)
    assert (found.exit_code, found.stderr) == (1, "")
    text = " ".join(found.stdout.split())
    assert "It does not fit: weights: the weights alone take 131.42 GiB of a GPU with 14.74 GiB." in text
    assert picture.read_bytes().startswith(PNG)


def test_what_vllm_refuses_is_the_last_line_and_the_status() -> None:
    found = run("--", *TOO_LONG.split())
    last = " ".join(found.stdout.split()).rpartition(". ")[2]
    assert last == (
        "vLLM refuses to start: max_model_len 8,192 is more than the 4,096 positions of llama-2-7b; "
        "--max-model-len 4096 would start, and so would VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
    )
    assert found.exit_code == 1
    verdict = json.loads(run("--json", "--", *TOO_LONG.split()).stdout)["verdict"]
    assert (verdict["starts"], verdict["limit"]) == (False, "KV pool")
    assert verdict["refusal"].startswith("max_model_len 8,192")
    assert run("--", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", *TOO_LONG.split()).exit_code == 0
    assert run("--max-model-len", "4096", "--", *TOO_LONG.split()).exit_code == 0


@pytest.mark.parametrize(
    ("gpu", "dtype", "status", "said"),
    [
        ("V100-32GB", "auto", 0, "note: V100-32GB has no bfloat16: vLLM computes in float16, which is as wide"),
        ("V100-32GB", "half", 0, ""),
        ("V100-32GB", "bfloat16", 1, "--dtype bfloat16, and V100-32GB has no bfloat16; --dtype half would start."),
        ("A10G-24GB", "bfloat16", 0, ""),
    ],
)
def test_a_gpu_without_bfloat16_is_told(gpu: str, dtype: str, status: int, said: str) -> None:
    found = run("llama-3-8b", "--gpu", gpu, "--dtype", dtype)
    assert found.exit_code == status, found.output
    text = " ".join(found.stdout.split())
    assert (said in text) and (bool(said) == ("has no bfloat16" in text))


def test_where_nothing_fits_there_are_no_rows_of_zeros() -> None:
    lines = run("llama-3-8b", "--gpu", "T4-16GB").stdout.splitlines()
    assert any(line.startswith("KV pool ") for line in lines)
    assert not any(line.startswith(("sequences ", "layout ", "chosen ", "The chosen layout", "p50")) for line in lines)
    assert " ".join(lines).rstrip().endswith("--tensor-parallel-size 2 would start.")


def test_a_picture_has_the_panels_that_have_something_and_no_bar_ends_at_its_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, *_args, **_named: drawn.append(self))
    run("llama-3-8b", "--gpu", "T4-16GB", "-o", tmp_path / "tiny.png")
    run("llama-3-8b", "--plot", tmp_path / "fits.png")
    run("llama-3-8b", "--max-num-seqs", "64", "--output", tmp_path / "few.png")
    assert [len(figure.axes) for figure in drawn] == [1, 4, 4]
    assert "it does not fit: the weights alone take 14.96 GiB" in drawn[0].get_suptitle()
    for axes in (axes for figure in drawn for axes in figure.axes):
        ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
        assert max(ends) * 1.02 < axes.get_xlim()[1]


def test_calls_are_drawn_as_many_as_the_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paged.planner import make_plan, read_options
    from paged.planner.chart import plot

    drawn: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, *_args, **_named: drawn.append(self))
    found = make_plan(read_options({"model": "llama-3-8b"}))
    none = dataclasses.replace(found.layouts[0], calls={})
    plot(dataclasses.replace(found, layouts=(none, *found.layouts[1:])), tmp_path / "plan.png")
    lengths = [bar.get_width() for bar in drawn[0].axes[3].patches]
    assert lengths == [0, *(sum(row.calls.values()) for row in found.layouts[1:])]


def test_an_unknown_model_of_a_pasted_line_shows_the_line_to_write() -> None:
    pasted = ("vllm", "serve", "mistralai/Mistral-Nemo-Base-2407", "--port", "1")
    wanted = "plan --model path/to/config.json -- vllm serve mistralai/Mistral-Nemo-Base-2407 ..."
    refused(run("--", *pasted), "unknown model 'mistralai/Mistral-Nemo-Base-2407'", wanted)
    refused(run("--", " ".join(pasted)), wanted)


def test_lengths_of_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "lengths.csv"
    trace.write_text("num_prefill_tokens,num_decode_tokens\n100,20\n")
    found = planned("llama-2-7b", "--trace", trace)
    assert found["lengths"] == {"from": str(trace), "requests": 1, "left_out": 0}
    assert found["sequences"][0]["tokens"] == 110.5  # type: ignore[index]  # 101 to 120 tokens


def test_help_has_examples() -> None:
    found = run("--help")
    assert found.exit_code == 0
    assert "python -m paged plan --gpu H100-80GB -- vllm serve meta-llama/Llama-2-7b-hf" in found.stdout


def refused(found: Result, *words: str) -> None:
    """Status 2, one line on standard error that has all the words, nothing else."""
    assert found.exit_code == 2, found.output
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 1
    for word in words:
        assert word in found.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--model", "gpt-9"], ["unknown model 'gpt-9'", "llama-3-8b"]),
        (["--model", "/no/config.json"], ["/no/config.json: there is no such file; give a model's config.json"]),
        (["--model", "config.json"], ["config.json: there is no such file"]),
        (["--model", "./model"], ["./model: there is no such file"]),
        (["--tensor-parallel-size", "two"], ["not 'two'; for example --tensor-parallel-size 2\n"]),
        (["--max-model-len", "long"], ["not 'long'; for example --max-model-len 8192\n"]),
        (["--gpu", "H1000"], ["GPU 'H1000' is not known", "H100-80GB"]),
        (["--gpu", "A100"], ["A100-40GB or A100-80GB"]),
        (["--gpu", "80 GB"], ["GPU memory '80 GB' is not a size"]),
        (["--max-num-seqs", "many"], ["--max-num-seqs must be a whole number of at least 1, not 'many'"]),
        (["--gpu-memory-utilization", "2"], ["--gpu-memory-utilization must be above 0 and at most 1, not '2'"]),
        (["--block-size", "0"], ["--block-size must be a whole number of at least 1"]),
        (["--kv-cache-dtype", "int3"], ["KV cache dtype 'int3' is unknown"]),
        (["--dtype", "int8"], ["--dtype 'int8' is unknown"]),
        (["--quantization", "magic"], ["--quantization 'magic'", "known: fp8, awq"]),
        (["--tensor-parallel-size", "3"], ["--tensor-parallel-size 3 does not divide the 32 query heads"]),
        (["--pipeline-parallel-size", "99"], ["--pipeline-parallel-size 99 is more than the model's 32 layers"]),
        (["--max-num-seqs", "128", "--max-num-batched-tokens", "64"], ["64 is less than --max-num-seqs 128"]),
        (["--chunk", "3 MiB"], ["no multiple of the granularity"]),
        (["--order", "row"], ["--order must be one of block, layer"]),
        (["--trace", "nowhere.csv"], ["nowhere.csv: there is no such file"]),
        (["-o", "plan.txt"], ["plan.txt", "png, svg, pdf"]),
        (["-o", "nowhere/plan.png"], ["nowhere/plan.png: the folder nowhere is not there"]),
        (["--json-output", "x.png", "-o", "x.png"], ["x.png is named for the JSON and for the picture"]),
        (["llama-2-7b", "--model", "llama-3-8b"], ["the model is named twice: llama-2-7b and --model llama-3-8b"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["vllm", "serve", "llama-2-7b", "--port", "1"], ["--port", "Put -- before a pasted line"]),
        (["--", "ls", "-l"], ["the pasted line starts no vLLM server"]),
        (["--", "vllm", "serve", "--port", "1"], ["the pasted line names no model"]),
        (["--", "vllm", "serve", "llama-2-7b", "--max-num-seqs=x"], ["--max-num-seqs must be a whole number"]),
        (["--", "vllm serve 'llama"], ["mend its quotes"]),
    ],
)
def test_bad_usage_is_one_line_and_status_2(args: list[str], words: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run(*args), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_never_written_over(tmp_path: Path) -> None:
    trace = tmp_path / "trace.png"
    trace.write_text("num_prefill_tokens,num_decode_tokens\n100,20\n")
    refused(run("--trace", trace, "-o", trace), "is the trace itself")
    assert trace.read_text().startswith("num_prefill")


def test_a_picture_that_fails_half_way_is_one_line_and_status_1(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    found = run("llama-2-7b", "-o", tmp_path / "plan.png")
    assert (found.exit_code, found.stderr) == (
        1,
        f"error: cannot write {tmp_path / 'plan.png'}: No space left on device\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_as_a_command_of_its_own() -> None:
    command = [sys.executable, "-m", "paged", "plan", "--json", "--", *LINE.split()]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(found.stdout)["kv_pool"]["tokens"] == 118_160
    assert "\x1b" not in found.stderr


def test_an_option_that_is_nearly_one_is_suggested() -> None:
    notes = planned("--", "vllm", "serve", "llama-2-7b", "--max-model-length", "2048")["notes"]
    assert "--max-model-length is no option that is read; did you mean --max-model-len?" in notes  # type: ignore[operator]
    others = ["--max-num-partial-prefills", "2", "--model-impl", "auto", "--data-parallel-size", "2", "--port", "1"]
    notes = planned("--", "vllm", "serve", "llama-2-7b", *others)["notes"]
    assert not any("did you mean" in note for note in notes)  # type: ignore[attr-defined]
