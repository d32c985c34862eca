"""A pasted command line: what is read of it, and what is said of the rest."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged.planner import read_server_line
from paged.planner.options import FLAGS, READERS
from paged.planner.server_line import ServerLine

SERVER = "python -m vllm.entrypoints.openai.api_server"


def read(line: str) -> ServerLine:
    """As a shell hands it over."""
    return read_server_line(shlex.split(line))


EXPECTED = {"model": "meta-llama/Llama-2-7b-hf", "gpu_memory_utilization": "0.90", "max_num_seqs": "128"}


@pytest.mark.parametrize(
    "line",
    [
        f"{SERVER} --model meta-llama/Llama-2-7b-hf --gpu-memory-utilization 0.90 --max-num-seqs 128",
        f"{SERVER} --model=meta-llama/Llama-2-7b-hf --gpu-memory-utilization=0.90 --max-num-seqs=128",
        f"{SERVER} --gpu_memory_utilization 0.90 --max_num_seqs=128 --model meta-llama/Llama-2-7b-hf",
        "vllm serve meta-llama/Llama-2-7b-hf --gpu-memory-utilization 0.90 --max-num-seqs 128",
        "vllm serve --max-num-seqs 128 --gpu-memory-utilization 0.90 meta-llama/Llama-2-7b-hf",
        "/opt/bin/vllm serve --model 'meta-llama/Llama-2-7b-hf' --max-num-seqs '128' --gpu-memory-utilization '0.90'",
        "python3.11 -m vllm.entrypoints.api_server --model meta-llama/Llama-2-7b-hf "
        "--gpu-memory-utilization 0.90 --max-num-seqs 128",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai:latest --model meta-llama/Llama-2-7b-hf "
        "--gpu-memory-utilization 0.90 --max-num-seqs 128",
        "nohup vllm serve meta-llama/Llama-2-7b-hf --gpu-memory-utilization 0.90 --max-num-seqs 128 & ls -l",
    ],
)
def test_every_form_says_the_same(line: str) -> None:
    found = read(line)
    assert (found.options, found.ignored, found.notes) == (EXPECTED, (), ())


def test_one_quoted_word_with_continued_lines_is_split_as_a_shell_would() -> None:
    words = [SERVER, "--model meta-llama/Llama-2-7b-hf", "--gpu-memory-utilization 0.90", "--max-num-seqs '128'"]
    text = " \\\n  ".join(words[:3]) + " \\\r\n" + words[3]
    assert read_server_line([text]) == ServerLine(EXPECTED, (), ())


def test_short_names_and_flags() -> None:
    found = read("vllm serve m -tp 4 -pp=2 -q awq --enforce-eager")
    assert found.options == {
        "model": "m",
        "tensor_parallel_size": "4",
        "pipeline_parallel_size": "2",
        "quantization": "awq",
        "enforce_eager": True,
    }
    assert read("vllm serve m --no-enforce-eager").options["enforce_eager"] is False


def test_a_negative_length_is_a_value() -> None:
    assert read("vllm serve m --max-model-len -1").options["max_model_len"] == "-1"


def test_what_is_given_twice_counts_last_and_is_said() -> None:
    found = read("vllm serve m --max-num-seqs 64 --max-num-seqs=128")
    assert found.options["max_num_seqs"] == "128"
    assert found.notes == ("--max-num-seqs is given twice; the last, 128, counts, as in vLLM",)


def test_unknown_options_are_listed_with_their_values_and_nothing_is_guessed() -> None:
    line = "vllm serve --port 8000 --trust-remote-code m --max-num-seq 7 --served-model-name a b --gpu-memory 3 --flag"
    found = read(line)
    assert found.options == {"model": "m"}
    assert found.ignored == (
        "--port 8000",
        "--trust-remote-code",
        "--max-num-seq 7",
        "--served-model-name a b",
        "--gpu-memory 3",
        "--flag",
    )


def test_a_flag_does_not_swallow_the_model_and_old_forms_of_it_are_read() -> None:
    found = read("vllm serve --enable-prefix-caching --enable-chunked-prefill false m")
    assert found.options == {"model": "m"}
    assert found.ignored == ("--enable-prefix-caching", "--enable-chunked-prefill false")


def test_unknown_options_that_memory_depends_on_are_pointed_out() -> None:
    found = read("vllm serve m --enable-lora --speculative-config '{\"num_speculative_tokens\": 3}' --port 1")
    assert [note.split(" ", 1)[0] for note in found.notes] == ["--enable-lora", "--speculative-config"]
    assert all(note.endswith("is not counted here although memory may depend on it") for note in found.notes)


def test_settings_of_the_environment() -> None:
    found = read(
        "CUDA_VISIBLE_DEVICES=0 VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 vllm serve m"
    )
    assert found.options == {"model": "m", "allow_long": True, "count_graphs": False}
    assert found.ignored == ("CUDA_VISIBLE_DEVICES=...",)


def test_secrets_of_a_pasted_line_are_not_shown_again() -> None:
    found = read("HF_TOKEN=hf_123 vllm serve m --api-key sk-123 --hf-token=hf_123 --ssl-keyfile key.pem")
    assert found.ignored == ("HF_TOKEN=...", "--api-key ...", "--hf-token ...", "--ssl-keyfile ...")


def test_a_partition_of_layers_is_pointed_out() -> None:
    found = read("VLLM_PP_LAYER_PARTITION=20,12 vllm serve m -pp 2")
    assert found.notes == ("VLLM_PP_LAYER_PARTITION is not counted here although memory may depend on it",)


@pytest.mark.parametrize("line", ["vllm serve a --model b", "vllm serve --model b a"])
def test_a_model_named_twice(line: str) -> None:
    """In vLLM the word that stands alone counts."""
    found = read(line)
    assert found.options == {"model": "a"}
    assert found.notes == ("the model is named twice; a, which stands alone, counts",)


def test_a_word_that_stands_alone_is_no_model_of_the_old_entry_point() -> None:
    found = read(f"{SERVER} --model a b")
    assert (found.options, found.ignored) == ({"model": "a"}, ("b",))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["ls", "-l"], "the pasted line starts no vLLM server; paste vllm serve MODEL"),
        (["vllm", "bench", "serve"], "starts no vLLM server"),
        (["vllm serve 'm"], "cannot be split into words: No closing quotation; mend its quotes"),
        (["vllm", "serve", "m", "--max-num-seqs"], "--max-num-seqs in the pasted line has no value"),
        (["vllm", "serve", "m", "--max-num-seqs", "--port", "1"], "--max-num-seqs in the pasted line has no value"),
        (["vllm", "serve", "m", "--enforce-eager=true"], "--enforce-eager in the pasted line takes no value"),
    ],
)
def test_what_cannot_be_read_is_one_line(words: list[str], error: str) -> None:
    with pytest.raises(ValueError, match=error) as found:
        read_server_line(words)
    assert "\n" not in str(found.value)


WORDS = (
    "vllm",
    "serve",
    "-m",
    "vllm.entrypoints.api_server",
    "--model",
    "m",
    "--max-num-seqs",
    "=",
    "-1",
    "--",
    "-",
    "",
)
MORE = (
    "--enforce-eager",
    "--no-enforce-eager",
    "--enable-lora",
    "true",
    "A=b",
    "--x=y",
    "-tp=2",
    "-cc.mode",
    "&",
    "a b",
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.sampled_from(WORDS + MORE), st.text(max_size=6)), max_size=12))
def test_any_words_are_read_or_refused_in_one_line(words: list[str]) -> None:
    try:
        found = read_server_line([*words, "vllm", "serve", *words])
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert set(found.options) <= {*READERS, *FLAGS}
        assert all(isinstance(text, str) for text in (*found.ignored, *found.notes))
